"""Catalogs of prefixes, listed and written to a file; an interrupted listing can be resumed."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from penstock.data.catalog.catalog import Catalog
from penstock.data.catalog.journal import journal
from penstock.data.catalog.labels import check_rule
from penstock.data.catalog.scan import Listing, absent, listed
from penstock.engine.listing.select import globs
from penstock.errors import ConfigError, Unusable
from penstock.progress import tally, totals
from penstock.source import open_source
from penstock.stores.urls import parse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.data.catalog.labels import Rule
    from penstock.options import StoreOptions

__all__ = ["IndexKeywords", "index"]


class IndexKeywords(TypedDict, total=False):
    """Further keyword arguments of ``index``; see there."""

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
    """List a prefix as ``Catalog.scan`` does, and save the catalog.

    A listing that was killed or interrupted resumes when it is called again with the same arguments, unless
    ``restart`` is set. The entries found so far are in ``<to>.partial`` or, if ``to`` is not on this machine, in
    ``$XDG_CACHE_HOME/penstock`` (``~/.cache/penstock``); this file is removed once the catalog is saved. Objects that
    were written or deleted since the listing began may or may not be in the catalog.

    Args:
        url: The prefix.
        to: The file to write, in a store or on this machine.
        progress: As for ``Catalog.scan``.
        store: Options of the store that holds ``url`` and ``to``; not used for a local ``to``.
        how: ``include``, ``exclude`` and ``labels`` as for ``Catalog.scan``; ``restart`` lists from the beginning.

    Returns:
        The catalog.

    Raises:
        NotFound: No object was found; nothing was written.
        Unusable: An object has no label; another process lists into the same file; the disk is full.

    Example:
        >>> catalog = ps.index("s3://bucket/train/", "train.catalog", labels="folder")
        >>> len(catalog), catalog.classes[:3]
        (600, ('0', '1', '2'))
        >>> len(ps.Catalog.open("train.catalog", root="s3://bucket/train/"))
        600

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
    # The same URL names different buckets at different endpoints: a listing must not resume at another endpoint.
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
    except RuntimeError:
        # For example in a container whose user has no entry in /etc/passwd.
        raise ConfigError("no home directory is known for what was listed so far: set XDG_CACHE_HOME") from None
    return home / "penstock" / f"index-{hashlib.sha256(json.dumps(url).encode()).hexdigest()[:32]}.partial"
