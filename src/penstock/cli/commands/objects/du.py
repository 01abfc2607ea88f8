"""``penstock du``: number of objects and bytes, grouped by the next components of keys, as a tree."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated

from typer import Option, Typer

from penstock.cli.commands.objects.ls import make_empty_error
from penstock.cli.options import JsonLines, Prefix, Store, with_store
from penstock.cli.output import draws_unicode, harmless, readable, share_bar, write, write_row
from penstock.jobs.trees.selection import stat_unsized
from penstock.source import open_source
from penstock.values import ObjectMeta

app = Typer()
# Prefixes of one level that have a line of their own; the smaller ones share a line.
_SHOWN = 50


@dataclass(slots=True)
class SizeRow:
    """Sum over one prefix, over the objects in no prefix (``objects``), or over all objects (``total``)."""

    kind: str
    url: str
    depth: int = 0
    objects: int = 0
    size_bytes: int = 0
    inner: list["SizeRow"] = field(default_factory=list)

    def add(self, size_bytes: int, objects: int = 1) -> None:
        self.objects += objects
        self.size_bytes += size_bytes


@app.command(epilog="Example: penstock du --depth 2 s3://bucket/train/")
@with_store
def du(
    url: Prefix,
    *,
    depth: Annotated[int, Option("--depth", "-d", min=1, max=10, help="Levels of the tree.")] = 1,
    summary: Annotated[bool, Option("--summary", "-s", help="The total only.")] = False,
    json: JsonLines = False,
    store: Store,
) -> None:
    """Sum the objects whose URL begins with URL, as a tree of the parts of keys before a /, the largest first.

    Exit code 1 if there are no objects.
    """
    source, prefix = open_source(url, store)
    total = SizeRow("total", source.url(prefix))
    loose = SizeRow("objects", source.url(prefix), 1)
    # One request for each 1,000 objects, and memory for one page and the tree.
    entries = (entry for page in source.pages(prefix) for entry in stat_unsized(source, page.entries))
    # Prefixes of each level that wait for the one that holds them, which ends after them.
    waiting: list[list[SizeRow]] = [[] for _ in range(depth + 2)]
    for group in _groups(entries, (len(prefix), depth), source.url, (loose, total)):
        if json and not summary:
            _record(group)
        elif not summary:
            group.inner, waiting[group.depth + 1] = waiting[group.depth + 1], []
            waiting[group.depth].append(group)
    if not total.objects:
        raise make_empty_error(source.url(prefix))
    if json:
        for row in (loose, total):
            if row is total or (loose.objects and not summary):
                _record(row)
        return
    total.inner = waiting[1]
    write("".join(f"{harmless(line)}\n" for line in _lines(total, total.size_bytes, "", "")))


def _record(row: SizeRow) -> None:
    record = {"url": row.url, "kind": row.kind, "depth": row.depth, "objects": row.objects, "size": row.size_bytes}
    write_row(record, "", as_json=True)


def _groups(
    entries: Iterable[ObjectMeta], levels: tuple[int, int], url: Callable[[str], str], others: tuple[SizeRow, SizeRow]
) -> Iterator[SizeRow]:
    """Yield a row for each prefix after its last key, inner ones first, for sorted keys.

    ``levels`` are the length of the keys' common beginning and the number of levels below it. Objects in no prefix, and
    all objects, are added to ``others``.
    """
    loose, total = others
    start, depth = levels
    names: list[str] = []
    rows: list[SizeRow] = []
    for entry in entries:
        total.add(entry.size)
        heads = _heads(entry.key, start, depth)
        if not heads:
            loose.add(entry.size)
        # Equal prefixes are nested: none follows one that differs.
        kept = sum(one == other for one, other in zip(names, heads, strict=False))
        while len(rows) > kept:
            yield rows.pop()
        rows += [SizeRow("prefix", url(head), at) for at, head in enumerate(heads[kept:], kept + 1)]
        names = heads
        for row in rows:
            row.add(entry.size)
    while rows:
        yield rows.pop()


def _heads(key: str, start: int, depth: int) -> list[str]:
    """Return the prefixes of a key, the shortest first, that end with a / after ``start``."""
    found: list[str] = []
    while len(found) < depth and (start := key.find("/", start) + 1):
        found.append(key[:start])
    return found


def _lines(row: SizeRow, whole: int, name: str, indent: str) -> Iterator[str]:
    """Yield the line of a row and of its children, the largest first."""
    share = row.size_bytes / whole if whole else 0.0
    yield f"{readable(row.size_bytes):>10} {share:>5.0%} {share_bar(share)} {row.objects:>12,}  {name or row.url}"
    inner = _largest(row)
    branch, last, line = ("├─ ", "└─ ", "│  ") if draws_unicode() else ("|- ", "`- ", "|  ")
    for each in inner:
        end = each is inner[-1]
        text = each.url.removeprefix(row.url) if each.kind == "prefix" else each.url
        yield from _lines(each, whole, f"{indent}{last if end else branch}{text}", indent + ("   " if end else line))


def _largest(row: SizeRow) -> list[SizeRow]:
    """Return a row's children, the largest first: prefixes, many small prefixes as one, and objects in none."""
    if not row.inner:
        return []
    found = sorted(row.inner, key=lambda each: (-each.size_bytes, each.url))
    shown, rest = found[:_SHOWN], found[_SHOWN:]
    if rest:
        shown.append(SizeRow("rest", f"({len(rest):,} smaller prefixes)", row.depth + 1))
        shown[-1].add(sum(each.size_bytes for each in rest), sum(each.objects for each in rest))
    loose = SizeRow("objects", "(objects)", row.depth + 1)
    objects, size_bytes = (sum(getattr(each, name) for each in found) for name in ("objects", "size_bytes"))
    loose.add(row.size_bytes - size_bytes, row.objects - objects)
    return shown + ([loose] if loose.objects else [])
