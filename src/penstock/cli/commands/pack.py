"""``penstock pack``: write objects into shards with their catalog."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

from typing import Annotated, Any

from typer import Argument, BadParameter, Option, Typer

import penstock as ps
from penstock.cli.commands.index import show_index
from penstock.cli.options import (
    Exclude,
    IncludeSource,
    JobFolder,
    JsonOne,
    OnRay,
    Part,
    PartProcesses,
    Store,
    in_job,
    size_bytes,
    with_store,
)
from penstock.cli.output import aside, readable, write_row
from penstock.display import counted

app = Typer()


def _pair(text: str) -> tuple[str, str]:
    name, equals, encoding = (each.strip() for each in text.partition("="))
    if not (name and equals and encoding):
        raise BadParameter(f"{text!r} must be a name and an encoding, such as cls=int", param_hint="--columns")
    return name, encoding


@app.command(epilog="Example: penstock pack s3://bucket/train/ s3://bucket/packed/ --samples 1000")
@with_store
def pack(
    source: Annotated[str, Argument(metavar="SOURCE", help="A prefix, or a directory.")],
    dest: Annotated[str, Argument(metavar="DEST", help="Prefix or directory for the shards.")],
    *,
    job: JobFolder = None,
    part: Part = None,
    ray: OnRay = None,
    processes: PartProcesses = None,
    json: JsonOne = False,
    kind: Annotated[str, Option("--format", metavar="tar|zip|parquet|mds", help="Format of the shards.")] = "tar",
    columns: Annotated[
        str | None, Option(metavar="NAMES", help="Columns of MDS with their encodings, as jpg=jpeg,cls=int.")
    ] = None,
    include: IncludeSource = None,
    exclude: Exclude = None,
    samples: Annotated[int | None, Option(metavar="N", min=1, help="Most samples of a shard.")] = None,
    most: Annotated[
        str | None, Option("--bytes", metavar="SIZE", help="Most bytes of a shard. Default: 256MiB, without --samples.")
    ] = None,
    key: Annotated[
        str, Option(metavar="RULE", help="first-dot, last-dot, or a regular expression: what forms a sample.")
    ] = "first-dot",
    overwrite: Annotated[bool, Option("--overwrite", help="Replace other shards at DEST.")] = False,
    verify: Annotated[bool, Option("--verify/--no-verify", help="Read each shard back and compare it.")] = True,
    store: Store,
) -> None:
    """Write the objects below SOURCE into shards at DEST, with their catalog, index.catalog.

    Objects with the same name up to the first dot form one sample. Each shard appears in one step, and is read back.
    Repeat an interrupted command to continue it. Exit code 1 if there are no objects.
    """
    parts = in_job(job, part, ray, processes)
    how: dict[str, Any] = {
        "columns": None if columns is None else dict(_pair(each) for each in columns.split(",")),
        "include": include or [],
        "exclude": exclude or [],
        "samples": samples,
        "bytes": None if most is None else size_bytes(most, "--bytes"),
    }
    with aside(parts.get("on")):
        catalog = ps.pack(
            source, dest, format=kind, key=key, overwrite=overwrite, verify=verify, store=store, **how, **parts
        )
    if catalog is None:
        show_index(None, as_json=json)
        return
    shards = len({span.key for span in catalog.spans(range(len(catalog)))})
    size = catalog.total_bytes
    text = f"{dest}: {counted(len(catalog), 'sample')} in {counted(shards, 'shard')}, {readable(size)}"
    record = {"catalog": f"{dest.rstrip('/')}/index.catalog", "samples": len(catalog), "shards": shards, "size": size}
    write_row(record | {"digest": catalog.digest}, text, as_json=json)
