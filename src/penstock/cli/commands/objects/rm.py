"""``penstock rm``: delete objects, and ask first if that may be a mistake; abort unfinished uploads."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from threading import Event
from time import time
from typing import Annotated

from typer import Argument, Option, Typer

from penstock.cli.options import JsonObjects, Store, with_store
from penstock.cli.output import Report, harmless, moment, readable, write_row
from penstock.display import counted
from penstock.engine.contracts.driver import Delete
from penstock.errors import Cancelled, NotFound, PenstockError, Unusable, printable
from penstock.jobs import tasks
from penstock.jobs.tasks import run_jobs
from penstock.jobs.trees.guard import check_tree, clock_beside, link
from penstock.jobs.trees.selection import check_recursive, local, require, select
from penstock.progress import tally
from penstock.source import Source, open_source
from penstock.values import ObjectMeta, Upload

Victim = tuple[Source, ObjectMeta]

app = Typer()
_HOUR_S = 3600
_DAY_HOURS = 24.0
# Number of uploads that are named as left.
_SHOWN = 20


@app.command(
    epilog="Examples: penstock rm --dry-run 's3://bucket/train/**/*.tmp'; penstock rm --incomplete s3://bucket/"
)
@with_store
def rm(
    urls: Annotated[list[str], Argument(metavar="URL", help="Objects, trees (with -r), or globs in quotes.")],
    *,
    incomplete: Annotated[bool, Option("--incomplete", help="Instead of objects, abort unfinished uploads.")] = False,
    older_than: Annotated[
        float | None,
        Option(min=0, metavar="HOURS", help="With --incomplete: only uploads older than this. Default: 24."),
    ] = None,
    recursive: Annotated[bool, Option("--recursive", "-r", help="Delete whole trees.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Print what would be deleted, one per line.")] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    whole_bucket: Annotated[bool, Option("--whole-bucket", help="Allow emptying a whole bucket.")] = False,
    json: JsonObjects = False,
    store: Store,
) -> None:
    """Delete objects. Exit code 1 if nothing matches.

    On a terminal, rm asks before it deletes more than one object. A whole bucket, or a glob of everything in it,
    needs --whole-bucket. The working directory, the home directory and directories above them are refused. A link
    itself is deleted, not its target. Local directories stay.
    """
    if incomplete:
        _abort(urls, _DAY_HOURS if older_than is None else older_than, store, dry_run=dry_run, as_json=json)
        return
    if older_than is not None:
        # Without this refusal, objects of any age would be deleted.
        raise Unusable("--older-than is for --incomplete: penstock find --older lists old objects")
    for url in urls:
        require(url, store, Delete)
    selections = [link(url, store) or select(url, store, recursive=recursive) for url in urls]
    for each in selections:
        if recursive:
            check_recursive(each)
        check_tree(each, "name a prefix in it, or say --whole-bucket if you mean it", whole_bucket=whole_bucket)
    found = [(each.source, each.entries()) for each in selections]
    victims: Iterable[Victim] = ((source, meta) for source, metas in found for meta in metas)
    if dry_run:
        for source, meta in victims:
            url = source.url(meta.key)
            write_row({"url": url, "size": meta.size, "status": "planned"}, url, as_json=json)
        return
    if not yes and sys.stdin.isatty() and sys.stderr.isatty():
        victims = list(victims)
        _ask(victims)
    delete_victims(victims, as_json=json)


def _ask(victims: Sequence[Victim]) -> None:
    if len(victims) < 2:  # noqa: PLR2004  a single object needs no question
        return
    size = readable(sum(meta.size for _, meta in victims))
    first, last = (printable(source.url(meta.key)) for source, meta in (victims[0], victims[-1]))
    sys.stderr.write(f"{first}\n…\n{last}\nDelete these {len(victims):,} objects, {size}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Cancelled("nothing was deleted")


def delete_victims(victims: Iterable[Victim], *, as_json: bool) -> None:
    """Delete objects, many at once, and print the counts; a failure ends the command."""
    report, stop = Report("deleted", as_json=as_json), Event()
    with report, tally("deleting") as count, closing(run_jobs(victims, _delete_victim, lambda _: 0, stop)) as results:
        for (source, meta), result in results:
            count(1, meta.size)
            if isinstance(result, PenstockError):
                report.fail({"url": source.url(meta.key)}, meta.size, result)
            else:
                report.add({"url": source.url(meta.key)}, meta.size, "deleted")
    report.end()


async def _delete_victim(victim: Victim) -> None:
    source, meta = victim
    await tasks.delete(source, meta.key)


def _abort(urls: Sequence[str], hours: float, store: Store, *, dry_run: bool, as_json: bool) -> None:
    """Abort uploads to keys that begin with one of ``urls`` and were started more than ``hours`` ago.

    Nothing shows whether the process of an upload still runs, so ``hours`` must be longer than any upload takes.
    Uploads whose age the store does not report are left, and named on standard error. One request for each 1,000
    uploads, and one for each aborted upload.

    Raises:
        NotFound: No upload matches.
    """
    found, ageless = 0, []
    for source, upload in _old(urls, hours, store):
        url = source.url(upload.key)
        if upload.begun is None:
            ageless.append(harmless(url))
            continue
        record = {"url": url, "begun": moment(upload.begun), "status": "planned" if dry_run else "aborted"}
        write_row(record, url, as_json=as_json)
        if not dry_run:
            source.abort(upload)
        found += 1
    if ageless:
        shown, more = ageless[:_SHOWN], f" and {len(ageless) - _SHOWN:,} more" if len(ageless) > _SHOWN else ""
        why = "the store does not report their age (Azure deletes them after a week)"
        print(f"left {len(ageless):,}, {why}: {', '.join(shown)}{more}", file=sys.stderr)
    if not found:
        raise NotFound(f"no unfinished upload is older than {hours:g} hours", url=urls[0])
    print(f"{'would abort' if dry_run else 'aborted'} {counted(found, 'upload')}", file=sys.stderr)


def _old(urls: Sequence[str], hours: float, store: Store) -> Iterator[tuple[Source, Upload]]:
    for url in urls:
        source, prefix = open_source(url, store)
        if local(source) and not prefix:
            raise Unusable("this would delete every file of this machine: name a directory", url=source.root)
        # List all uploads first: a page token may become invalid when the upload that it names is aborted.
        for upload in list(source.unfinished(prefix)):
            now = time()
            if local(source):
                # If nothing can be written there, nothing can be removed either.
                with suppress(OSError):
                    now = clock_beside(upload.id)
            if upload.begun is None or upload.begun <= now - hours * _HOUR_S:
                yield source, upload
