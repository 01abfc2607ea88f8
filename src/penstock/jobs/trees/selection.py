"""Interpretation of command-line arguments in a store: objects, trees, globs, and the destination of a copy."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import TYPE_CHECKING

from penstock.data.catalog.discovery.links import left_out as below
from penstock.engine.listing.select import fixed_part, selector
from penstock.errors import Denied, NotFound, Unusable
from penstock.jobs.trees.plan import Destination, Origin
from penstock.source import Source, open_source
from penstock.stores.urls import LOCAL_ROOT
from penstock.values import UNKNOWN_SIZE, ObjectMeta, as_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.options import StoreOptions

_WILD = "*?["


@dataclass(frozen=True, slots=True)
class Selection:
    """Resolved SOURCE: its store, its interpretation and, for one object, its metadata."""

    source: Source
    origin: Origin
    meta: ObjectMeta | None = None

    def entries(self) -> Iterator[ObjectMeta]:
        """Return the objects in key order; one request for each 1,000, the first one before this returns."""
        if self.meta is not None:
            return iter((self.meta,))
        found = self._listed()
        first = next(found, None)
        if first is None:
            raise NotFound("no object matches", url=self.source.url(self.origin.prefix + self.origin.glob))
        return chain((first,), found)

    def _listed(self) -> Iterator[ObjectMeta]:
        prefix, glob = self.origin.prefix, self.origin.glob
        chosen = selector(glob or (), markers=not glob)
        for page in self.source.pages(prefix + fixed_part(glob)[0]):
            yield from stat_unsized(
                self.source, [each for each in page.entries if chosen(each.key[len(prefix) :], each.size)]
            )


def require(url: str, store: StoreOptions | str, verb: Callable[..., object]) -> None:
    """Raise ``Unsupported`` with ``url`` if its store lacks a verb of ``engine.contracts.driver``; no request."""
    source, key = open_source(url, store)
    source.require(verb, key)


def stat_unsized(source: Source, entries: Sequence[ObjectMeta]) -> Sequence[ObjectMeta]:
    """Return listed objects, with a HEAD for each of unknown size; objects that no longer exist are left out."""
    missing = [each.key for each in entries if each.size == UNKNOWN_SIZE]
    if not missing:
        return entries
    told = dict(zip(missing, source.stat_existing(missing), strict=True))
    return [found for each in entries if (found := told.get(each.key, each)) is not None]


def select(url: str, store: StoreOptions | str, *, recursive: bool) -> Selection:
    """Resolve ``url``: an object of just this name, else a glob, else (``recursive``) a tree; two requests at most."""
    source, key = open_source(url, store)
    key = resolve_local_key(key) if local(source) else key
    tree = Selection(source, _tree(source, key))
    if recursive and tree.origin.prefix == key:
        return tree
    meta = _head(source, key)
    if meta is None and not set(_WILD).isdisjoint(key):
        return Selection(source, _glob(source, key))
    if (meta is None or recursive) and _has_entries(source, tree.origin.prefix):
        return _the_one(tree, meta, recursive=recursive)
    if meta is None:
        raise NotFound(f"no object or folder has this URL{elsewhere(source.root)}", url=source.url(key))
    return Selection(source, Origin(source.root, key, "object"), meta)


def check_recursive(selected: Selection) -> None:
    """Refuse a glob without ``**`` for ``-r``: a shell would match directories, too, and this leaves them out."""
    origin = selected.origin
    if origin.kind == "glob" and "**" not in origin.glob:
        advice = "leave out -r, write ** where it has to cross a /, or end the name of a tree with /"
        url = selected.source.url(f"{origin.prefix}{origin.glob}")
        raise Unusable(f"-r needs a tree, but a glob matches objects: {advice}", url=url)


def select_objects(url: str, store: StoreOptions | str) -> Selection:
    """Resolve ``url`` to an object of exactly this name, else to a glob; trees are not considered. One request."""
    source, key = open_source(url, store)
    if not key:
        raise Unusable("this names a bucket, not an object in it", url=source.root)
    key = resolve_local_key(key) if local(source) else key
    try:
        return Selection(source, Origin(source.root, key, "object"), source.head(key))
    except NotFound:
        if set(_WILD).isdisjoint(key):
            raise
        return Selection(source, _glob(source, key))


def destination(url: str, store: StoreOptions | str, origins: Sequence[Origin]) -> tuple[Source, Destination]:
    """Resolve DEST for these sources; one request, unless it is on this machine.

    DEST is a folder if it ends in ``/`` or is a whole bucket, or if there are several sources or a glob. Otherwise it
    is the new name. Refuses a DEST that exists as something else.
    """
    source, key = open_source(url, store)
    key = resolve_local_key(key) if local(source) else key
    several = len(origins) > 1 or origins[0].kind == "glob"
    into = several or not key or key.endswith("/")
    base = as_folder(key) if into else key
    _check_destination(source, base, tree=into or origins[0].kind == "tree")
    return source, Destination(source.root, base, into)


def local(source: Source) -> bool:
    return source.root == LOCAL_ROOT


def left_out(selected: Selection, holds: Callable[[str], bool] = lambda _name: True) -> Iterator[tuple[str, str]]:
    """Yield path and kind of entries of a local tree except objects; ``holds`` chooses names, ``dir/`` or file."""
    if selected.origin.kind == "tree" and local(selected.source):
        yield from below(f"/{selected.origin.prefix}", holds)


def elsewhere(url: str) -> str:
    """Return a hint on schemes for the URL of a local path without objects; empty for any other URL."""
    return "; a path without s3:// is local" if url.startswith("file:") else ""


def _head(source: Source, key: str) -> ObjectMeta | None:
    if not key or (local(source) and key.endswith("/")):
        return None
    try:
        return source.head(key)
    except NotFound:
        return None


def _tree(source: Source, key: str) -> Origin:
    if not key or key.endswith("/"):
        return Origin(source.root, key, "tree")
    name = key.rpartition("/")[2]
    prefix = resolve_local_key(f"{key}/") if local(source) else f"{key}/"
    return Origin(source.root, prefix, "tree", lead=f"{name}/")


def _glob(source: Source, key: str) -> Origin:
    folders = takewhile(set(_WILD).isdisjoint, key.split("/")[:-1])
    prefix = "".join(f"{each}/" for each in folders)
    return Origin(source.root, prefix, "glob", glob=key[len(prefix) :])


def _the_one(tree: Selection, meta: ObjectMeta | None, *, recursive: bool) -> Selection:
    url = tree.source.url(tree.origin.prefix)
    if meta is not None:
        raise Unusable(f"both an object and a prefix: write {url} for the tree, or leave out -r for the object")
    if not recursive:
        raise Unusable("this is a whole tree: pass -r for all objects below", url=url)
    return tree


def _has_entries(source: Source, prefix: str) -> bool:
    return os.path.isdir(f"/{prefix}") if local(source) else bool(source.page(prefix).entries)


def _check_destination(source: Source, base: str, *, tree: bool) -> None:
    """Refuse a destination of the wrong kind; a bucket that does not exist is reported here, once."""
    if local(source):
        there = f"/{base}"
        if tree and os.path.isfile(there):
            raise Unusable("the destination is a file: name a directory or prefix", url=source.url(base))
        under = os.path.isdir(there)
    else:
        under = False
        # Permission to write does not imply permission to list.
        with suppress(Denied):
            under = bool(source.page(as_folder(base)).entries)
    if under and not tree:
        name = source.url(base)
        raise Unusable(f"{name} is a {'directory' if local(source) else 'prefix'}: write {name}/ to copy into it")


def resolve_local_key(key: str) -> str:
    """Return a local key with ``.``, ``..`` and links resolved, except for a link as its last component."""
    folder, _, name = key.rpartition("/")
    if name in ("", ".", ".."):
        whole = os.path.realpath(f"/{key}").strip("/")
        return f"{whole}/" if whole else ""
    folder = os.path.realpath(f"/{folder}").strip("/")
    return f"{folder}/{name}" if folder else name


def tree(url: str | os.PathLike[str], store: StoreOptions | str) -> tuple[Source, str]:
    """Return the store and the prefix of a tree; links on this machine are resolved."""
    source, key = open_source(url, store)
    if local(source):
        # Resolve links: the tree is at the target of a link.
        key = resolve_local_key(f"{as_folder(key)}.") if key else key
    return source, as_folder(key)


def in_range(source: Source, prefix: str, after: str, until: str | None) -> Iterator[Sequence[ObjectMeta]]:
    """Yield pages of the objects below a prefix whose names are after ``after``, and not after ``until``."""
    start = prefix + after if after else ""
    stop = None if until is None else encode_key(prefix + until)
    for page in source.pages(prefix, start_after=start):
        entries = page.entries
        if stop is not None and entries and encode_key(entries[-1].key) > stop:
            yield [each for each in entries if encode_key(each.key) <= stop]
            return
        yield entries


def encode_key(key: str) -> bytes:
    """Return the sort key of listings."""
    return key.encode("utf-8", "surrogateescape")
