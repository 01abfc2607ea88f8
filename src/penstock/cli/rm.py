"""``penstock rm``: deletes objects, and asks first where that may be a mistake."""

from __future__ import annotations

import sys
from contextlib import closing
from threading import Event
from typing import TYPE_CHECKING

from penstock.cli.crew import crew
from penstock.cli.exits import write
from penstock.cli.ls import harmless, readable
from penstock.cli.pick import local, pick
from penstock.cli.report import Report, bar
from penstock.errors import Cancelled, PenstockError, Unusable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.cli.pick import Pick
    from penstock.options import StoreOptions
    from penstock.source import Source
    from penstock.values import ObjectMeta

    Victim = tuple[Source, ObjectMeta]

__all__ = ["rm"]


def rm(urls: Sequence[str], store: StoreOptions, *, recursive: bool, dry_run: bool, yes: bool) -> None:
    """Delete what ``urls`` mean; one request for each 1,000 listed, and one for each object.

    On a terminal it asks before it deletes more than one, unless ``yes``. What fails does not stop the others.

    Raises:
        NotFound: Nothing matches one of ``urls``.
        Unusable: A whole bucket, without ``recursive`` and ``yes``.
        Cancelled: The answer was no; nothing was deleted.
        SystemExit: Something could not be deleted: the code of the worst.

    """
    picks = [pick(url, store, recursive=recursive) for url in urls]
    for each in picks:
        _guard(each, sure=recursive and yes)
    found = [(each.source, each.entries()) for each in picks]
    victims: Iterable[Victim] = ((source, meta) for source, metas in found for meta in metas)
    if dry_run:
        for source, meta in victims:
            write(harmless(source.url(meta.key)) + "\n")
        return
    if not yes and sys.stdin.isatty() and sys.stderr.isatty():
        victims = list(victims)
        _ask(victims)
    _delete(victims)


def _guard(picked: Pick, *, sure: bool) -> None:
    origin = picked.origin
    everything = origin.kind == "tree" or ("**" in origin.glob and not origin.glob.strip("*/"))
    if origin.prefix or origin.kind == "object" or not everything:
        return
    if local(picked.source):
        raise Unusable("this is every file of this machine: name a directory", url=origin.root)
    if not sure:
        raise Unusable("this is a whole bucket: if you mean it, say both -r and -y", url=origin.root)


def _ask(victims: Sequence[Victim]) -> None:
    if len(victims) < 2:  # noqa: PLR2004  one was named, and is not asked for
        return
    size = readable(sum(meta.size for _, meta in victims))
    first, last = (harmless(source.url(meta.key)) for source, meta in (victims[0], victims[-1]))
    sys.stderr.write(f"{first}\n…\n{last}\nDelete these {len(victims):,} objects, {size}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Cancelled("nothing was deleted")


def _delete(victims: Iterable[Victim]) -> None:
    report, stop = Report("deleted"), Event()
    with (
        bar(None, None) as count,
        closing(crew(victims, lambda each: each[0].delete([each[1].key]), lambda _: 0, stop)) as results,
    ):
        for (source, meta), result in results:
            count(1, meta.size)
            if isinstance(result, PenstockError):
                report.fail({"url": source.url(meta.key)}, meta.size, result)
            else:
                report.add({"url": source.url(meta.key)}, meta.size, "deleted")
    report.end()
