"""``penstock du``: number of objects and bytes, grouped by the next key component."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

from typer import Option, Typer

from penstock.cli.commands.objects.ls import nothing
from penstock.cli.options import JsonLines, Prefix, Store, with_store
from penstock.cli.output import write_row
from penstock.jobs.selection import sized
from penstock.source import open_source
from penstock.values import ObjectMeta

__all__ = ["Row", "app", "du"]

app = Typer()


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


@app.command(epilog="Example: penstock du s3://bucket/train/")
@with_store
def du(
    url: Prefix,
    *,
    summary: Annotated[bool, Option("--summary", "-s", help="The total only.")] = False,
    json: JsonLines = False,
    store: Store,
) -> None:
    """Sum the objects whose URL begins with URL, grouped by key up to the next /. Exit code 1 if there are none."""
    source, prefix = open_source(url, store)
    total = Row("total", source.url(prefix))
    loose = Row("objects", source.url(prefix))
    # One request for each 1,000 objects, and memory for one page.
    entries = (entry for page in source.pages(prefix) for entry in sized(source, page.entries))
    for group in _groups(entries, len(prefix), source.url, (loose, total)):
        if not summary:
            _print(group, as_json=json)
    if not total.objects:
        raise nothing(source.url(prefix))
    if loose.objects and not summary:
        _print(loose, as_json=json)
    _print(total, as_json=json)


def _print(row: Row, *, as_json: bool) -> None:
    note = {"objects": "  (in no prefix)", "total": "  (all)"}.get(row.kind, "")
    record = {"url": row.url, "kind": row.kind, "objects": row.objects, "size": row.size_bytes}
    write_row(record, f"{row.size_bytes:>18} {row.objects:>12} {row.url}{note}", as_json=as_json)


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
