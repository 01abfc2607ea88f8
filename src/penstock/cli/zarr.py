"""The commands over zarr arrays as typer sees them: names, options, help with an example."""
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

__all__ = ["zarr"]

_FORMAT = 3


def zarr(app: "typer.Typer") -> None:
    """Add ``zarr`` with its own commands."""
    import typer

    group = typer.Typer(no_args_is_help=True, help="Copy zarr arrays and groups into other chunks, shards and codecs.")
    group.callback()(_nothing)  # with a callback typer keeps the name of a single command
    _copy(group)
    app.add_typer(group, name="zarr")


def _nothing() -> None:
    return


def _with_form(command: "Callable[..., None]") -> "Callable[..., None]":
    """Give ``command`` the options that say how arrays lie in objects; it takes them as one keyword, ``form``."""
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
        from penstock.interop.zarr.rechunk.shapes import parsed

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
    """Give ``command`` the options that say what to do with a destination; it takes them as one keyword, ``manner``."""
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
        from penstock.interop.zarr.rechunk.run import CopyOptions

        arrays.copy(source, dest, CopyOptions(**form, **manner), store, as_json=json)
