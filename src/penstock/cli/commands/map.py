"""``penstock map``: call a function for each sample of a source, and write what it returns into shards."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

from dataclasses import asdict
from typing import Annotated, Any

from typer import Argument, Option, Typer

import penstock as ps
from penstock.cli.options import (
    JobFolder,
    JsonOne,
    OnRay,
    Part,
    PartProcesses,
    Store,
    import_function,
    in_job,
    size_bytes,
    with_store,
)
from penstock.cli.output import aside, readable, write_row
from penstock.display import counted

app = Typer()


@app.command(
    name="map",
    epilog="Example: penstock map 's3://raw/web/*.jsonl.zst' tokenise:Tokenise s3://bucket/tokens/ --format tokens "
    "--dtype uint16 --processes 16",
)
@with_store
def map_samples(
    source: Annotated[str, Argument(metavar="SOURCE", help="A prefix, a glob in quotes, or a pattern {000..127}.")],
    function: Annotated[str, Argument(metavar="MODULE:NAME", help="The function, or a class to make in each process.")],
    dest: Annotated[str, Argument(metavar="DEST", help="Prefix or directory for the shards.")],
    *,
    kind: Annotated[str, Option("--format", metavar="tokens|jsonl|tar|parquet|mds", help="Format of the shards.")],
    dtype: Annotated[str | None, Option(metavar="TYPE", help="Type of tokens. Default: int32.")] = None,
    job: JobFolder = None,
    part: Part = None,
    ray: OnRay = None,
    processes: PartProcesses = None,
    json: JsonOne = False,
    batch: Annotated[int | None, Option(metavar="N", min=1, help="Samples in a list that the function gets.")] = None,
    fields: Annotated[str | None, Option(metavar="NAMES", help="Fields of the source, as text,url.")] = None,
    version: Annotated[
        str | None, Option(metavar="TEXT", help="Version of the function. Default: by its source text.")
    ] = None,
    seed: Annotated[int | None, Option(metavar="N", min=0, help="The function gets a generator of this seed.")] = None,
    skip: Annotated[
        bool, Option("--skip", help="Leave samples out for which the function raises: a tenth of a part at most.")
    ] = False,
    most: Annotated[str, Option("--part-bytes", metavar="SIZE", help="Most bytes of the source in a part.")] = "256MiB",
    store: Store,
) -> None:
    """Call a function for each sample of SOURCE, and write what it returns into shards at DEST.

    The module is found as by python -m: in the current directory, or installed. Repeat an interrupted command to
    continue it; several machines share the parts with --part. Exit code 1 if there is nothing to map.
    """
    how: dict[str, Any] = {
        "dtype": dtype,
        "batch": batch,
        "fields": () if fields is None else tuple(each.strip() for each in fields.split(",")),
        "version": version,
        "seed": seed,
        "on_error": "skip" if skip else "raise",
        "part_bytes": size_bytes(most, "--part-bytes"),
    }
    parts = in_job(job, part, ray, processes)
    with aside(parts.get("on")):
        done = ps.map(source, import_function(function), dest, format=kind, store=store, **how, **parts)  # type: ignore[arg-type]
    text = f"{dest}: {counted(done.outputs, 'output')} of {counted(done.samples, 'sample')} in "
    text += f"{counted(done.shards, 'shard')}, {readable(done.shard_bytes)}"
    counts = {"tokens": done.tokens, "left out": done.left_out, "skipped": done.skipped}
    text += "".join(f", {number:,} {name}" for name, number in counts.items() if number)
    write_row(asdict(done), text + ("" if done.complete else "; other parts are left"), as_json=json)
