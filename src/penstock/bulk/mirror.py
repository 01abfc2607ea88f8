"""What ``sync`` stands on: two trees, neither of them in the other, and what may be deleted of the second."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, TypedDict

from penstock.bulk.guard import check_names
from penstock.bulk.plan import Destination, Origin, plan
from penstock.bulk.selection import Selection, elsewhere, local, resolved, sized
from penstock.catalog.select import selector
from penstock.errors import NotFound, Unusable
from penstock.protocols.driver import Delete, Put
from penstock.providers.protected import check_deletable
from penstock.providers.urls import parse
from penstock.source import open_source
from penstock.values import as_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.bulk.plan import Step
    from penstock.options import StoreOptions
    from penstock.source import Source
    from penstock.values import ObjectMeta

__all__ = ["Mirror", "SyncKeywords", "SyncOptions", "opened"]


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """How two trees are made equal.

    Attributes:
        delete: Delete at the destination what the source has not, after everything else, if nothing failed.
        checksum: Compare contents, and never times.
        include: Globs of relative keys: only what one of them matches. Both sides.
        exclude: Globs of relative keys: nothing that one of them matches; what is there of it stays. Both sides.
        dry_run: Change nothing.
        allow_empty: Go on where the source has nothing: with ``delete`` the destination is emptied.
        whole_bucket: Let ``delete`` loose on a whole bucket.

    """

    delete: bool = False
    checksum: bool = False
    include: str | Iterable[str] = ()
    exclude: str | Iterable[str] = ()
    dry_run: bool = False
    allow_empty: bool = False
    whole_bucket: bool = False


class SyncKeywords(TypedDict, total=False):
    """``SyncOptions``, as ``ps.sync`` takes them."""

    delete: bool
    checksum: bool
    include: str | Iterable[str]
    exclude: str | Iterable[str]
    dry_run: bool
    allow_empty: bool
    whole_bucket: bool


@dataclass(frozen=True, slots=True)
class Mirror:
    """Two trees. Keys below ``base`` at the target stand for those below ``prefix`` at the source."""

    source: Source
    prefix: str
    target: Source
    base: str
    chosen: Callable[[str, int], bool]

    @property
    def selection(self) -> Selection:
        """The source, as ``cp`` has it."""
        return Selection(self.source, Origin(self.source.root, self.prefix, "tree"))

    @property
    def one_clock(self) -> bool:
        """Whether both sides are one server's, or this machine's."""
        if local(self.source) or local(self.target):
            return local(self.source) and local(self.target)
        scheme, _, settings, _ = self.source.address("")
        other, _, others, _ = self.target.address("")
        return (scheme, settings) == (other, others)

    def identity(self) -> tuple[int, int] | None:
        """Return what tells a source's directory from another one of its name; None of a store, and of none."""
        if local(self.source):
            with suppress(OSError):
                found = os.stat(f"/{self.prefix}")
                return found.st_dev, found.st_ino
        return None

    def steps(self, *, empty: bool, deleting: bool) -> Iterator[Step]:
        """Return what goes where, or why not, in the order of the keys; the first page is listed at once.

        Raises:
            NotFound: There is nothing that is chosen, and that is not allowed (``empty``).
            Unusable: There is a single object of this name.

        """
        found = self._listed(self.source, self.prefix)
        first = next(found, None)
        if first is None:
            self._check_empty(empty=empty, deleting=deleting)
        origin = Origin(self.source.root, self.prefix, "tree")
        place = Destination(self.target.root, self.base, into=True)
        metas = chain(() if first is None else (first,), found)
        return plan([origin], ((origin, meta) for meta in metas), place)

    def _check_empty(self, *, empty: bool, deleting: bool) -> None:
        name = self.prefix.rstrip("/")
        if name and not local(self.source) and self.source.stat_existing([name])[0] is not None:
            raise Unusable("a single object: penstock cp copies it", url=self.source.url(name))
        if not empty:
            danger = ", and delete would empty the destination" if deleting else ""
            message = f"nothing is there, or chosen{elsewhere(self.source.root)}{danger}"
            remedy = "correct the source, or say --allow-empty (allow_empty=True)"
            raise NotFound(f"{message}: {remedy}", url=self.source.url(self.prefix))

    def existing(self) -> Iterator[ObjectMeta]:
        """Yield what is at the target already, as far as it is chosen."""
        return self._listed(self.target, self.base)

    def deletable(self, meta: ObjectMeta) -> bool:
        """Say whether what the source has not is to be deleted: no marker that a file system has no name for."""
        marker = not meta.size and meta.key.endswith("/")
        return not marker or not (local(self.source) or meta.key == self.base)

    def _listed(self, source: Source, prefix: str) -> Iterator[ObjectMeta]:
        for page in source.pages(prefix):
            chosen = [each for each in page.entries if self.chosen(each.key[len(prefix) :], each.size)]
            yield from sized(source, chosen)


def opened(
    source: str | os.PathLike[str], dest: str | os.PathLike[str], how: SyncOptions, store: StoreOptions | str
) -> Mirror:
    """Return the two trees that two URLs name; no request, but where the source may be a single object.

    Raises:
        ConfigError: A glob is none.
        Unusable: A file where a tree is meant; one tree lies in the other; ``delete`` for a place that is never
            emptied, or for a whole bucket without ``whole_bucket``.
        Unsupported: The destination takes no objects, or deletes none.
        NotFound: The source is a directory that is not there.

    """
    chosen = selector(how.include, how.exclude, markers=True)
    here, prefix = _tree(source, store)
    there, base = _tree(dest, store)
    there.require(Put, base)
    if how.delete:
        there.require(Delete, base)
    _check_source(here, prefix)
    if local(there) and os.path.isfile(f"/{base.rstrip('/')}"):
        raise Unusable("the destination is a file, and should hold several", url=there.url(base))
    mirror = Mirror(here, prefix, there, base, chosen)
    _check_apart(mirror)
    if how.delete:
        if base or local(there):
            check_deletable(parse(there.url(base)))
        elif not how.whole_bucket:
            raise Unusable("delete in a whole bucket? say --whole-bucket (whole_bucket=True)", url=there.root)
    return mirror


def _tree(url: str | os.PathLike[str], store: StoreOptions | str) -> tuple[Source, str]:
    source, key = open_source(url, store)
    if local(source):
        key = resolved(f"{as_folder(key)}.") if key else key  # through links: what is meant lies behind them
    return source, as_folder(key)


def _check_source(source: Source, prefix: str) -> None:
    path = f"/{prefix}"
    if local(source) and not os.path.isdir(path):
        if os.path.isfile(path.rstrip("/")):
            raise Unusable("a single file: penstock cp copies it", url=source.url(prefix.rstrip("/")))
        raise NotFound(f"no such directory{elsewhere(source.root)}", url=source.url(prefix))


def _check_apart(mirror: Mirror) -> None:
    """Refuse trees of which one is the other, or lies in it: by their names, and on this machine by what they are."""
    here, there = mirror.source.url(mirror.prefix), mirror.target.url(mirror.base)
    message = f"source and destination lie in one another: {here} and {there}"
    *where, mine = mirror.source.address(mirror.prefix)
    *place, its = mirror.target.address(mirror.base)
    if where == place and (str(mine).startswith(str(its)) or str(its).startswith(str(mine))):
        raise Unusable(message)
    check_names([(mirror.source, mirror.prefix)], mirror.target, mirror.base)
    if local(mirror.source) and local(mirror.target):
        pair = f"/{mirror.prefix}", f"/{mirror.base}"
        if _above(*pair) or _above(*reversed(pair)):  # two mounts of one directory
            raise Unusable(message)


def _above(folder: str, path: str) -> bool:
    """Say whether a directory is another one, or one above it, that is there."""
    found = os.stat(folder) if os.path.isdir(folder) else None
    while found is not None:
        if os.path.exists(path) and os.path.samestat(os.stat(path), found):
            return True
        parent = os.path.dirname(path.rstrip("/"))
        if parent == path:
            break
        path = parent
    return False
