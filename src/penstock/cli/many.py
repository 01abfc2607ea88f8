"""Commands on many objects and on presigned URLs for typer: names, options, and help with an example."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, TypedDict

import penstock as ps
from penstock.cli.store import processes_option, with_options, with_store
from penstock.cli.units import seconds, size_bytes
from penstock.jobs.mirror import SyncOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    import typer

    from penstock.data.catalog.index import IndexKeywords
    from penstock.jobs.find import FindKeywords

__all__ = ["COMMANDS"]


_TREES = "s3://bucket/prefix, or a directory; a / at its end makes no difference."


def _with_how(command: "Callable[..., None]") -> "Callable[..., None]":
    """Add the options of a sync to ``command``, which receives them as the keyword ``how``."""
    from typer import Option

    def how(
        *,
        delete: Annotated[bool, Option("--delete", help="Then delete in DEST what SOURCE does not have.")] = False,
        checksum: Annotated[bool, Option("--checksum", help="Compare contents, not times.")] = False,
        dry_run: Annotated[bool, Option("--dry-run", help="Print the planned actions, one per line.")] = False,
        allow_empty: Annotated[bool, Option("--allow-empty", help="Allow a SOURCE with nothing in it.")] = False,
        whole_bucket: Annotated[bool, Option("--whole-bucket", help="Allow --delete in a whole bucket.")] = False,
    ) -> SyncOptions:
        return SyncOptions(delete, checksum, (), (), dry_run, allow_empty, whole_bucket)

    return with_options("how", how)(command)


def _with_globs(command: "Callable[..., None]") -> "Callable[..., None]":
    """Add globs of relative keys (include, exclude) to ``command``, which receives them as the keyword ``globs``."""
    from typer import Option

    def globs(
        *,
        include: Annotated[list[str] | None, Option(metavar="GLOB", help="Only keys below SOURCE like this.")] = None,
        exclude: Annotated[
            list[str] | None, Option(metavar="GLOB", help="No keys like this; in DEST they stay.")
        ] = None,
    ) -> tuple[list[str], list[str]]:
        return include or [], exclude or []

    return with_options("globs", globs)(command)


class _Running(TypedDict):
    report: str | None
    json: bool
    processes: int | None


def _with_run(command: "Callable[..., None]") -> "Callable[..., None]":
    """Add the options of execution and reports to ``command``, which receives them as the keyword ``run``."""
    from typer import Option

    def run(
        *,
        report: Annotated[str | None, Option(metavar="FILE", help="Write a line of JSON for each object.")] = None,
        json: Annotated[bool, Option("--json", help="One JSON object per line, for each object.")] = False,
        processes: Annotated[int | None, processes_option()] = None,
    ) -> _Running:
        return {"report": report, "json": json, "processes": processes}

    return with_options("run", run)(command)


def _sync(app: "typer.Typer") -> None:
    import typer

    @app.command(
        epilog="Examples: penstock sync data s3://bucket/data; penstock sync --delete --exclude '**/*.tmp' "
        "s3://bucket/data gs://other/data"
    )
    @with_store
    @_with_how
    @_with_globs
    @_with_run
    def sync(
        source: Annotated[str, typer.Argument(metavar="SOURCE", help=_TREES)],
        dest: Annotated[str, typer.Argument(metavar="DEST", help=_TREES)],
        *,
        globs: tuple[list[str], list[str]],
        run: _Running,
        how: SyncOptions,
        store: ps.StoreOptions | str,
    ) -> None:
        """Make what lies below DEST equal to what lies below SOURCE: directories, prefixes, of any two stores.

        An object is copied unless DEST has it: the same size, and the same content or time. An interrupted sync is
        repeated and goes on where it was. --delete deletes after all copies, only if none failed, and only what is as
        it was compared.

        Links to local files are followed; links to directories are left out and reported. Errors do not stop the other
        objects, and the worst one decides the exit code.
        """
        options = replace(how, include=globs[0], exclude=globs[1])
        from penstock.cli.commands import sync as syncing

        syncing.sync((source, dest), options, store, **run)


def _with_wanted(command: "Callable[..., None]") -> "Callable[..., None]":
    """Add the search criteria to ``command``, which receives them as the keyword ``wanted``."""
    from typer import Option

    def wanted(
        *,
        name: Annotated[list[str] | None, Option(metavar="GLOB", help="Of the last component of a key.")] = None,
        path: Annotated[list[str] | None, Option(metavar="GLOB", help="Of the key below URL; ** crosses /.")] = None,
        larger: Annotated[str | None, Option(metavar="SIZE", help="At least so large: 10k, 4MiB.")] = None,
        smaller: Annotated[str | None, Option(metavar="SIZE", help="At most so large.")] = None,
        newer: Annotated[str | None, Option(metavar="TIME", help="Changed within this time: 90, 15m, 7d.")] = None,
        older: Annotated[str | None, Option(metavar="TIME", help="Changed before that.")] = None,
    ) -> "FindKeywords":
        return {
            "name": name or (),
            "path": path or (),
            "larger_bytes": None if larger is None else size_bytes(larger, "--larger"),
            "smaller_bytes": None if smaller is None else size_bytes(smaller, "--smaller"),
            "newer_s": None if newer is None else seconds(newer, "--newer"),
            "older_s": None if older is None else seconds(older, "--older"),
        }

    return with_options("wanted", wanted)(command)


def _find(app: "typer.Typer") -> None:
    import typer

    @app.command(epilog="Example: penstock find --name '*.tmp' --older 7d s3://bucket/runs")
    @with_store
    @_with_wanted
    def find(
        url: Annotated[str, typer.Argument(metavar="URL", help="A directory, a prefix or a bucket.")],
        *,
        kind: Annotated[str, typer.Option("--type", metavar="object|marker|folder", help="What to find.")] = "object",
        long: Annotated[bool, typer.Option("--long", "-l", help="Size in bytes, time and URL.")] = False,
        json: Annotated[bool, typer.Option("--json", help="One JSON object per line; safe for every key.")] = False,
        wanted: "FindKeywords",
        store: ps.StoreOptions | str,
    ) -> None:
        """Find objects below URL by name, size and age, one per line. Exit code 1 if there are none."""
        from penstock.cli.commands import find as finding

        line = finding.as_json if json else finding.as_long if long else finding.as_url
        finding.find(url, {**wanted, "kind": kind}, line, store)  # type: ignore[typeddict-item]  # find validates it


def _presign(app: "typer.Typer") -> None:
    import typer

    @app.command(
        epilog="Examples: penstock presign --expires 7d s3://bucket/model.pt; curl -T model.pt "
        '"$(penstock presign --method PUT s3://bucket/model.pt)"'
    )
    @with_store
    def presign(
        url: Annotated[str, typer.Argument(metavar="URL", help="One object; it need not exist.")],
        *,
        method: Annotated[str, typer.Option(metavar="GET|PUT", help="What the address allows.")] = "GET",
        expires: Annotated[
            str | None,
            typer.Option(metavar="TIME", help="Seconds, or 15m, 12h, 7d. Default: 1h, or what the credentials have."),
        ] = None,
        json: Annotated[
            bool, typer.Option("--json", help="One JSON object, with what to send and when it ends.")
        ] = False,
        store: ps.StoreOptions | str,
    ) -> None:
        """Print an address at which anybody may read or write one object, for a time. No request is made.

        It needs keys that sign: S3's and OSS's, an HMAC key or a service account's file for Google Cloud Storage, the
        account's key for Azure. Tokens and shared access signatures are refused.
        """
        from penstock.cli.commands import presign as signing

        signing.presign(url, method, expires, signing.as_json if json else signing.as_text, store)


def _with_listing(command: "Callable[..., None]") -> "Callable[..., None]":
    """Add the options of a listing to ``command``, which receives them as the keyword ``how``."""
    from typer import Option

    def how(
        *,
        include: Annotated[list[str] | None, Option(metavar="GLOB", help="Only keys below URL like this.")] = None,
        exclude: Annotated[list[str] | None, Option(metavar="GLOB", help="No keys like this.")] = None,
        labels: Annotated[str | None, Option(metavar="folder|PATTERN", help="A class for each object.")] = None,
        restart: Annotated[bool, Option("--restart", help="Forget what an interrupted run has listed.")] = False,
    ) -> "IndexKeywords":
        return {"include": include or [], "exclude": exclude or [], "labels": labels, "restart": restart}

    return with_options("how", how)(command)


def _index(app: "typer.Typer") -> None:
    import typer

    @app.command(epilog="Example: penstock index s3://bucket/train/ train.catalog")
    @with_store
    @_with_listing
    def index(
        url: Annotated[str, typer.Argument(metavar="URL", help="A prefix or a bucket.")],
        to: Annotated[str, typer.Argument(metavar="FILE", help="The catalog to write: a path, or an object's URL.")],
        *,
        refresh: Annotated[
            bool, typer.Option("--refresh", help="Read FILE, and list only what sorts after its last key.")
        ] = False,
        json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
        how: "IndexKeywords",
        store: ps.StoreOptions | str,
    ) -> None:
        """List the objects below URL in parallel and write a catalog, which datasets open without listing.

        Repeat an interrupted command to continue its listing. Exit code 1 if there are no objects.
        """
        # Imported late: it needs numpy, and no other command here does.
        from penstock.cli.commands import index as indexing

        indexing.index(url, to, how, store, refresh=refresh, as_json=json)


COMMANDS = {"find": _find, "index": _index, "sync": _sync, "presign": _presign}
