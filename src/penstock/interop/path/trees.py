"""Directories and files below a prefix: status, listing, pattern matching and removal."""

from __future__ import annotations

from errno import ENOTEMPTY
from glob import escape
from typing import TYPE_CHECKING

from penstock.engine.listing.select import fixed_part, selector
from penstock.errors import InvalidURL, NotFound
from penstock.stores.protected import check_deletable
from penstock.stores.urls import parse
from penstock.values import UNKNOWN_SIZE, as_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.source import Source
    from penstock.values import ObjectMeta

__all__ = ["children", "described", "directory", "file_at", "matches", "objects", "remove_tree"]


def file_at(source: Source, key: str) -> ObjectMeta | None:
    """Return an object's metadata: one request. None for a directory's marker, or if the object does not exist."""
    found = source.stat_existing([key])[0] if key else None
    return None if found is None or _marks(found) else found


def directory(source: Source, key: str) -> bool:
    """Return whether an object below or a directory's marker exists: one request."""
    return bool(source.page(as_folder(key)).entries)


def described(source: Source, key: str) -> dict[str, object]:
    """Return the fields of universal_pathlib's ``stat``: one request, two for a directory; raise ``NotFound``."""
    found = file_at(source, key)
    if found is not None:
        size = None if found.size == UNKNOWN_SIZE else found.size
        return {"name": key, "type": "file", "size": size, "mtime": found.modified, "ETag": found.etag}
    if key and not directory(source, key):
        raise NotFound("neither an object nor a prefix of one", url=source.url(key))
    return {"name": key, "type": "directory", "size": 0}


def children(source: Source, key: str) -> Iterator[str]:
    """Yield the keys of the direct children, each once, in order: one request per 1,000.

    Raises:
        NotFound: Nothing exists at the key.
        NotADirectoryError: The key is an object.

    """
    prefix, last, there = as_folder(key), None, False
    for page in source.pages(prefix, delimiter="/"):
        there = there or bool(page.entries or page.prefixes)
        found = [(each.key, each.key) for each in page.entries if each.key != prefix]
        found += [(each, _folder(each)) for each in page.prefixes]
        for _, child in sorted(found):
            # An object and a prefix of the same name follow one another, possibly on two pages.
            if child != last:
                yield child
            last = child
    if key and not there:
        if file_at(source, key) is not None:
            raise NotADirectoryError(source.url(key))
        raise NotFound("no such directory", url=source.url(key))


def matches(source: Source, key: str, pattern: str) -> Iterator[str]:
    """Yield the keys of files and directories below that match a pattern (``engine.listing.select``), in order.

    A pattern with a trailing ``/`` matches only directories. The requests are those of ``ps.glob``.

    Raises:
        InvalidURL: The pattern is empty, or begins with ``/``.

    """
    if not pattern.strip("/") or pattern.startswith("/"):
        raise InvalidURL(f"{pattern!r} is no pattern of what lies below", url=source.url(key))
    folders, whole = pattern.endswith("/"), escape(as_folder(key)) + pattern.removesuffix("/")
    start, rest = fixed_part(whole)
    if not rest:
        if directory(source, start) or (not folders and file_at(source, start) is not None):
            yield start
        return
    chosen = selector(whole, markers=True)
    last = rest if "/" in rest else start.rpartition("/")[2] + rest
    seen: set[str] = set()
    for page in source.pages(start, delimiter="" if "/" in last or "**" in last else "/"):
        found = [(each, _folder(each)) for each in page.prefixes]
        for each in page.entries:
            found += [(each.key, folder) for folder in _folders(each.key, len(as_folder(key)))]
            if not folders and not each.key.endswith("/"):
                found.append((each.key, each.key))
        for _, name in sorted(found, key=lambda pair: pair[0]):
            if name not in seen and chosen(name, 1):
                yield name
            seen.add(name)


def objects(source: Source, key: str) -> list[str]:
    """Return the keys of all objects below, including directory markers."""
    return [each.key for page in source.pages(as_folder(key)) for each in page.entries]


def remove_tree(source: Source, key: str, *, recursive: bool) -> None:
    """Delete all objects below; without ``recursive`` only a directory's marker, if nothing else is below.

    Raises:
        NotFound: Nothing exists at the key.
        NotADirectoryError: The key is an object.
        OSError: The directory is not empty (``ENOTEMPTY``), and ``recursive`` is False.
        InvalidURL: The key is a whole bucket.

    """
    check_deletable(parse(source.url(as_folder(key))))
    found = objects(source, key)
    if not found:
        list(children(source, key))
    if not recursive and found != [as_folder(key)]:
        message = "not empty, and a directory that is empty is not there: rmdir(recursive=True) deletes all below"
        raise OSError(ENOTEMPTY, message, source.url(key))
    source.delete(found)


def _marks(meta: ObjectMeta) -> bool:
    return meta.key.endswith("/") and meta.size == 0


def _folder(prefix: str) -> str:
    """Return the directory's key for a common prefix; a trailing ``//`` is an empty name, and stays."""
    return prefix if prefix.endswith("//") else prefix[:-1]


def _folders(key: str, base: int) -> Iterator[str]:
    at = key.find("/", base)
    while at >= 0:
        yield _folder(key[: at + 1])
        at = key.find("/", at + 1)
