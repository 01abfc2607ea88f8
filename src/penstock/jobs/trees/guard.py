"""Checks against accidental deletes and writes: roots, home and working directories, and targets of links."""

from __future__ import annotations

import os
from contextlib import suppress
from tempfile import NamedTemporaryFile, TemporaryFile
from time import monotonic
from typing import TYPE_CHECKING
from unicodedata import normalize

from penstock.errors import PenstockError, Unusable
from penstock.jobs.trees.plan import Origin
from penstock.jobs.trees.selection import Selection, local, resolve_local_key
from penstock.source import Source, open_source
from penstock.stores.urls import check_deletable, parse
from penstock.values import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.options import StoreOptions

_REMEMBERED_S = 1.0
_UNFINISHED_S = 24 * 3600.0


def check_tree(selected: Selection, advice: str, *, whole_bucket: bool = False) -> None:
    """Refuse to delete a whole bucket, the home or working directory, or a directory above them; no request.

    A glob of only stars and slashes that contains ``**`` counts as the whole tree, and so does a lone ``*`` at the root
    of a bucket. ``whole_bucket`` allows a whole bucket; otherwise the error message ends with ``advice``.
    """
    origin = selected.origin
    bucket = not origin.prefix and not local(selected.source)
    everything = "**" in origin.glob and not origin.glob.strip("*/")
    if origin.kind != "tree" and not everything and not (bucket and origin.glob == "*"):
        return
    if bucket:
        if not whole_bucket:
            raise Unusable(f"this is a whole bucket: {advice}", url=origin.root)
        return
    check_deletable(parse(origin.root + origin.prefix))


def check_names(origins: Iterable[tuple[Source, str]], target: Source, key: str) -> None:
    """Refuse a source and a destination that overlap and have different root URLs; no request.

    For example ``s3://bucket/base/`` in ``penstock://profile/``. If both have the same root URL, ``plan`` checks object
    by object.
    """
    *where, there = target.address(key)
    for source, prefix in origins:
        *store, here = source.address(prefix)
        same = source.root != target.root and store == where
        if same and (str(here).startswith(str(there)) or str(there).startswith(str(here))):
            message = f"{source.url(prefix)} and {target.url(key)} are in one store: write both in the same form"
            raise Unusable(message)


def link(url: str, store: StoreOptions | str) -> Selection | None:
    """Return the local symbolic link that ``url`` names; refuse a URL that could mean the link or its target."""
    source, key = open_source(url, store)
    if not local(source):
        return None
    name = key.rstrip("/").rpartition("/")[2]
    if name in (".", ".."):
        raise Unusable("'.' and '..' cannot be deleted: name the directory itself", url=source.url(key))
    bare = resolve_local_key(key.rstrip("/")) if name else ""
    if not bare or not os.path.islink(f"/{bare}"):
        return None
    if key.endswith("/"):
        where = os.path.realpath(f"/{bare}")
        raise Unusable(f"this is a link: write it without the / for the link itself, or {where}/ for its target")
    found = os.lstat(f"/{bare}")
    meta = ObjectMeta(bare, found.st_size, modified=found.st_mtime)
    return Selection(source, Origin(source.root, bare, "object"), meta)


def check_links(urls: Iterable[str], store: StoreOptions | str) -> None:
    """Refuse to move links to directories, because their targets would be deleted."""
    for found in filter(None, (link(url, store) for url in urls)):
        path = f"/{found.origin.prefix}"
        if os.path.isdir(path):
            message = f"links to directories cannot be moved: name {os.path.realpath(path)}/ for its contents"
            raise Unusable(message, url=path)


def link_on_the_way(base: str, key: str) -> str:
    """Return the first symbolic link among the directories below ``base`` on the path of ``key``; empty without one.

    A user who writes a tree into ``base`` expects it below ``base``, not at the target of a link.
    """
    return next((path for path in _above(base, key) if os.path.islink(path)), "")


class LinkCheck:
    """Cached ``link_on_the_way`` for files that come folder by folder: a folder's result is kept for one second."""

    __slots__ = ("_base", "_clock", "_folder", "_found", "_until")

    def __init__(self, base: str, clock: Callable[[], float] = monotonic) -> None:
        self._base, self._clock = base, clock
        self._folder: str | None = None
        self._found, self._until = "", 0.0

    def __call__(self, key: str) -> str:
        folder, now = key.rpartition("/")[0], self._clock()
        if folder != self._folder or now >= self._until:
            self._found = link_on_the_way(self._base, key)
            self._folder, self._until = folder, now + _REMEMBERED_S
        return self._found


def in_the_way(base: str, key: str) -> str:
    """Return the path that blocks writing the file ``key``: a directory, or a file in place of a parent directory."""
    files = (path for path in _above(base, key) if os.path.lexists(path) and not os.path.isdir(path))
    return next(files, "") or (f"/{key}" if os.path.isdir(f"/{key}") else "")


def obstacle(path: str) -> str:
    return "a directory is in the place of this file" if os.path.isdir(path) else "a file is in a directory's place"


def clear(path: str) -> None:
    """Remove the empty directories in ``path``, and ``path`` itself if it holds no file; links are not followed."""
    for folder, _, _ in () if os.path.islink(path) else os.walk(path, topdown=False):
        with suppress(OSError):
            os.rmdir(folder)


def find_folding(base: str) -> Callable[[str], str] | None:
    """Return a function that maps spellings that a disk, tried with a temporary file, takes for one; or None."""
    folder = f"/{base}"
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder.rstrip("/"))
    with suppress(OSError), NamedTemporaryFile(dir=folder, prefix="penstock-\xe9-") as file:
        name = os.path.basename(file.name)
        others = name.upper(), name.replace("penstock", "PENSTOCK"), normalize("NFD", name)
        if any(os.path.lexists(os.path.join(folder, each)) for each in others):
            return lambda key: normalize("NFC", key.casefold())
    return None


def clear_unfinished(source: Source, prefix: str) -> None:
    """Remove files of killed writers below a directory: a day old by their own clock, held by no writer."""
    for upload in source.unfinished(prefix):
        with suppress(OSError, PenstockError):
            if upload.begun is not None and clock_beside(upload.id) - upload.begun >= _UNFINISHED_S:
                source.abort(upload)


def clock_beside(path: str) -> float:
    """Return the current time of a file's file system, which may be on a different machine. Raises ``OSError``."""
    with TemporaryFile(dir=os.path.dirname(path)) as file:
        return os.fstat(file.fileno()).st_mtime


def _above(base: str, key: str) -> Iterator[str]:
    at = len(base) if base.endswith("/") or not base else len(base) + 1
    while at := key.find("/", at) + 1:
        yield f"/{key[: at - 1]}"
