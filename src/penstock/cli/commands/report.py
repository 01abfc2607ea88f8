"""``penstock report``: join the reports of a training's ranks."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

from typing import Annotated

from typer import Argument, Option, Typer

import penstock as ps
from penstock.cli.options import JsonOne, Store, with_store
from penstock.cli.output import harmless_lines, write

app = Typer()


@app.command(epilog="Example: penstock report 's3://bucket/run/report-*.json'")
@with_store
def report(
    urls: Annotated[list[str], Argument(metavar="URL...", help="Objects, files or globs.")],
    *,
    json: JsonOne = False,
    html: Annotated[bool, Option("--html", help="One page, for a browser.")] = False,
    store: Store,
) -> None:
    """Join the reports that the ranks of a training have saved, and name the rank that waited longest."""
    found = ps.observe.merge_reports(urls, store=store)
    write((found.json() + "\n") if json else found.html() if html else harmless_lines(str(found)) + "\n")
