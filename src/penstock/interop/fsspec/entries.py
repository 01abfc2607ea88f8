"""What fsspec is told of files and directories, and listings in its terms; functions that block."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.errors import NotFound
from penstock.values import UNKNOWN_SIZE, as_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.source import Source
    from penstock.values import ObjectMeta, Page

    Name = Callable[[str], str]  # of a URL
    Entry = dict[str, Any]

__all__ = ["below", "directory", "file", "info", "keys", "latest", "level", "ls", "under"]


def file(source: Source, meta: ObjectMeta, name: Name) -> Entry:
    """Describe a file: ``size`` in bytes, None where a listing does not say; times by the store's clock."""
    written = None if meta.modified is None else datetime.fromtimestamp(meta.modified, UTC)
    size = None if meta.size == UNKNOWN_SIZE else meta.size
    entry = {"name": name(source.url(meta.key)), "type": "file", "size": size, "ETag": meta.etag}
    return entry | {"LastModified": written, "mtime": meta.modified}


def directory(source: Source, key: str, name: Name) -> Entry:
    """Describe a directory."""
    return {"name": name(source.url(key)), "type": "directory", "size": 0}


def info(source: Source, key: str, name: Name) -> Entry:
    """Describe a file, or a directory: a request, two where it is no file. Raises ``NotFound``."""
    if key:
        try:
            return file(source, source.head(key), name)
        except NotFound:
            return below(source, key, name, raising=True)
    return below(source, key, name, raising=False)


def below(source: Source, key: str, name: Name, *, raising: bool) -> Entry:
    """Describe a directory, if something lies below: one request. A bucket may be empty; raises ``NotFound`` else."""
    page = source.page(as_folder(key), delimiter="/")
    if raising and not _full(page):
        raise NotFound("neither an object nor a prefix of one", url=source.url(key))
    return directory(source, key, name)


def ls(source: Source, key: str, name: Name) -> list[Entry]:
    """Return what lies right below, or the file itself: a request for each 1,000, one more where nothing does."""
    pages = [*source.pages(as_folder(key), delimiter="/")]
    if key and not any(_full(page) for page in pages):
        return [file(source, source.head(key), name)]
    return [entry for page in pages for entry in _described(source, page, name)]


def level(source: Source, prefix: str, name: Name) -> tuple[list[Entry], list[str]]:
    """Return entries whose keys begin with ``prefix`` up to the next ``/``, and the prefixes of those below."""
    pages = [*source.pages(prefix, delimiter="/")]
    found = [entry for page in pages for entry in _described(source, page, name)]
    return found, [prefix for page in pages for prefix in page.prefixes]


def under(source: Source, key: str, stem: str, name: Name, *, withdirs: bool) -> dict[str, Entry]:
    """Return all files below a key whose next part begins with ``stem``, by name: a request for each 1,000."""
    base = as_folder(key)
    metas = [each for page in source.pages(base + stem) for each in page.entries]
    found = {entry["name"]: entry for entry in (file(source, each, name) for each in _real(metas))}
    if withdirs:
        folders = {each.key[: at + 1] for each in metas for at, char in enumerate(each.key) if char == "/"}
        folders = {each for each in folders if len(each) > len(base)}
        found |= {entry["name"]: entry for entry in (directory(source, each.rstrip("/"), name) for each in folders)}
    return found


def keys(source: Source, key: str) -> list[str]:
    """Return the keys of all that lies below, also what a console leaves of its folders."""
    return [each.key for page in source.pages(as_folder(key)) for each in page.entries]


def latest(source: Source, key: str, entry: Entry) -> float | None:
    """Return when a file was written, or the newest file below a directory, in seconds since the epoch."""
    if entry["type"] == "file":
        modified: float | None = entry["mtime"]
        return modified
    times = [each.modified for page in source.pages(as_folder(key)) for each in page.entries]
    return max((each for each in times if each is not None), default=None)


def _real(metas: Iterable[ObjectMeta]) -> list[ObjectMeta]:
    # What ends in "/" was put there by a console that shows folders: it is the directory, and not in it.
    return [each for each in metas if not each.key.endswith("/")]


def _full(page: Page) -> bool:
    return bool(page.entries or page.prefixes)


def _described(source: Source, page: Page, name: Name) -> list[Entry]:
    files = [file(source, each, name) for each in _real(page.entries)]
    return files + [directory(source, each.rstrip("/"), name) for each in page.prefixes]
