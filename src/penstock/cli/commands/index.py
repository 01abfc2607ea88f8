"""``penstock index``: write the catalog of a prefix, and continue an interrupted run."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option, Typer

import penstock as ps
from penstock.cli.options import JsonOne, Store, with_options, with_store
from penstock.cli.output import counted, readable, write_row
from penstock.errors import Damaged
from penstock.stores.urls import parse

if TYPE_CHECKING:
    from penstock.data.catalog.index import IndexKeywords

__all__ = ["app", "index"]

app = Typer()


def _how(
    *,
    include: Annotated[list[str] | None, Option(metavar="GLOB", help="Only keys below URL like this.")] = None,
    exclude: Annotated[list[str] | None, Option(metavar="GLOB", help="No keys like this.")] = None,
    labels: Annotated[str | None, Option(metavar="folder|PATTERN", help="A class for each object.")] = None,
    restart: Annotated[bool, Option("--restart", help="Forget what an interrupted run has listed.")] = False,
) -> "IndexKeywords":
    return {"include": include or [], "exclude": exclude or [], "labels": labels, "restart": restart}


@app.command(epilog="Example: penstock index s3://bucket/train/ train.catalog")
@with_store
@with_options("how", _how)
def index(
    url: Annotated[str, Argument(metavar="URL", help="A prefix or a bucket.")],
    to: Annotated[str, Argument(metavar="FILE", help="The catalog to write: a path, or an object's URL.")],
    *,
    refresh: Annotated[
        bool, Option("--refresh", help="Read FILE, and list only what sorts after its last key.")
    ] = False,
    json: JsonOne = False,
    how: "IndexKeywords",
    store: Store,
) -> None:
    """List the objects below URL in parallel and write a catalog, which datasets open without listing.

    Repeat an interrupted command to continue its listing. Exit code 1 if there are no objects.
    """
    catalog = _refreshed(url, to, how, store) if refresh else ps.index(url, to, store=store, **how)
    size = catalog.total_bytes
    record = {"url": url, "catalog": to, "objects": len(catalog), "size": None if size < 0 else size}
    much = "" if size < 0 else f", {readable(size)}"
    text = f"{to}: {counted(len(catalog), 'object')}{much}"
    write_row({**record, "digest": catalog.digest}, text, as_json=json)


def _refreshed(url: str, to: str, how: "IndexKeywords", store: Store) -> "ps.Catalog":
    """Bring the catalog in ``to`` up to date; only keys that sort after its last key are listed."""
    its = None if parse(to).local else store
    known = _saved(to, its)
    include, exclude, labels = how.get("include", ()), how.get("exclude", ()), how.get("labels")
    catalog = known.refresh(url, include=include, exclude=exclude, labels=labels, store=store)
    if catalog is not known:
        catalog.save(to, store=its)
    return catalog


def _saved(to: str, store: Store | None) -> "ps.Catalog":
    """Return a saved catalog with the URL where its objects were listed, which ``refresh`` compares."""
    # Imported late: it needs numpy, and the help of all commands does not.
    from penstock.data.catalog.saved import load

    try:
        with ps.open(to, "rb", store=store) as file:
            found = load(file)
    except Damaged as error:
        error.url = parse(to).url
        raise
    return ps.Catalog(found.root, found.base, found.table)
