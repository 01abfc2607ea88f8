"""``penstock sync``: make one tree of objects equal to another."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

from contextlib import closing
from dataclasses import asdict, replace
from typing import Annotated, Any, NamedTuple

from typer import Argument, Option, Typer

import penstock as ps
from penstock.cli.options import DryRun, JobFolder, OnRay, Part, Processes, Store, in_job, with_options, with_store
from penstock.cli.output import Report, aside, readable, write_row
from penstock.display import counted
from penstock.jobs.syncing.mirror import SyncOptions
from penstock.jobs.syncing.sync import SyncRun
from penstock.jobs.trees.outcome import Synced, ledger

app = Typer()
_TREES = "s3://bucket/prefix, or a directory; a / at its end makes no difference."


def _how(
    *,
    delete: Annotated[bool, Option("--delete", help="Then delete in DEST what SOURCE does not have.")] = False,
    checksum: Annotated[bool, Option("--checksum", help="Compare contents, not times.")] = False,
    dry_run: DryRun = False,
    allow_empty: Annotated[bool, Option("--allow-empty", help="Allow a SOURCE with nothing in it.")] = False,
    whole_bucket: Annotated[bool, Option("--whole-bucket", help="Allow --delete in a whole bucket.")] = False,
) -> SyncOptions:
    return SyncOptions(delete, checksum, (), (), dry_run, allow_empty, whole_bucket)


class _Globs(NamedTuple):
    include: list[str]
    exclude: list[str]


def _globs(
    *,
    include: Annotated[list[str] | None, Option(metavar="GLOB", help="Only keys below SOURCE like this.")] = None,
    exclude: Annotated[list[str] | None, Option(metavar="GLOB", help="No keys like this; in DEST they stay.")] = None,
) -> _Globs:
    return _Globs(include or [], exclude or [])


class _Output(NamedTuple):
    report: str | None
    json: bool
    processes: int | None
    parts: dict[str, Any]


def _output(
    *,
    job: JobFolder = None,
    part: Part = None,
    ray: OnRay = None,
    report: Annotated[str | None, Option(metavar="FILE", help="Write a line of JSON for each object.")] = None,
    json: Annotated[bool, Option("--json", help="One JSON object per line, for each object; of a job, one.")] = False,
    processes: Processes = None,
) -> _Output:
    return _Output(report, json, processes, in_job(job, part, ray))


@app.command(
    epilog="Examples: penstock sync data s3://bucket/data; penstock sync --delete --exclude '**/*.tmp' "
    "s3://bucket/data gs://other/data; penstock sync s3://a/data gs://b/data --job s3://a/jobs/1 --ray auto"
)
@with_store
@with_options("how", _how)
@with_options("globs", _globs)
@with_options("output", _output)
def sync(
    source: Annotated[str, Argument(metavar="SOURCE", help=_TREES)],
    dest: Annotated[str, Argument(metavar="DEST", help=_TREES)],
    *,
    globs: _Globs,
    output: _Output,
    how: SyncOptions,
    store: Store,
) -> None:
    """Make what lies below DEST equal to what lies below SOURCE: directories, prefixes, of any two stores.

    An object is copied unless DEST has it: the same size, and the same content or time. An interrupted sync is
    repeated and goes on where it was. --delete deletes after all copies, only if none failed, and only what is as
    it was compared.

    Links to local files are followed; links to directories are left out and reported. Errors do not stop the other
    objects, and the worst one decides the exit code.

    With --job, for millions of objects, parts are recorded once they are done: the same command continues after a stop
    of any kind, and several processes (--part) or a Ray cluster (--ray) share the parts.
    """
    if output.parts:
        given = {**asdict(how), **globs._asdict(), **output.parts}
        with aside(output.parts.get("on")):
            done = ps.sync(source, dest, report=output.report, processes=output.processes, store=store, **given)
        show_synced(done, as_json=output.json)
        return
    run = SyncRun(source, dest, replace(how, **globs._asdict()), store)
    shown = Report("planned" if how.dry_run else "copied", as_json=output.json)
    with (
        shown,
        ledger(output.report, run.mirror.trees) as note,
        closing(run.outcomes(processes=output.processes)) as outcomes,
    ):
        for each in outcomes:
            note(each)
            shown.take(each)
    shown.count("unchanged", run.unchanged)
    shown.end()


def show_synced(done: Synced, *, as_json: bool) -> None:
    """Write the counts of a job."""
    names = ("copied", "copied_bytes", "unchanged", "deleted", "skipped", "failed", "parts", "parts_done")
    record = {name: getattr(done, name) for name in (*names, "parts_failed")}
    deleted = f"{done.deleted:,} deleted, " if done.deleted else ""
    text = (
        f"{counted(done.copied, 'object')} copied ({readable(done.copied_bytes)}), {done.unchanged:,} unchanged, "
        f"{deleted}{done.parts_done:,} of {counted(done.parts, 'part')} done"
    )
    write_row(record, text, as_json=as_json)
