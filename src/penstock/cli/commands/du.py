"""``penstock du``: number of objects and bytes, grouped by the next key component."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cli.commands.ls import nothing
from penstock.cli.exits import write
from penstock.cli.text import harmless
from penstock.jobs.selection import sized
from penstock.source import open_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.options import StoreOptions
    from penstock.values import ObjectMeta

__all__ = ["Row", "as_json", "as_text", "du"]


@dataclass(slots=True)
class Row:
    """Sum over one prefix, over the objects in no prefix (``objects``), or over all objects (``total``)."""

    kind: str
    url: str
    objects: int = 0
    size_bytes: int = 0

    def add(self, size_bytes: int) -> None:
        """Count an object."""
        self.objects += 1
        self.size_bytes += size_bytes


def du(url: str, line: Callable[[Row], str], store: StoreOptions | str, *, summary: bool) -> None:
    """Print sums of the objects whose URL begins with ``url``; one request for each 1,000, memory for one page.

    One line for each prefix up to the next ``/``, one for the objects without such a prefix, and one for all objects.
    With ``summary``, only the last one.

    Raises:
        NotFound: No object matches.

    """
    source, prefix = open_source(url, store)
    total = Row("total", source.url(prefix))
    loose = Row("objects", source.url(prefix))
    entries = (entry for page in source.pages(prefix) for entry in sized(source, page.entries))
    for group in _groups(entries, len(prefix), source.url, (loose, total)):
        if not summary:
            write(line(group))
    if not total.objects:
        raise nothing(source.url(prefix))
    if loose.objects and not summary:
        write(line(loose))
    write(line(total))


def as_text(row: Row) -> str:
    """Return bytes, objects and URL, in columns."""
    note = {"objects": "  (in no prefix)", "total": "  (all)"}.get(row.kind, "")
    return harmless(f"{row.size_bytes:>18} {row.objects:>12} {row.url}{note}") + "\n"


def as_json(row: Row) -> str:
    """Return a JSON object on one line."""
    return json.dumps({"url": row.url, "kind": row.kind, "objects": row.objects, "size": row.size_bytes}) + "\n"


def _groups(
    entries: Iterable[ObjectMeta], depth: int, url: Callable[[str], str], others: tuple[Row, Row]
) -> Iterator[Row]:
    """Yield a row for each prefix after its last key, for sorted keys; add to ``others``: the rest, and all objects."""
    loose, total = others
    group, named = Row("prefix", ""), ""
    for entry in entries:
        total.add(entry.size)
        head = entry.key[: entry.key.find("/", depth) + 1]
        if not head:
            loose.add(entry.size)
            continue
        if head != named:
            if group.objects:
                yield group
            group, named = Row("prefix", url(head)), head
        group.add(entry.size)
    if group.objects:
        yield group
