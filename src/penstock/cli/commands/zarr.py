"""``penstock zarr``: copy an array or group into other chunks, shards and codecs; estimate the cost of an epoch."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

import os
import sys
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option, Typer

import penstock as ps
from penstock.cli.options import JobFolder, JsonOne, OnRay, Part, PartProcesses, Store, in_job, size_bytes, with_store
from penstock.cli.output import INTERRUPTED, aside, json_line, readable, save_page, write, write_row
from penstock.display import counted
from penstock.errors import Unusable

if TYPE_CHECKING:
    from penstock.interop.zarr.documents import ArrayForm
    from penstock.interop.zarr.rechunk import ArrayCopy, Copied, CopyOptions

app = Typer()
zarr = Typer(no_args_is_help=True, help="Plan an epoch on zarr arrays; copy them into other chunks, shards, codecs.")
app.add_typer(zarr, name="zarr")
_FORMAT = 3


@zarr.command(
    epilog="Examples: penstock zarr copy s3://bucket/era5.zarr s3://bucket/train.zarr --chunks time=1 "
    "--shards time=64; penstock zarr copy data.zarr gs://bucket/data.zarr --codec zstd:5 --job gs://bucket/jobs/1 "
    "--part 3/16"
)
@with_store
def copy(
    source: Annotated[str, Argument(metavar="SOURCE", help="An array or a group: s3://bucket/era5.zarr.")],
    dest: Annotated[str, Argument(metavar="DEST", help="Where it goes; nothing may be there.")],
    *,
    job: JobFolder = None,
    part: Part = None,
    ray: OnRay = None,
    processes: PartProcesses = None,
    json: Annotated[bool, Option("--json", help="One JSON object per line, for each array.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Print what would be done, a line for each array.")] = False,
    resume: Annotated[bool, Option("--resume", help="Go on with an unfinished copy, if there is one.")] = False,
    overwrite: Annotated[bool, Option("--overwrite", help="First delete what is at DEST.")] = False,
    chunks: Annotated[
        list[str] | None, Option(metavar="SIZES", help="1,180,360; time=1,lat=all; tas:1,180,360. Default: as is.")
    ] = None,
    shards: Annotated[list[str] | None, Option(metavar="SIZES", help="Likewise; or none. Default: as is.")] = None,
    codec: Annotated[
        str | None, Option(help="zstd, zstd:5, gzip, blosc-lz4, blosc-zstd:3, none. Default: as is.")
    ] = None,
    zarr_format: Annotated[int | None, Option(metavar="3", help="Make format 3 of format 2.")] = None,
    memory: Annotated[str, Option(metavar="SIZE", help="The most memory for data.")] = "1GiB",
    store: Store,
) -> None:
    """Copy a zarr array or group into other chunks, shards and codecs, within a bounded memory.

    Every region is read back and compared bit for bit. The metadata is written last, so no reader sees a part of
    the copy as an array. A copy that was interrupted continues with --resume. With --job, the same command continues,
    and several machines share the work with --part or --ray.
    """
    from penstock.interop.zarr.documents import parse_sizes
    from penstock.interop.zarr.rechunk import CopyOptions

    if zarr_format not in (None, _FORMAT):
        raise Unusable(f"--zarr-format {zarr_format}: only format 2 can be converted, to 3")
    how: dict[str, Any] = {
        "chunks": parse_sizes(chunks or (), "--chunks"),
        "shards": parse_sizes(shards or (), "--shards"),
        "codec": codec,
        "zarr_format": zarr_format,
        "memory_bytes": size_bytes(memory, "--memory"),
        "dry_run": dry_run,
        "resume": resume,
        "overwrite": overwrite,
    }
    parts = in_job(job, part, ray, processes)
    if not parts:
        _copy_here(source, dest, CopyOptions(**how), store, as_json=json)
        return
    from penstock.interop.zarr.parts import copy as copy_in_parts

    with aside(parts.get("on")):
        done = copy_in_parts(source, dest, store=store, **how, **parts)
    show_arrays(done, as_json=json)


def _copy_here(source: str, dest: str, options: "CopyOptions", store: Store, *, as_json: bool) -> None:
    from penstock.interop.zarr.rechunk import CopyRun

    began, run = monotonic(), CopyRun(source, dest, options, store)
    if options.dry_run:
        _print(run.result.arrays, "planned", as_json=as_json)
        return
    try:
        run.execute()
    except KeyboardInterrupt:
        # The interpreter would wait for the threads of executors, which wait for a store that may not answer. Ending
        # now is safe: readers see only whole objects, and the journal is written.
        sys.stderr.flush()
        os._exit(INTERRUPTED)
    if as_json:
        _print(run.result.arrays, "copied", as_json=True)
        return
    done, elapsed_s = run.result, monotonic() - began
    words = [f"copied {counted(len(done.arrays), 'array')}, {readable(done.size_bytes)} decoded, in {elapsed_s:.1f} s"]
    words += ["every region was read back and is equal"] if done.resumed < done.regions else []
    words += [f"{done.resumed:,} of {done.regions:,} regions were done before"] if done.resumed else []
    print("; ".join(words), file=sys.stderr)


def show_arrays(done: "Copied", *, as_json: bool) -> None:
    if as_json:
        _print(done.arrays, "copied" if done.complete else "in parts", as_json=True)
        return
    text = f"{readable(done.size_bytes)} of decoded data copied; every region was verified"
    print(text if done.complete else f"{text}; other parts are left", file=sys.stderr)


def _print(arrays: "tuple[ArrayCopy, ...]", status: str, *, as_json: bool) -> None:
    for each in arrays:
        write_row(_record(each, status), _describe_array(each), as_json=as_json)


def _record(array: "ArrayCopy", status: str) -> dict[str, object]:
    return {
        "array": array.path,
        "shape": array.shape,
        "dtype": array.dtype,
        "chunks": array.after.chunks,
        "shards": array.after.shards,
        "codecs": array.after.codecs,
        "size": array.size_bytes,
        "regions": len(array.regions),
        "reads": array.reads,
        "memory": array.region_bytes,
        "status": status,
    }


def _describe_array(array: "ArrayCopy") -> str:
    shape = "x".join(map(str, array.shape)) or "scalar"
    regions = f"{counted(len(array.regions), 'region')} of {'x'.join(map(str, array.regions.box)) or '1'}"
    cost = f"{regions}, {readable(array.region_bytes)} of memory each, every source object read {array.reads:.3g} times"
    return f"{array.path or '/'} {shape} {array.dtype}: {_layout(array.before)} -> {_layout(array.after)}; {cost}"


def _layout(form: "ArrayForm") -> str:
    shards = f" in shards {'x'.join(map(str, form.shards))}" if form.shards else ""
    return f"chunks {'x'.join(map(str, form.chunks)) or '1'}{shards} {form.codecs}"


@zarr.command(epilog="Example: penstock zarr plan s3://bucket/era5.zarr/t2m --dims time --batch 32 --ranks 4")
@with_store
def plan(
    url: Annotated[str, Argument(metavar="URL", help="An array or a group; several with --along.")],
    *,
    html: Annotated[str | None, Option(metavar="FILE", help="Write a page with the plan, too.")] = None,
    json: JsonOne = False,
    targets: Annotated[str | None, Option(metavar="URL", help="Of targets: an array or a group.")] = None,
    target_offsets: Annotated[str, Option(metavar="NUMBERS", help="Elements of a target.")] = "0",
    along: Annotated[
        str | None, Option(metavar="DIM", help="Join the stores that the * of a quoted URL matches along this: time.")
    ] = None,
    align: Annotated[
        str | None, Option(metavar="WORD", help="Together along --dims are elements of one index, or coordinates.")
    ] = None,
    window: Annotated[str, Option(metavar="SIZE", help="Chunks whose samples are mixed.")] = "256MiB",
    memory: Annotated[str, Option(metavar="SIZE", help="What a process may hold.")] = "1GiB",
    batch: Annotated[int, Option(min=1, help="Samples of a batch, per rank.")] = 32,
    ranks: Annotated[int, Option(min=1, help="Processes that train.")] = 1,
    workers: Annotated[int, Option(min=0, help="Worker processes of each; 0: threads.")] = 0,
    latency: Annotated[float, Option(metavar="MS", min=0, help="To the first byte of an answer.")] = 30.0,
    bandwidth: Annotated[str, Option(metavar="SIZE", help="Per second and rank.")] = "1.25GB",
    threads: Annotated[int, Option(min=1, help="That decode, in each process.")] = 4,
    dims: Annotated[str | None, Option(help="Samples are numbered along these: time,member. Default: first.")] = None,
    offsets: Annotated[str, Option(metavar="NUMBERS", help="Elements of a sample: -1,0; or 0:4.")] = "0",
    stride: Annotated[int | None, Option(min=1, help="From one sample to the next.")] = None,
    patch: Annotated[str | None, Option(metavar="SIZES", help="Of patches: lat=64,lon=64.")] = None,
    halo: Annotated[int, Option(min=0, help="Elements around a patch.")] = 0,
    shuffle: Annotated[bool, Option("--shuffle/--no-shuffle", help="Permute the samples.")] = True,
    store: Store,
) -> None:
    """Estimate an epoch of ps.ZarrDataset: requests, bytes, memory, rate, and possible improvements.

    Reads the metadata and eight chunks.
    """
    dataset = ps.ZarrDataset(
        url,
        targets,
        along=along,
        dims=None if dims is None else dims.split(","),
        offsets=_numbers(offsets, "--offsets"),
        target_offsets=_numbers(target_offsets, "--target-offsets"),
        stride=stride,
        patch=None if patch is None else _sizes(patch, "--patch"),
        halo=halo,
        align=align,  # type: ignore[arg-type]  # the dataset checks it
        shuffle=shuffle,
        window_bytes=size_bytes(window, "--window"),
        memory_bytes=size_bytes(memory, "--memory"),
        store=store,
    )
    bytes_per_s = max(size_bytes(bandwidth, "--bandwidth"), 1)
    found = dataset.plan(
        batch, ranks=ranks, workers=workers, latency_s=latency / 1000, bandwidth=bytes_per_s, threads=threads
    )
    if html is not None:
        save_page(html, found.to_html())
    write((json_line(found.as_record()) if json else repr(found)) + "\n")


def _numbers(text: str, flag: str) -> int | list[int]:
    try:
        if ":" in text:
            start, stop = text.split(":")
            return [*range(int(start), int(stop))]
        found = [int(each) for each in text.split(",")]
    except ValueError:
        raise Unusable(f"{flag} {text}: write a number, several as -1,0, or a range as 0:4") from None
    return found[0] if len(found) == 1 else found


def _sizes(text: str, flag: str) -> dict[str, int]:
    try:
        return {name.strip(): int(size) for name, size in (each.split("=") for each in text.split(","))}
    except ValueError:
        raise Unusable(f"{flag} {text}: write the size along each dimension, as lat=64,lon=64") from None
