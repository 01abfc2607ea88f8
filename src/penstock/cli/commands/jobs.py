"""``penstock copy-tree`` and ``verify``: trees of any size in parts; ``penstock jobs``: the records of such jobs."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

from importlib import import_module
from typing import Annotated, Any, TypeVar

from typer import Argument, Option, Typer

import penstock as ps
from penstock.cli.commands.index import show_index
from penstock.cli.commands.sync import show_synced
from penstock.cli.commands.zarr import show_arrays
from penstock.cli.options import (
    Checksum,
    DestTree,
    Exclude,
    IncludeSource,
    IncludeUrl,
    JobFolder,
    JsonLines,
    JsonOne,
    ObjectReport,
    OnRay,
    Part,
    Processes,
    SourceTree,
    Store,
    cluster,
    with_store,
)
from penstock.cli.output import aside, check_page, harmless_lines, readable, save_page, write, write_row
from penstock.display import counted
from penstock.errors import NotFound, Unusable
from penstock.jobs.parts.records import JobSummary, Records, jobs_below
from penstock.jobs.parts.report import JobReport
from penstock.jobs.syncing.verify import Verified

app = Typer()
T = TypeVar("T")


@app.command(
    name="copy-tree",
    epilog="Example: penstock copy-tree s3://a/data gs://b/data --job s3://a/jobs/1 --part $SLURM_ARRAY_TASK_ID/16",
)
@with_store
def copy_tree(
    source: SourceTree,
    dest: DestTree,
    *,
    job: Annotated[str, Option("--job", metavar="URL", help="Folder for the records, outside both trees.")],
    part: Part = None,
    ray: OnRay = None,
    report: ObjectReport = None,
    processes: Processes = None,
    json: JsonOne = False,
    include: IncludeSource = None,
    exclude: Exclude = None,
    checksum: Checksum = False,
    store: Store,
) -> None:
    """Copy the objects below SOURCE to DEST in parts, each recorded once it is done: for millions of objects.

    The same command continues after a stop of any kind. Several processes or machines share the parts with --part.
    Objects that DEST has are not copied; nothing is deleted.
    """
    on = cluster(ray)
    with aside(on):
        done = ps.copy_tree(
            source,
            dest,
            job=job,
            part=part,
            on=on,
            checksum=checksum,
            include=include or (),
            exclude=exclude or (),
            report=report,
            processes=processes,
            store=store,
        )
    show_synced(done, as_json=json)


@app.command(
    epilog="Examples: penstock verify s3://bucket/copy s3://bucket/train; penstock verify s3://bucket/train "
    "train.catalog --job s3://bucket/jobs/verify --ray auto"
)
@with_store
def verify(
    url: Annotated[str, Argument(metavar="URL", help="s3://bucket/prefix, or a directory.")],
    against: Annotated[str | None, Argument(metavar="AGAINST", help="Another tree, or a .catalog.")] = None,
    *,
    json: JsonOne = False,
    job: JobFolder = None,
    part: Part = None,
    ray: OnRay = None,
    processes: Processes = None,
    include: IncludeUrl = None,
    exclude: Exclude = None,
    store: Store,
) -> None:
    """Compare the objects below URL with those of AGAINST, or read all of them; print their number and digest.

    Every object of AGAINST must be there: the same bytes, or the size and version of a catalog. Errors do not stop the
    other objects. With --job the same command continues, and only failed parts are checked again.
    """
    on = cluster(ray)
    globs: dict[str, Any] = {"include": include or (), "exclude": exclude or ()}
    with aside(on):
        done = ps.verify(url, against, job=job, part=part, on=on, processes=processes, store=store, **globs)
    show_verified(done, as_json=json)


def show_verified(done: Verified, *, as_json: bool) -> None:
    record = {"objects": done.objects, "bytes": done.bytes, "digest": done.digest or None, "parts": done.parts}
    text = f"{counted(done.objects, 'object')} verified, {readable(done.bytes)}"
    write_row(record, text + (f", digest {done.digest}" if done.digest else ""), as_json=as_json)


jobs = Typer(no_args_is_help=True, help="List, show, continue and delete jobs that are done in parts.")
app.add_typer(jobs, name="jobs")
Job = Annotated[str, Argument(metavar="URL", help="The folder of a job: s3://bucket/jobs/1.")]


@jobs.command()
@with_store
def ls(
    url: Annotated[str, Argument(metavar="URL", help="A folder of jobs: s3://bucket/jobs.")],
    *,
    json: JsonLines = False,
    store: Store,
) -> None:
    """List the jobs below URL: parts done, objects, operation. Exit code 1 if there are none.

    Costs a few requests for each job, and for one that is not finished one more for each 1,000 parts done.
    """
    found = False
    for records in jobs_below(url, store):
        found = True
        plan = _summary(records)
        parts = plan.part_count
        done = parts if records.finished() else len(records.numbers())
        record = {"url": records.url, "operation": plan.operation, "parts": parts, "parts_done": done}
        text = f"{done:>6}/{parts:<6} parts {plan.objects:>12,} objects  {plan.operation:10} {records.url}"
        write_row(record | {"objects": plan.objects}, text, as_json=json)
    if not found:
        raise NotFound("no plan of a job found", url=url)


@jobs.command(name="show")
@with_store
def show_job(
    url: Job,
    *,
    html: Annotated[str | None, Option(metavar="FILE", help="Write a page with the report, too.")] = None,
    json: JsonOne = False,
    store: Store,
) -> None:
    """Report on a job: parts done, counts, failures, time, rate, machines, and the bottleneck."""
    if html is not None:
        check_page(html)
    records = Records(url, store)
    report = JobReport.of(records, _summary(records))
    if html is not None:
        save_page(html, report.to_html())
    if json:
        write_row(report.as_record(), "", as_json=True)
    else:
        write(harmless_lines("\n".join(report.lines(_MOST))) + "\n")


@jobs.command()
@with_store
def resume(
    url: Job, *, part: Part = None, ray: OnRay = None, processes: Processes = None, json: JsonOne = False, store: Store
) -> None:
    """Do the unfinished and failed parts of a job, as the command that began it would."""
    records = Records(url, store)
    plan = _require(records.plan(), records)
    if plan.operation == "map":
        # A plan is read from a bucket: the name of a function in it is not trusted.
        raise Unusable("a map is continued by its own call, or penstock map: repeat it", url=records.url)
    if plan.operation not in _OPERATIONS:
        raise Unusable(f"unknown operation {plan.operation!r}: install a newer version", url=records.url)
    module, shown = _OPERATIONS[plan.operation]
    options: dict[str, Any] = {"part": part, "on": cluster(ray), "store": store}
    if processes is not None or plan.operation in _SHARING:
        options["processes"] = processes
    with aside(options["on"]):
        done = import_module(module).resume(records, plan, **options)
    shown(done, as_json=json)


@jobs.command()
@with_store
def rm(url: Job, *, json: JsonOne = False, store: Store) -> None:
    """Delete the records of a job, and nothing else. Its copies stay."""
    records = Records(url, store)
    number = records.remove()
    text = f"{counted(number, 'record')} of {records.url} deleted"
    write_row({"url": records.url, "deleted": number}, text, as_json=json)


def _summary(records: Records) -> JobSummary:
    return _require(records.summary(), records)


def _require(plan: T | None, records: Records) -> T:
    if plan is None:
        raise NotFound("no plan of a job found", url=records.url)
    return plan


_MOST = 20
# By the name of an operation: the module whose ``resume`` continues it, and what writes the result.
_OPERATIONS: dict[str, tuple[str, Any]] = {
    "sync": ("penstock.jobs.syncing.job", show_synced),
    "verify": ("penstock.jobs.syncing.verify", show_verified),
    "pack": ("penstock.jobs.packing.job", show_index),
    "index": ("penstock.jobs.index", show_index),
    "zarr_copy": ("penstock.interop.zarr.parts", show_arrays),
}
# Operations whose processes share small objects, by default several; those of others share parts.
_SHARING = {"sync", "verify"}
