"""``penstock index``: write the catalog of a prefix, and continue an interrupted run."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import penstock as ps
from penstock.cli.exits import write
from penstock.cli.text import harmless, readable
from penstock.data.catalog.storage.saved import load
from penstock.errors import Damaged
from penstock.stores.urls import parse

if TYPE_CHECKING:
    from penstock.data.catalog.index import IndexKeywords
    from penstock.options import StoreOptions

__all__ = ["index"]


def index(
    url: str, to: str, how: IndexKeywords, store: StoreOptions | str, *, refresh: bool = False, as_json: bool = False
) -> None:
    """Write the catalog of ``url`` to ``to`` as ``ps.index`` does, and print a summary.

    ``refresh`` reads the existing catalog and lists only the keys that sort after its last key.

    Raises:
        NotFound: No object exists; with ``refresh``, the catalog does not exist.
        Unusable: With ``refresh``, the catalog is not of ``url``.
        PenstockError: Errors of ``ps.index``.

    """
    if refresh:
        its = None if parse(to).local else store
        known = _saved(to, its)
        include, exclude, labels = how.get("include", ()), how.get("exclude", ()), how.get("labels")
        catalog = known.refresh(url, include=include, exclude=exclude, labels=labels, store=store)
        if catalog is not known:
            catalog.save(to, store=its)
    else:
        catalog = ps.index(url, to, store=store, **how)
    size = catalog.total_bytes
    if as_json:
        told = {"url": url, "catalog": os.fspath(to), "objects": len(catalog), "size": None if size < 0 else size}
        write(json.dumps({**told, "digest": catalog.digest}) + "\n")
    else:
        much = "" if size < 0 else f", {readable(size)}"
        write(harmless(f"{to}: {len(catalog):,} object{'s' * (len(catalog) != 1)}{much}") + "\n")


def _saved(to: str, store: StoreOptions | str | None) -> ps.Catalog:
    """Return a saved catalog with the URL where its objects were listed, which ``refresh`` compares."""
    try:
        with ps.open(to, "rb", store=store) as file:
            found = load(file)
    except Damaged as error:
        error.url = parse(to).url
        raise
    return ps.Catalog(found.root, found.base, found.table)
