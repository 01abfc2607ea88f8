"""Commands on objects for typer: names, options, and help with an example."""
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
from penstock.cli.store import processes_option, with_options, with_store

if TYPE_CHECKING:
    from collections.abc import Callable

    import typer

__all__ = ["COMMANDS"]

_URLS = "s3://bucket/key, a local path, or a glob in quotes."
_SOURCES = "Objects, trees (with -r), or globs in quotes."
_DEST = "A folder if it ends in /, else the new name."
_RULES = r"""
DEST is a folder, and each source keeps its own name in it, when DEST ends in /, is a whole bucket, or when there are
several SOURCEs or a glob. Otherwise DEST is the new name of the one object or tree. The result never depends on what
already exists: a single object to a directory or prefix that is written without / is refused.

With -r, dir becomes DEST/dir/…, and dir/ becomes DEST/…, if DEST ends in /; if DEST is a new name, both become DEST/….

In globs, * and ? match within one component, ** matches across /, and \[abc] matches one of these characters. Names
are kept from the first component with a wildcard. An object with exactly this name takes precedence over the glob.

Links to local files are followed; links to directories are left out and reported. An error does not stop the other
objects: errors are reported at the end, and the worst one decides the exit code (from the worst: damaged, no space,
denied, usage, other, try later). A full disk stops the command: make room, then continue with --resume.
"""


def _help(first: str) -> str:
    """Return a help text with the rules, one line per paragraph, because typer breaks lines itself."""
    return "\n\n".join(" ".join(each.split()) for each in f"{first}\n{_RULES}".split("\n\n"))


def _stat(app: "typer.Typer") -> None:
    import typer

    @app.command(epilog="Example: penstock stat --json s3://bucket/train/0.png")
    @with_store
    def stat(
        urls: Annotated[list[str], typer.Argument(metavar="URL", help=_URLS)],
        *,
        json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
        store: ps.StoreOptions | str,
    ) -> None:
        """Print size, time, ETag and metadata of objects. Exit code 1 at the first object that does not exist.

        A glob stands for all matches in key order; an object with exactly this name takes precedence.
        """
        describing.stat(urls, describing.as_json if json else describing.as_text, store)


def _with_how(command: "Callable[..., None]") -> "Callable[..., None]":
    """Add the options of a transfer to ``command``, which receives them as the keyword ``how``."""
    from typer import Option

    def how(
        *,
        recursive: Annotated[bool, Option("--recursive", "-r", help="Take whole trees.")] = False,
        dry_run: Annotated[bool, Option("--dry-run", help="Print the planned actions, one per line.")] = False,
        json: Annotated[bool, Option("--json", help="One JSON object per line, for each object.")] = False,
        fail_fast: Annotated[bool, Option("--fail-fast", help="Stop at the first failure.")] = False,
        processes: Annotated[int | None, processes_option()] = None,
    ) -> copying.How:
        return copying.How(recursive, dry_run=dry_run, json=json, fail_fast=fail_fast, processes=processes)

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
            bool,
            typer.Option("--resume", help="Skip objects that exist: same size and ETag, or not older than the source."),
        ] = False,
        how: copying.How,
        store: ps.StoreOptions | str,
    ) -> None:
        copying.cp(sources, dest, replace(how, resume=resume), store)


def _mv(app: "typer.Typer") -> None:
    import typer

    @app.command(
        help=_help("Move objects: copy, verify, then delete the source. Local directories stay.\n"),
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
            typer.Option("--resume", help="Do not copy again what exists: same size and ETag, or a file's MD5."),
        ] = False,
        how: copying.How,
        store: ps.StoreOptions | str,
    ) -> None:
        copying.cp(sources, dest, replace(how, move=True, resume=resume), store)


def _with_uploads(command: "Callable[..., None]") -> "Callable[..., None]":
    """Add the options for unfinished uploads to ``command``, as ``hours``: None without ``--incomplete``."""
    from typer import Option

    def hours(
        *,
        incomplete: Annotated[
            bool, Option("--incomplete", help="Instead of objects, abort unfinished uploads.")
        ] = False,
        older_than: Annotated[
            float, Option(min=0, metavar="HOURS", help="With --incomplete: only uploads older than this.")
        ] = 24.0,
    ) -> float | None:
        return older_than if incomplete else None

    return with_options("hours", hours)(command)


def _with_deletion(command: "Callable[..., None]") -> "Callable[..., None]":
    """Add the options of a deletion to ``command``, which receives them as the keyword ``how``."""
    from typer import Option

    def how(
        *,
        recursive: Annotated[bool, Option("--recursive", "-r", help="Delete whole trees.")] = False,
        dry_run: Annotated[bool, Option("--dry-run", help="Print what would be deleted, one per line.")] = False,
        yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
        whole_bucket: Annotated[bool, Option("--whole-bucket", help="Allow emptying a whole bucket.")] = False,
        json: Annotated[bool, Option("--json", help="One JSON object per line, for each object.")] = False,
    ) -> deleting.How:
        return deleting.How(recursive, dry_run, yes, whole_bucket, json)

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
        store: ps.StoreOptions | str,
    ) -> None:
        """Delete objects. Exit code 1 if nothing matches.

        On a terminal, rm asks before it deletes more than one object. A whole bucket, or a glob of everything in it,
        needs --whole-bucket. The working directory, the home directory and directories above them are refused. A link
        itself is deleted, not its target. Local directories stay.
        """
        if hours is not None:
            aborting.incomplete(urls, hours, store, dry_run=how.dry_run, as_json=how.json)
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
        store: ps.StoreOptions | str,
    ) -> None:
        """Write objects to standard output, one after another. Exit code 1 at the first object that does not exist.

        A glob stands for all matches in key order; an object with exactly this name takes precedence.
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
        json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
        store: ps.StoreOptions | str,
    ) -> None:
        """Sum the objects whose URL begins with URL, grouped by key up to the next /. Exit code 1 if there are none."""
        summing.du(url, summing.as_json if json else summing.as_text, store, summary=summary)


COMMANDS = {"stat": _stat, "cp": _cp, "mv": _mv, "rm": _rm, "cat": _cat, "du": _du}
