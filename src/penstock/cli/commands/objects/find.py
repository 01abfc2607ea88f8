"""``penstock find``: objects by name, size and age."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

from typing import Annotated

from typer import Argument, Option, Typer

import penstock as ps
from penstock.cli.commands.objects.ls import choose_format, make_empty_error
from penstock.cli.options import JsonUrls, Long, Store, seconds, size_bytes, with_store
from penstock.cli.output import write
from penstock.errors import NotFound

app = Typer()


@app.command(epilog="Example: penstock find --name '*.tmp' --older 7d s3://bucket/runs")
@with_store
def find(
    url: Annotated[str, Argument(metavar="URL", help="A directory, a prefix or a bucket.")],
    *,
    kind: Annotated[str, Option("--type", metavar="object|marker|folder", help="What to find.")] = "object",
    long: Long = False,
    json: JsonUrls = False,
    name: Annotated[list[str] | None, Option(metavar="GLOB", help="Of the last component of a key.")] = None,
    path: Annotated[list[str] | None, Option(metavar="GLOB", help="Of the key below URL; ** crosses /.")] = None,
    larger: Annotated[str | None, Option(metavar="SIZE", help="At least so large: 10k, 4MiB.")] = None,
    smaller: Annotated[str | None, Option(metavar="SIZE", help="At most so large.")] = None,
    newer: Annotated[str | None, Option(metavar="TIME", help="Changed within this time: 90, 15m, 7d.")] = None,
    older: Annotated[str | None, Option(metavar="TIME", help="Changed before that.")] = None,
    store: Store,
) -> None:
    """Find objects below URL by name, size and age, one per line. Exit code 1 if there are none."""
    line, found = choose_format(long=long, json=json), False
    matches = ps.find(
        url,
        name=name or (),
        path=path or (),
        larger_bytes=None if larger is None else size_bytes(larger, "--larger"),
        smaller_bytes=None if smaller is None else size_bytes(smaller, "--smaller"),
        newer_s=None if newer is None else seconds(newer, "--newer"),
        older_s=None if older is None else seconds(older, "--older"),
        kind=kind,  # type: ignore[arg-type]  # ps.find validates it
        store=store,
    )
    for meta in matches:
        write(line(meta.url, meta) + "\n")
        found = True
    if not found:
        if name or path or any(each is not None for each in (larger, smaller, newer, older)):
            raise NotFound("no object there has the name, size and age that are asked for", url=url)
        raise make_empty_error(url)
