"""Commands on zarr arrays for typer: names, options, and help with an example."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

from typing import TYPE_CHECKING, Annotated, Any

import penstock as ps
from penstock.cli.commands import zarr as arrays
from penstock.cli.store import with_options, with_store
from penstock.cli.units import size_bytes
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Callable

    import typer

__all__ = ["COMMANDS"]

_FORMAT = 3


def zarr(app: "typer.Typer") -> None:
    """Add ``zarr`` with its subcommands."""
    import typer

    group = typer.Typer(
        no_args_is_help=True, help="Plan an epoch on zarr arrays; copy them into other chunks, shards, codecs."
    )
    _copy(group)
    _plan(group)
    app.add_typer(group, name="zarr")


def _with_form(command: "Callable[..., None]") -> "Callable[..., None]":
    """Add the options of the array layout in objects to ``command``, which receives them as the keyword ``form``."""
    from typer import Option

    def form(
        *,
        chunks: Annotated[
            list[str] | None, Option(metavar="SIZES", help="1,180,360; time=1,lat=all; tas:1,180,360. Default: as is.")
        ] = None,
        shards: Annotated[list[str] | None, Option(metavar="SIZES", help="Likewise; or none. Default: as is.")] = None,
        codec: Annotated[
            str | None, Option(help="zstd, zstd:5, gzip, blosc-lz4, blosc-zstd:3, none. Default: as is.")
        ] = None,
        zarr_format: Annotated[int | None, Option(metavar="3", help="Make format 3 of format 2.")] = None,
        memory: Annotated[str, Option(metavar="SIZE", help="The most memory for data.")] = "1GiB",
    ) -> dict[str, Any]:
        from penstock.interop.zarr.documents import parsed

        if zarr_format not in (None, _FORMAT):
            raise Unusable(f"--zarr-format {zarr_format}: only 3 can be made, of format 2")
        return {
            "chunks": parsed(chunks or (), "--chunks"),
            "shards": parsed(shards or (), "--shards"),
            "codec": codec,
            "zarr_format": zarr_format,
            "memory_bytes": size_bytes(memory, "--memory"),
        }

    return with_options("form", form)(command)


def _with_manner(command: "Callable[..., None]") -> "Callable[..., None]":
    """Add the options for an existing destination to ``command``, which receives them as the keyword ``manner``."""
    from typer import Option

    def manner(
        *,
        dry_run: Annotated[bool, Option("--dry-run", help="Print what would be done, a line for each array.")] = False,
        resume: Annotated[bool, Option("--resume", help="Go on with an unfinished copy, if there is one.")] = False,
        overwrite: Annotated[bool, Option("--overwrite", help="First delete what is at DEST.")] = False,
    ) -> dict[str, Any]:
        return {"dry_run": dry_run, "resume": resume, "overwrite": overwrite}

    return with_options("manner", manner)(command)


def _copy(group: "typer.Typer") -> None:
    import typer

    @group.command(
        epilog="Examples: penstock zarr copy s3://bucket/era5.zarr s3://bucket/train.zarr --chunks time=1 "
        "--shards time=64; penstock zarr copy data.zarr gs://bucket/data.zarr --codec zstd:5"
    )
    @with_store
    @_with_form
    @_with_manner
    def copy(
        source: Annotated[str, typer.Argument(metavar="SOURCE", help="An array or a group: s3://bucket/era5.zarr.")],
        dest: Annotated[str, typer.Argument(metavar="DEST", help="Where it goes; nothing may be there.")],
        *,
        json: Annotated[bool, typer.Option("--json", help="One JSON object per line, for each array.")] = False,
        manner: dict[str, Any],
        form: dict[str, Any],
        store: ps.StoreOptions | str,
    ) -> None:
        """Copy a zarr array or group into other chunks, shards and codecs, within a bounded memory.

        Every region is read back and compared bit for bit. The metadata is written last, so no reader sees a part of
        the copy as an array. A copy that was interrupted goes on with --resume.
        """
        from penstock.interop.zarr import Store  # noqa: F401  MissingExtra, in one line
        from penstock.interop.zarr.rechunk import CopyOptions

        arrays.copy(source, dest, CopyOptions(**form, **manner), store, as_json=json)


def _with_samples(command: "Callable[..., None]") -> "Callable[..., None]":
    """Add the options of a sample to ``command``, as the keyword ``samples``: arguments of ``ps.ZarrDataset``."""
    from typer import Option

    def samples(
        *,
        dims: Annotated[
            str | None, Option(help="Samples are numbered along these: time,member. Default: first.")
        ] = None,
        offsets: Annotated[str, Option(metavar="NUMBERS", help="Elements of a sample: -1,0; or 0:4.")] = "0",
        stride: Annotated[int | None, Option(min=1, help="From one sample to the next.")] = None,
        patch: Annotated[str | None, Option(metavar="SIZES", help="Of patches: lat=64,lon=64.")] = None,
        halo: Annotated[int, Option(min=0, help="Elements around a patch.")] = 0,
        shuffle: Annotated[bool, Option("--shuffle/--no-shuffle", help="Permute the samples.")] = True,
    ) -> dict[str, Any]:
        return {
            "dims": None if dims is None else dims.split(","),
            "offsets": _numbers(offsets, "--offsets"),
            "stride": stride,
            "patch": None if patch is None else _sizes(patch, "--patch"),
            "halo": halo,
            "shuffle": shuffle,
        }

    return with_options("samples", samples)(command)


def _with_rest(command: "Callable[..., None]") -> "Callable[..., None]":
    """Add the other arguments of ``ps.ZarrDataset``, targets and memory, to ``command`` as the keyword ``rest``."""
    from typer import Option

    def rest(
        *,
        targets: Annotated[str | None, Option(metavar="URL", help="Of targets: an array or a group.")] = None,
        target_offsets: Annotated[str, Option(metavar="NUMBERS", help="Elements of a target.")] = "0",
        align: Annotated[
            str | None,
            Option(metavar="WORD", help="Together along --dims are elements of one index, or coordinates."),
        ] = None,
        window: Annotated[str, Option(metavar="SIZE", help="Chunks whose samples are mixed.")] = "256MiB",
        memory: Annotated[str, Option(metavar="SIZE", help="What a process may hold.")] = "1GiB",
    ) -> dict[str, Any]:
        return {
            "targets": targets,
            "target_offsets": _numbers(target_offsets, "--target-offsets"),
            "align": align,
            "window_bytes": size_bytes(window, "--window"),
            "memory_bytes": size_bytes(memory, "--memory"),
        }

    return with_options("rest", rest)(command)


def _with_output(command: "Callable[..., None]") -> "Callable[..., None]":
    """Add the output options of a plan, a page and JSON, to ``command`` as the keyword ``output``."""
    from typer import Option

    def output(
        *,
        html: Annotated[str | None, Option(metavar="FILE", help="Write a page with the plan, too.")] = None,
        json: Annotated[bool, Option("--json", help="One JSON object.")] = False,
    ) -> tuple[str | None, bool]:
        return html, json

    return with_options("output", output)(command)


def _with_setting(command: "Callable[..., None]") -> "Callable[..., None]":
    """Add the settings of a training to ``command``, which receives the arguments of ``plan`` as ``setting``."""
    from typer import Option

    def setting(
        *,
        batch: Annotated[int, Option(min=1, help="Samples of a batch, per rank.")] = 32,
        ranks: Annotated[int, Option(min=1, help="Processes that train.")] = 1,
        workers: Annotated[int, Option(min=0, help="Worker processes of each; 0: threads.")] = 0,
        latency: Annotated[float, Option(metavar="MS", min=0, help="To the first byte of an answer.")] = 30.0,
        bandwidth: Annotated[str, Option(metavar="SIZE", help="Per second and rank.")] = "1.25GB",
        threads: Annotated[int, Option(min=1, help="That decode, in each process.")] = 4,
    ) -> dict[str, Any]:
        return {
            "batch_size": batch,
            "ranks": ranks,
            "workers": workers,
            "latency_s": latency / 1000,
            "bandwidth": max(size_bytes(bandwidth, "--bandwidth"), 1),
            "threads": threads,
        }

    return with_options("setting", setting)(command)


def _plan(group: "typer.Typer") -> None:
    import typer

    @group.command(epilog="Example: penstock zarr plan s3://bucket/era5.zarr/t2m --dims time --batch 32 --ranks 4")
    @with_store
    @_with_samples
    @_with_setting
    @_with_rest
    @_with_output
    def plan(
        url: Annotated[str, typer.Argument(metavar="URL", help="An array or a group.")],
        *,
        output: tuple[str | None, bool],
        rest: dict[str, Any],
        setting: dict[str, Any],
        samples: dict[str, Any],
        store: ps.StoreOptions | str,
    ) -> None:
        """Estimate an epoch of ps.ZarrDataset: requests, bytes, memory, rate, and what would be faster.

        Reads the metadata and eight chunks.
        """
        found = ps.ZarrDataset(url, store=store, **samples, **rest).plan(**setting)
        arrays.plan(found, output[0], as_json=output[1])


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


COMMANDS = {"zarr": zarr}
