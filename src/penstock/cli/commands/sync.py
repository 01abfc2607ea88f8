"""``penstock sync``: make one tree of objects equal to another."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

from contextlib import closing
from dataclasses import asdict
from typing import Annotated

from typer import Option, Typer

import penstock as ps
from penstock.cli.options import (
    Checksum,
    DestTree,
    DryRun,
    IncludeSource,
    JobFolder,
    ObjectReport,
    OnRay,
    Part,
    Processes,
    SourceTree,
    Store,
    in_job,
    with_store,
)
from penstock.cli.output import Report, aside, readable, write_row
from penstock.display import counted
from penstock.jobs.syncing.mirror import SyncOptions
from penstock.jobs.syncing.sync import SyncRun
from penstock.jobs.trees.outcome import Synced, ledger

app = Typer()


@app.command(
    epilog="Examples: penstock sync data s3://bucket/data; penstock sync --delete --exclude '**/*.tmp' "
    "s3://bucket/data gs://other/data; penstock sync s3://a/data gs://b/data --job s3://a/jobs/1 --ray auto"
)
@with_store
def sync(
    source: SourceTree,
    dest: DestTree,
    *,
    job: JobFolder = None,
    part: Part = None,
    ray: OnRay = None,
    report: ObjectReport = None,
    json: Annotated[bool, Option("--json", help="One JSON object per line, for each object; of a job, one.")] = False,
    processes: Processes = None,
    include: IncludeSource = None,
    exclude: Annotated[list[str] | None, Option(metavar="GLOB", help="No keys like this; in DEST they stay.")] = None,
    delete: Annotated[bool, Option("--delete", help="Then delete in DEST what SOURCE does not have.")] = False,
    checksum: Checksum = False,
    dry_run: DryRun = False,
    allow_empty: Annotated[bool, Option("--allow-empty", help="Allow a SOURCE with nothing in it.")] = False,
    whole_bucket: Annotated[bool, Option("--whole-bucket", help="Allow --delete in a whole bucket.")] = False,
    store: Store,
) -> None:
    """Make the tree below DEST equal to that below SOURCE: directories, prefixes, of any two stores.

    An object is copied unless DEST has it: the same size, and the same content or time. An interrupted sync is
    repeated and continues where it was. --delete deletes after all copies, only if none failed, and only what is as
    it was compared.

    Links to local files are followed; links to directories are left out and reported. Errors do not stop the other
    objects, and the worst one decides the exit code.

    With --job, for millions of objects, parts are recorded once they are done: the same command continues after a stop
    of any kind, and several processes (--part) or a Ray cluster (--ray) share the parts.
    """
    how = SyncOptions(delete, checksum, include or [], exclude or [], dry_run, allow_empty, whole_bucket)
    if parts := in_job(job, part, ray):
        with aside(parts.get("on")):
            done = ps.sync(source, dest, report=report, processes=processes, store=store, **asdict(how), **parts)
        show_synced(done, as_json=json)
        return
    run = SyncRun(source, dest, how, store)
    shown = Report("planned" if dry_run else "copied", as_json=json)
    with shown, ledger(report, run.mirror.trees) as note, closing(run.outcomes(processes=processes)) as outcomes:
        for each in outcomes:
            note(each)
            shown.take(each)
    shown.count("unchanged", run.unchanged)
    shown.end()


def show_synced(done: Synced, *, as_json: bool) -> None:
    names = ("copied", "copied_bytes", "unchanged", "deleted", "skipped", "failed", "parts", "parts_done")
    record = {name: getattr(done, name) for name in (*names, "parts_failed")}
    deleted = f"{done.deleted:,} deleted, " if done.deleted else ""
    text = (
        f"{counted(done.copied, 'object')} copied ({readable(done.copied_bytes)}), {done.unchanged:,} unchanged, "
        f"{deleted}{done.parts_done:,} of {counted(done.parts, 'part')} done"
    )
    write_row(record, text, as_json=as_json)
