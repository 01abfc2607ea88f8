"""``penstock rm``: delete objects, and ask first if that may be a mistake."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING

from penstock.cli.exits import write
from penstock.cli.report import Report
from penstock.cli.text import harmless, readable
from penstock.engine.contracts.driver import Delete
from penstock.errors import Cancelled, PenstockError, printable
from penstock.jobs import steps
from penstock.jobs.guard import check_tree, link
from penstock.jobs.pool import run_jobs
from penstock.jobs.selection import require, select
from penstock.progress import tally

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.options import StoreOptions
    from penstock.source import Source
    from penstock.values import ObjectMeta

    Victim = tuple[Source, ObjectMeta]

__all__ = ["How", "rm"]


@dataclass(frozen=True, slots=True)
class How:
    """The options of ``rm``."""

    recursive: bool = False
    dry_run: bool = False
    yes: bool = False
    whole_bucket: bool = False
    json: bool = False


def rm(urls: Sequence[str], how: How, store: StoreOptions | str) -> None:
    """Delete the objects that ``urls`` name; one request for each 1,000 listed, and one for each object.

    On a terminal, the user must confirm the deletion of more than one object, unless ``yes``. A failure does not stop
    the other deletions. A link itself is deleted, not its target.

    Raises:
        NotFound: Nothing matches one of ``urls``.
        Unusable: A whole bucket, without ``whole_bucket``; the home or working directory, or a directory above them; a
            link with a ``/`` at the end.
        Cancelled: The answer was no; nothing was deleted.
        SystemExit: Some objects could not be deleted: the code of the worst error.

    """
    for url in urls:
        require(url, store, Delete)
    selections = [link(url, store) or select(url, store, recursive=how.recursive) for url in urls]
    for each in selections:
        check_tree(each, "name a prefix in it, or say --whole-bucket if you mean it", whole_bucket=how.whole_bucket)
    found = [(each.source, each.entries()) for each in selections]
    victims: Iterable[Victim] = ((source, meta) for source, metas in found for meta in metas)
    if how.dry_run:
        for source, meta in victims:
            write(_planned(source.url(meta.key), meta.size, as_json=how.json))
        return
    if not how.yes and sys.stdin.isatty() and sys.stderr.isatty():
        victims = list(victims)
        _ask(victims)
    _delete(victims, as_json=how.json)


def _planned(url: str, size_bytes: int, *, as_json: bool) -> str:
    if as_json:
        return json.dumps({"url": url, "size": size_bytes, "status": "planned"}) + "\n"
    return harmless(url) + "\n"


def _ask(victims: Sequence[Victim]) -> None:
    if len(victims) < 2:  # noqa: PLR2004  a single object needs no question
        return
    size = readable(sum(meta.size for _, meta in victims))
    first, last = (printable(source.url(meta.key)) for source, meta in (victims[0], victims[-1]))
    sys.stderr.write(f"{first}\n…\n{last}\nDelete these {len(victims):,} objects, {size}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Cancelled("nothing was deleted")


def _delete(victims: Iterable[Victim], *, as_json: bool) -> None:
    report, stop = Report("deleted", as_json=as_json), Event()
    with (
        report,
        tally("deleting") as count,
        closing(run_jobs(victims, _deleted, lambda _: 0, stop)) as results,
    ):
        for (source, meta), result in results:
            count(1, meta.size)
            if isinstance(result, PenstockError):
                report.fail({"url": source.url(meta.key)}, meta.size, result)
            else:
                report.add({"url": source.url(meta.key)}, meta.size, "deleted")
    report.end()


async def _deleted(victim: Victim) -> None:
    source, meta = victim
    await steps.delete(source, meta.key)
