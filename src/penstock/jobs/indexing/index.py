"""Catalogs of prefixes, or of the samples in shards, written to a file; an interrupted index can be resumed."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from penstock.data.catalog.catalog import Catalog, make_catalog
from penstock.data.catalog.discovery.journal import journal, shard_journal
from penstock.data.catalog.discovery.scan import ScanOptions, absent, listed
from penstock.data.catalog.discovery.shards import find_shards, read_shard_indexes
from penstock.data.catalog.labels import check_rule
from penstock.data.catalog.saved import is_catalog
from penstock.engine.listing.select import Leftovers, globs
from penstock.errors import AlreadyExists, ConfigError, PenstockError, Unusable
from penstock.progress import tally, totals
from penstock.source import open_source
from penstock.stores.urls import parse
from penstock.values import switch
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from penstock.data.catalog.discovery.journal import Journal, ShardJournal
    from penstock.data.catalog.labels import Rule
    from penstock.data.shards.format import ShardFormat
    from penstock.data.shards.keys import KeyRule, Missing
    from penstock.options import StoreOptions
    from penstock.source import Source
    from penstock.stores.urls import Location

_ARGUMENTS = ("fields", "key", "missing", "skip")
_OF_SHARDS = (*_ARGUMENTS, "index")
_HEAD_BYTES = 64  # of a file that may be a catalog


class IndexKeywords(TypedDict, total=False):
    """Further keyword arguments of ``ps.index``; see there."""

    include: str | Iterable[str]
    exclude: str | Iterable[str]
    labels: Rule | None
    restart: bool
    format: str | ShardFormat | None
    fields: str | Sequence[str] | None
    key: KeyRule | None
    missing: Missing | None
    skip: str | Sequence[str] | None
    index: str | None


def index_here(
    url: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    progress: bool | None = None,
    store: StoreOptions | str | None = None,
    **how: Unpack[IndexKeywords],
) -> Catalog:
    """Do ``ps.index`` in this process; see there.

    Raises:
        NotFound: No object or shard was found; nothing was written.
        Damaged: A shard is not what its format says; the shards before it are kept for the next call.
        Unusable: An object has no label; another process lists into the same file; the disk is full.

    """
    labels = how.get("labels")
    if labels is not None:
        check_rule(labels)
    restart = switch(how.get("restart", False), "restart")
    place = check_target(to, store)
    target = _IndexTarget(
        _partial(place.key, place.url, local=place.local), restart=restart, progress=progress, store=store
    )
    make = _objects if how.get("format") is None else _samples
    with make(url, target, how) as (catalog, kept):
        catalog.save(to, store=None if place.local else store)
        kept.remove()
    return catalog


def check_target(to: str | os.PathLike[str], store: StoreOptions | str | None) -> Location:
    """Return the place of a catalog that is to be written; a HEAD and a GET show whether another file would be lost.

    Raises:
        Unusable: It is a folder.
        AlreadyExists: A file that is no catalog is there.

    """
    place = parse(to)
    if not place.key or place.key.endswith("/"):
        raise Unusable("the catalog is one file: name it", url=place.url)
    head = b""
    # Nothing is there, or reading is not allowed: the write will show.
    with suppress(PenstockError), open_object(to, "rb", store=None if place.local else store) as file:
        head = file.read(_HEAD_BYTES)
    if not is_catalog(head):
        raise AlreadyExists(
            "cannot write the catalog: another file is there, and no catalog; name another", url=place.url
        )
    return place


@dataclass(frozen=True, slots=True)
class _IndexTarget:
    """Journal of an index, and options that objects and shards share."""

    partial: Path
    restart: bool
    progress: bool | None
    store: StoreOptions | str | None


@contextmanager
def _objects(
    url: str | os.PathLike[str], target: _IndexTarget, how: IndexKeywords
) -> Generator[tuple[Catalog, Journal | ShardJournal]]:
    """Yield the catalog of a prefix, and the journal of its listing."""
    if given := [name for name in _OF_SHARDS if how.get(name) is not None]:
        raise Unusable(f"{given[0]}= is for samples inside shards: pass format=, such as format='tar'")
    include, exclude = globs(how.get("include", ())), globs(how.get("exclude", ()))
    labels = how.get("labels")
    source, prefix = open_source(url, target.store)
    about = {"url": source.url(prefix), "store": _identity(source), "include": [*include], "exclude": [*exclude]}
    with journal(target.partial, about, restart=target.restart) as kept:
        with tally(f"listing {source.url(prefix)}", shown=target.progress) as count:
            left = Leftovers(prefix, include)
            what = ScanOptions(include, exclude, progress=totals(count), known=kept, leftovers=left)
            found = listed(source, prefix, what)
        catalog = make_catalog(source.root, *found)
        if not len(catalog):
            kept.remove()
            instead = str(left) if len(left) else ""
            raise absent(source, prefix, os.fspath(url), chosen=bool(include or exclude), instead=instead)
        yield (catalog if labels is None else catalog.with_labels(labels)), kept


@contextmanager
def _samples(
    url: str | os.PathLike[str], target: _IndexTarget, how: IndexKeywords
) -> Generator[tuple[Catalog, Journal | ShardJournal]]:
    """Yield the catalog of the samples in shards, and the journal of its walks."""
    if how.get("include") or how.get("exclude"):
        raise Unusable("include= and exclude= are for objects: pass a glob as the URL of shards")
    arguments = {name: how.get(name) for name in _ARGUMENTS}
    labels = how.get("labels")
    shards = find_shards(url, how.get("format"), arguments, target.store)
    shards = shards.sided(how.get("index"), target.store, labels=labels is not None)
    # Keys of samples are kept only for labels.
    about = {"store": _identity(shards.source), "shards": shards.format.described(), "keys": labels is not None}
    about |= {"side": shards.side}
    with shard_journal(target.partial, about, restart=target.restart) as kept:
        table = read_shard_indexes(shards, labels, progress=target.progress, journal=kept)
        yield make_catalog(shards.source.root, shards.base, table), kept


def _identity(source: Source) -> str:
    # The same URL names different buckets at different endpoints: an index must not resume at another endpoint.
    return hashlib.sha256(repr(source.address("")).encode("utf-8", "surrogatepass")).hexdigest()


def _partial(key: str, url: str, *, local: bool) -> Path:
    if local:
        return Path(f"/{key}.partial")
    cache = os.environ.get("XDG_CACHE_HOME", "")
    try:
        home = Path(cache) if Path(cache).is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        # For example in a container whose user has no entry in /etc/passwd.
        raise ConfigError("no home directory is known for what was listed so far: set XDG_CACHE_HOME") from None
    return home / "penstock" / f"index-{hashlib.sha256(json.dumps(url).encode()).hexdigest()[:32]}.partial"
