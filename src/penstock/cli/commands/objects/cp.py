"""``penstock cp`` and ``penstock mv``: copy or move many objects between any two places, each atomically."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

from contextlib import closing
from dataclasses import replace
from typing import Annotated

from typer import Argument, Option, Typer

from penstock.cli.options import DryRun, JsonObjects, Processes, Store, with_options, with_store
from penstock.cli.output import Report
from penstock.errors import Unusable
from penstock.jobs.copying.transfer import TransferOptions, transfer

app = Typer()
_Sources = Annotated[list[str], Argument(metavar="SOURCE", help="Objects, trees (with -r), or globs in quotes.")]
_Dest = Annotated[str, Argument(metavar="DEST", help="A folder if it ends in /, else the new name.")]
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


def _how(
    *,
    recursive: Annotated[bool, Option("--recursive", "-r", help="Take whole trees.")] = False,
    dry_run: DryRun = False,
    json: JsonObjects = False,
    fail_fast: Annotated[bool, Option("--fail-fast", help="Stop at the first failure.")] = False,
    processes: Processes = None,
) -> TransferOptions:
    return TransferOptions(recursive, dry_run=dry_run, json=json, fail_fast=fail_fast, processes=processes)


@app.command(
    help=_help("Copy objects: from here to a store, back, or between stores.\n"),
    epilog="Examples: penstock cp -r data s3://bucket/train; penstock cp 's3://bucket/train/**/*.png' images/",
)
@with_store
@with_options("how", _how)
def cp(
    sources: _Sources,
    dest: _Dest,
    *,
    resume: Annotated[
        bool, Option("--resume", help="Skip objects that exist: same size and ETag, or newer than the source.")
    ] = False,
    how: TransferOptions,
    store: Store,
) -> None:
    _transfer(sources, dest, replace(how, resume=resume), store)


@app.command(
    help=_help("Move objects: copy, verify, then delete the source. Local directories stay.\n"),
    epilog="Example: penstock mv -r s3://bucket/new/ s3://bucket/train/",
)
@with_store
@with_options("how", _how)
def mv(
    sources: _Sources,
    dest: _Dest,
    *,
    resume: Annotated[
        bool, Option("--resume", help="Do not copy again what exists: same size and ETag, or a file's MD5.")
    ] = False,
    how: TransferOptions,
    store: Store,
) -> None:
    _transfer(sources, dest, replace(how, move=True, resume=resume), store)


def _transfer(urls: list[str], dest: str, how: TransferOptions, store: Store) -> None:
    if "-" in (*urls, dest):
        raise Unusable("'-' is not a file: penstock cat writes to standard output; write ./- for a file of that name")
    if dest in ("/dev/stdout", "/dev/stderr"):
        # Where output goes to a file, this link of the whole machine would be replaced by the copy.
        raise Unusable(f"cannot copy to {dest}: penstock cat writes to standard output")
    report = Report(how.verb, as_json=how.json)
    with report, closing(transfer(urls, dest, how, store)) as outcomes:
        for outcome in outcomes:
            report.take(outcome)
    report.end()
