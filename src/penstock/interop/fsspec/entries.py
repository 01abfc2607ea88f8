"""Blocking functions that return files, directories and listings as fsspec's entries."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.errors import NotFound
from penstock.values import UNKNOWN_SIZE, as_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.source import Source
    from penstock.values import ObjectMeta, Page

    Name = Callable[[str], str]  # URL -> fsspec's name
    Entry = dict[str, Any]

__all__ = ["below", "directory", "file", "info", "keys", "latest", "level", "ls", "under"]


def file(source: Source, meta: ObjectMeta, name: Name) -> Entry:
    """Return a file's entry: ``size`` in bytes, None if a listing does not report it; times by the store's clock."""
    written = None if meta.modified is None else datetime.fromtimestamp(meta.modified, UTC)
    size = None if meta.size == UNKNOWN_SIZE else meta.size
    entry = {"name": name(source.url(meta.key)), "type": "file", "size": size, "ETag": meta.etag}
    return entry | {"LastModified": written, "mtime": meta.modified}


def directory(source: Source, key: str, name: Name) -> Entry:
    """Return a directory's entry."""
    return {"name": name(source.url(key)), "type": "directory", "size": 0}


def info(source: Source, key: str, name: Name) -> Entry:
    """Return the entry of a file or directory: one request, two if it is not a file; raise ``NotFound``."""
    if key:
        try:
            return file(source, source.head(key), name)
        except NotFound:
            return below(source, key, name, raising=True)
    return below(source, key, name, raising=False)


def below(source: Source, key: str, name: Name, *, raising: bool) -> Entry:
    """Return a directory's entry: one request; with ``raising``, raise ``NotFound`` if nothing exists below.

    Callers set ``raising`` except for a bucket, which may be empty.
    """
    page = source.page(as_folder(key), delimiter="/")
    if raising and not _full(page):
        raise NotFound("neither an object nor a prefix of one", url=source.url(key))
    return directory(source, key, name)


def ls(source: Source, key: str, name: Name) -> list[Entry]:
    """Return the entries directly below, or the file itself: one request per 1,000, one more if there are none."""
    pages = [*source.pages(as_folder(key), delimiter="/")]
    if key and not any(_full(page) for page in pages):
        return [file(source, source.head(key), name)]
    return [entry for page in pages for entry in _described(source, page, name)]


def level(source: Source, prefix: str, name: Name) -> tuple[list[Entry], list[str]]:
    """Return the entries that begin with ``prefix``, up to the next ``/``, and the prefixes of the next level."""
    pages = [*source.pages(prefix, delimiter="/")]
    found = [entry for page in pages for entry in _described(source, page, name)]
    return found, [prefix for page in pages for prefix in page.prefixes]


def under(source: Source, key: str, stem: str, name: Name, *, withdirs: bool) -> dict[str, Entry]:
    """Return by name the files below a key whose next component begins with ``stem``: one request per 1,000."""
    base = as_folder(key)
    metas = [each for page in source.pages(base + stem) for each in page.entries]
    found = {entry["name"]: entry for entry in (file(source, each, name) for each in _real(metas))}
    if withdirs:
        folders = {each.key[: at + 1] for each in metas for at, char in enumerate(each.key) if char == "/"}
        folders = {each for each in folders if len(each) > len(base)}
        found |= {entry["name"]: entry for entry in (directory(source, each.rstrip("/"), name) for each in folders)}
    return found


def keys(source: Source, key: str) -> list[str]:
    """Return the keys of all objects below, including the directory markers of consoles."""
    return [each.key for page in source.pages(as_folder(key)) for each in page.entries]


def latest(source: Source, key: str, entry: Entry) -> float | None:
    """Return the modification time of a file, or the newest one below a directory, in seconds since the epoch."""
    if entry["type"] == "file":
        modified: float | None = entry["mtime"]
        return modified
    times = [each.modified for page in source.pages(as_folder(key)) for each in page.entries]
    return max((each for each in times if each is not None), default=None)


def _real(metas: Iterable[ObjectMeta]) -> list[ObjectMeta]:
    # A key that ends in "/" is a console's marker of a folder: it stands for the directory, not for a file in it.
    return [each for each in metas if not each.key.endswith("/")]


def _full(page: Page) -> bool:
    return bool(page.entries or page.prefixes)


def _described(source: Source, page: Page, name: Name) -> list[Entry]:
    files = [file(source, each, name) for each in _real(page.entries)]
    return files + [directory(source, each.rstrip("/"), name) for each in page.prefixes]
