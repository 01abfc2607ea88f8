"""What must not be deleted or written by mistake: roots, the directories one stands in, and what links lead to."""

from __future__ import annotations

import os
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from penstock.bulk.plan import Origin
from penstock.bulk.selection import Selection, local, resolved
from penstock.errors import Unusable
from penstock.providers.protected import check_deletable
from penstock.providers.urls import parse
from penstock.source import open_source
from penstock.values import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.options import StoreOptions
    from penstock.source import Source

__all__ = ["LinkCheck", "check_links", "check_names", "check_tree", "clear", "in_the_way", "link", "link_on_the_way"]

_REMEMBERED_S = 1.0


def check_tree(selected: Selection, advice: str, *, whole_bucket: bool = False) -> None:
    """Refuse to delete a whole bucket, the home or working directory, or what is above them; no request.

    A glob of only stars and slashes with a ``**`` among them counts as all that lies there, and so does a lone ``*``
    right in a bucket. ``advice`` says what to do about a bucket, which ``whole_bucket`` allows.

    Raises:
        Unusable: It is one of those.

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
    """Refuse sources and a destination that lie in one another and are named in two ways; no request.

    A bucket that is named in one way is looked after object by object (``bulk.plan``).

    Raises:
        Unusable: One lies in the other, ``s3://bucket/base/`` in ``penstock://profile/``, say.

    """
    *where, there = target.address(key)
    for source, prefix in origins:
        *store, here = source.address(prefix)
        same = source.root != target.root and store == where
        if same and (str(here).startswith(str(there)) or str(there).startswith(str(here))):
            message = f"{source.url(prefix)} and {target.url(key)} are of one store: name both in the same way"
            raise Unusable(message)


def link(url: str, store: StoreOptions | str) -> Selection | None:
    """Return the link of this machine that ``url`` names, for itself and not for what it leads to; None for no link.

    Raises:
        Unusable: Written so that it is not clear which of the two is meant: ``link/``, ``link/.``.

    """
    source, key = open_source(url, store)
    if not local(source):
        return None
    name = key.rstrip("/").rpartition("/")[2]
    if name in (".", ".."):
        raise Unusable("'.' and '..' are not deleted: name the directory itself", url=source.url(key))
    bare = resolved(key.rstrip("/")) if name else ""
    if not bare or not os.path.islink(f"/{bare}"):
        return None
    if key.endswith("/"):
        where = os.path.realpath(f"/{bare}")
        raise Unusable(f"this is a link: write it without the / for the link itself, or {where}/ for what it leads to")
    found = os.lstat(f"/{bare}")
    meta = ObjectMeta(bare, found.st_size, modified=found.st_mtime)
    return Selection(source, Origin(source.root, bare, "object"), meta)


def check_links(urls: Iterable[str], store: StoreOptions | str) -> None:
    """Refuse to move links to directories: what they lead to would be deleted. Raises ``Unusable``."""
    for found in filter(None, (link(url, store) for url in urls)):
        path = f"/{found.origin.prefix}"
        if os.path.isdir(path):
            message = f"links to directories are not moved: name {os.path.realpath(path)}/ for what lies there"
            raise Unusable(message, url=path)


def link_on_the_way(base: str, key: str) -> str:
    """Return the path of the first link among the directories below ``base`` that ``key`` would be written through.

    Empty where there is none. Who writes a tree into ``base`` means what is below it, not where a link leads.
    """
    return next((path for path in _above(base, key) if os.path.islink(path)), "")


class LinkCheck:
    """``link_on_the_way`` for files that come folder by folder: a folder is looked at once for those of a second."""

    __slots__ = ("_base", "_clock", "_folder", "_found", "_until")

    def __init__(self, base: str, clock: Callable[[], float] = monotonic) -> None:
        """Check what is written below ``base``; ``clock`` tells seconds."""
        self._base, self._clock = base, clock
        self._folder: str | None = None
        self._found, self._until = "", 0.0

    def __call__(self, key: str) -> str:
        """Return the path of a link on the way to ``key``; empty where there is none."""
        folder, now = key.rpartition("/")[0], self._clock()
        if folder != self._folder or now >= self._until:
            self._found = link_on_the_way(self._base, key)
            self._folder, self._until = folder, now + _REMEMBERED_S
        return self._found


def in_the_way(base: str, key: str) -> str:
    """Return the path of what no file ``key`` can be written over: a directory, or a file where one is needed.

    Empty where there is none.
    """
    files = (path for path in _above(base, key) if os.path.lexists(path) and not os.path.isdir(path))
    return next(files, "") or (f"/{key}" if os.path.isdir(f"/{key}") else "")


def clear(path: str) -> None:
    """Remove a directory that holds no file, only directories; any other stays, but for the empty ones in it.

    Nothing is removed through a link.
    """
    for folder, _, _ in () if os.path.islink(path) else os.walk(path, topdown=False):
        with suppress(OSError):
            os.rmdir(folder)


def _above(base: str, key: str) -> Iterator[str]:
    """Yield the paths of the directories below ``base`` that ``key`` lies in."""
    at = len(base) if base.endswith("/") or not base else len(base) + 1
    while at := key.find("/", at) + 1:
        yield f"/{key[: at - 1]}"
