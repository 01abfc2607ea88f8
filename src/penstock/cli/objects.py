"""The commands that work on objects, as typer sees them: names, options, help with an example."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import penstock as ps
from penstock.cli.commands import cat as reading
from penstock.cli.commands import cp as copying
from penstock.cli.commands import du as summing
from penstock.cli.commands import incomplete as aborting
from penstock.cli.commands import rm as deleting
from penstock.cli.commands import stat as describing
from penstock.cli.store import with_options, with_store

if TYPE_CHECKING:
    from collections.abc import Callable

    import typer

__all__ = ["OBJECTS"]

_URLS = "s3://bucket/key, a local path, or a glob in quotes."
_SOURCES = "Objects, trees (with -r), or globs in quotes."
_DEST = "Ends in /: what to go into. Else: the new name."
_RULES = r"""
DEST is what things go into, each by its own name, when it ends in /, is a whole bucket, or when there are several
SOURCEs or a glob. Otherwise it is the new name of the one object or tree. This never depends on what is there: a
single object to a directory or prefix that is written without its / is refused.

With -r, dir goes into DEST/ as DEST/dir/…, and dir/ as DEST/…; where DEST is a new name, both become DEST/….

In globs * and ? stop at a /, ** does not, and \[abc] is one of these; names are kept from the first part with a
wildcard on. An object of just this name comes before any glob.

Links to local files are followed; links to directories are left out, and told. What fails is told at the end while
the others go on; the exit code is the worst one's (from the worst: damaged, no space,
denied, usage, other, try later). A full disk ends it all: make room, and go on with --resume.
"""


def _help(first: str) -> str:
    """Return a help text with the rules; typer breaks lines itself, so a paragraph is one."""
    return "\n\n".join(" ".join(each.split()) for each in f"{first}\n{_RULES}".split("\n\n"))


def _stat(app: "typer.Typer") -> None:
    import typer

    @app.command(epilog="Example: penstock stat --json s3://bucket/train/0.png")
    @with_store
    def stat(
        urls: Annotated[list[str], typer.Argument(metavar="URL", help=_URLS)],
        *,
        json: Annotated[bool, typer.Option("--json", help="A JSON object a line.")] = False,
        store: ps.StoreOptions,
    ) -> None:
        """Say what the store knows of objects: size, time, ETag, metadata. Ends with 1 at the first that is not there.

        Of a glob, all that match, in the order of their keys; an object of just this name comes before any glob.
        """
        describing.stat(urls, describing.as_json if json else describing.as_text, store)


def _with_how(command: "Callable[..., None]") -> "Callable[..., None]":
    """Give ``command`` the options of a transfer; it takes them as one keyword, ``how``."""
    from typer import Option

    def how(
        *,
        recursive: Annotated[bool, Option("--recursive", "-r", help="Take whole trees.")] = False,
        dry_run: Annotated[bool, Option("--dry-run", help="Print what would be done, a line each.")] = False,
        json: Annotated[bool, Option("--json", help="A JSON object a line, for each object.")] = False,
        fail_fast: Annotated[bool, Option("--fail-fast", help="Stop at the first failure.")] = False,
    ) -> copying.How:
        return copying.How(recursive=recursive, dry_run=dry_run, json=json, fail_fast=fail_fast)

    return with_options("how", how)(command)


def _cp(app: "typer.Typer") -> None:
    import typer

    @app.command(
        help=_help("Copy objects: from here to a store, back, or between stores.\n"),
        epilog="Examples: penstock cp -r data s3://bucket/train; penstock cp 's3://bucket/train/**/*.png' images/",
    )
    @with_store
    @_with_how
    def cp(
        sources: Annotated[list[str], typer.Argument(metavar="SOURCE", help=_SOURCES)],
        dest: Annotated[str, typer.Argument(metavar="DEST", help=_DEST)],
        *,
        resume: Annotated[
            bool, typer.Option("--resume", help="Skip what is there: same size and ETag, or not older than its source.")
        ] = False,
        how: copying.How,
        store: ps.StoreOptions,
    ) -> None:
        copying.transfer(sources, dest, replace(how, resume=resume), store)


def _mv(app: "typer.Typer") -> None:
    import typer

    @app.command(
        help=_help("Move objects: copy, compare, and only then delete the source. Local directories stay.\n"),
        epilog="Example: penstock mv -r s3://bucket/new/ s3://bucket/train/",
    )
    @with_store
    @_with_how
    def mv(
        sources: Annotated[list[str], typer.Argument(metavar="SOURCE", help=_SOURCES)],
        dest: Annotated[str, typer.Argument(metavar="DEST", help=_DEST)],
        *,
        resume: Annotated[
            bool,
            typer.Option("--resume", help="Do not copy again what is there: same size and ETag, or a file's MD5."),
        ] = False,
        how: copying.How,
        store: ps.StoreOptions,
    ) -> None:
        copying.transfer(sources, dest, replace(how, move=True, resume=resume), store)


def _with_uploads(command: "Callable[..., None]") -> "Callable[..., None]":
    """Give ``command`` the options for unfinished uploads, as ``hours``: None without ``--incomplete``."""
    from typer import Option

    def hours(
        *,
        incomplete: Annotated[
            bool, Option("--incomplete", help="Instead of objects, free what uploads that never ended hold.")
        ] = False,
        older_than: Annotated[
            float, Option(min=0, metavar="HOURS", help="With --incomplete: leave younger uploads alone.")
        ] = 24.0,
    ) -> float | None:
        return older_than if incomplete else None

    return with_options("hours", hours)(command)


def _with_deletion(command: "Callable[..., None]") -> "Callable[..., None]":
    """Give ``command`` the options of a deletion; it takes them as one keyword, ``how``."""
    from typer import Option

    def how(
        *,
        recursive: Annotated[bool, Option("--recursive", "-r", help="Delete whole trees.")] = False,
        dry_run: Annotated[bool, Option("--dry-run", help="Print what would be deleted, a line each.")] = False,
        yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
        whole_bucket: Annotated[bool, Option("--whole-bucket", help="Allow to empty a whole bucket.")] = False,
    ) -> deleting.How:
        return deleting.How(recursive=recursive, dry_run=dry_run, yes=yes, whole_bucket=whole_bucket)

    return with_options("how", how)(command)


def _rm(app: "typer.Typer") -> None:
    import typer

    @app.command(
        epilog="Examples: penstock rm --dry-run 's3://bucket/train/**/*.tmp'; penstock rm --incomplete s3://bucket/"
    )
    @with_store
    @_with_deletion
    @_with_uploads
    def rm(
        urls: Annotated[list[str], typer.Argument(metavar="URL", help=_SOURCES)],
        *,
        how: deleting.How,
        hours: float | None,
        store: ps.StoreOptions,
    ) -> None:
        """Delete objects. Ends with 1 when nothing matches.

        On a terminal it asks before it deletes more than one. A whole bucket, or a glob of all in it, takes
        --whole-bucket; the working directory, the home directory and those above are refused. A link is deleted itself.
        Local directories stay.
        """
        if hours is not None:
            aborting.incomplete(urls, hours, store, dry_run=how.dry_run)
        else:
            deleting.rm(urls, how, store)


def _cat(app: "typer.Typer") -> None:
    import typer

    @app.command(epilog="Example: penstock cat --range 0:512 s3://bucket/shard-0.tar | xxd")
    @with_store
    def cat(
        urls: Annotated[list[str], typer.Argument(metavar="URL", help=_URLS)],
        *,
        span: Annotated[
            str, typer.Option("--range", metavar="START:STOP", help="Bytes from START up to, not including, STOP.")
        ] = ":",
        store: ps.StoreOptions,
    ) -> None:
        """Write objects to standard output, one after another. Ends at the first that is not there, with 1.

        Of a glob, all that match, in the order of their keys; an object of just this name comes before any glob.
        """
        reading.cat(urls, span, store)


def _du(app: "typer.Typer") -> None:
    import typer

    @app.command(epilog="Example: penstock du s3://bucket/train/")
    @with_store
    def du(
        url: Annotated[str, typer.Argument(metavar="URL", help="s3://bucket/prefix, or a local path.")],
        *,
        summary: Annotated[bool, typer.Option("--summary", "-s", help="The total only.")] = False,
        json: Annotated[bool, typer.Option("--json", help="A JSON object a line.")] = False,
        store: ps.StoreOptions,
    ) -> None:
        """Sum up the objects whose URL begins with URL, by their keys up to the next /. Ends with 1 for none."""
        summing.du(url, summing.as_json if json else summing.as_text, store, summary=summary)


OBJECTS = (_stat, _cp, _mv, _rm, _cat, _du)
