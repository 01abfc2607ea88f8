"""Writes the catalog of a prefix to a file, and goes on with a listing that was interrupted."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from penstock.catalog.catalog import Catalog
from penstock.catalog.labels import check_rule
from penstock.catalog.scanning.journal import journal
from penstock.catalog.scanning.nearest import absent
from penstock.catalog.scanning.scan import Listing, listed
from penstock.catalog.select import globs
from penstock.errors import ConfigError, Unusable
from penstock.progress import tally, totals
from penstock.providers.urls import parse
from penstock.source import open_source

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.catalog.labels import Rule
    from penstock.options import StoreOptions

__all__ = ["IndexKeywords", "index"]


class IndexKeywords(TypedDict, total=False):
    """What ``index`` takes besides; see there."""

    include: str | Iterable[str]
    exclude: str | Iterable[str]
    labels: Rule | None
    restart: bool


def index(
    url: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    progress: bool | None = None,
    store: StoreOptions | str | None = None,
    **how: Unpack[IndexKeywords],
) -> Catalog:
    """List a prefix as ``Catalog.scan`` does, and save the catalog; returns it.

    A listing that was killed or interrupted goes on where it was when it is asked for again with the same arguments,
    unless ``restart`` is set: what was found so far lies in ``<to>.partial``, or, where ``to`` is not on this machine,
    in ``$XDG_CACHE_HOME/penstock`` (``~/.cache/penstock``), and is removed once the catalog is saved. Objects that were
    written or deleted since it began are in the catalog or not.

    Args:
        url: The prefix.
        to: The file to write, in a store or on this machine.
        progress: As for ``Catalog.scan``.
        store: Options of the store that both lie in; a local ``to`` takes none.
        how: ``include``, ``exclude`` and ``labels`` as for ``Catalog.scan``; ``restart`` lists from the beginning.

    Raises:
        NotFound: Nothing is there; nothing was written.
        Unusable: An object has no label; another process lists into the same file; the disk is full.

    """
    for each in how.keys() - IndexKeywords.__annotations__.keys():
        raise TypeError(f"index() got an unexpected keyword argument {each!r}")
    include, exclude = globs(how.get("include", ())), globs(how.get("exclude", ()))
    labels = how.get("labels")
    if labels is not None:
        check_rule(labels)
    restart = how.get("restart", False)
    if not isinstance(restart, bool):
        raise ConfigError(f"restart is True or False, not {restart!r}")
    source, prefix = open_source(url, store)
    place = parse(to)
    if not place.key or place.key.endswith("/"):
        raise Unusable("the catalog is one file: name it", url=place.url)
    # One URL names other buckets at other endpoints: a listing of one is not continued at the other.
    store_id = hashlib.sha256(repr(source.address("")).encode("utf-8", "surrogatepass")).hexdigest()
    about = {"url": source.url(prefix), "store": store_id, "include": [*include], "exclude": [*exclude]}
    with journal(_partial(place.key, place.url, local=place.local), about, restart=restart) as kept:
        with tally(f"listing {source.url(prefix)}", shown=progress) as count:
            found = listed(source, prefix, Listing(include, exclude, progress=totals(count), known=kept))
        catalog = Catalog(source.root, *found)
        if not len(catalog):
            kept.remove()
            raise absent(source, prefix, os.fspath(url), chosen=bool(include or exclude))
        catalog = catalog if labels is None else catalog.with_labels(labels)
        catalog.save(to, store=None if place.local else store)
        kept.remove()
    return catalog


def _partial(key: str, url: str, *, local: bool) -> Path:
    if local:
        return Path(f"/{key}.partial")
    cache = os.environ.get("XDG_CACHE_HOME", "")
    try:
        home = Path(cache) if Path(cache).is_absolute() else Path.home() / ".cache"
    except RuntimeError:  # a container whose user has no entry in /etc/passwd
        raise ConfigError("no home directory is known for what was listed so far: set XDG_CACHE_HOME") from None
    return home / "penstock" / f"index-{hashlib.sha256(json.dumps(url).encode()).hexdigest()[:32]}.partial"
