"""``penstock ls``, ``find`` and ``stat``: objects by URL, by name, size and age, and their metadata, one by one."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

import sys
from collections.abc import Callable
from itertools import islice
from typing import Annotated

from typer import Argument, Option, Typer

import penstock as ps
from penstock.cli.options import JsonLines, JsonUrls, Long, Prefix, Store, Urls, seconds, size_bytes, with_store
from penstock.cli.output import harmless, json_line, moment, readable, write
from penstock.display import counted
from penstock.errors import NotFound
from penstock.jobs.trees.selection import elsewhere, select_objects
from penstock.progress import tally
from penstock.source import open_source
from penstock.values import UNKNOWN_SIZE, ObjectMeta

app = Typer()
# Requests of ``stat`` in parallel.
_AT_ONCE = 256


@app.command()
@with_store
def ls(url: Prefix, *, long: Long = False, json: JsonUrls = False, store: Store) -> None:
    """List the objects whose URL begins with URL, one per line. Exit code 1 if there are none."""
    line = choose_format(long=long, json=json)
    source, prefix = open_source(url, store)
    count = size_bytes = 0
    # Memory for one page. Lines on the same terminal already show the progress.
    with tally("listing", shown=False if sys.stdout.isatty() else None) as tell:
        for page in source.pages(prefix):
            write("".join(f"{line(source.url(entry.key), entry)}\n" for entry in page.entries))
            count += len(page.entries)
            size_bytes += sum(entry.size for entry in page.entries if entry.size != UNKNOWN_SIZE)
            tell(len(page.entries), 0)
    if not count:
        raise make_empty_error(source.url(prefix))
    if (long and not json) or sys.stderr.isatty():
        print(f"{counted(count, 'object')}, {readable(size_bytes)}", file=sys.stderr)


@app.command(epilog="Example: penstock find --name '*.tmp' --older 7d s3://bucket/runs")
@with_store
def find(
    url: Annotated[str, Argument(metavar="URL", help="A directory, a prefix or a bucket.")],
    *,
    kind: Annotated[str, Option("--type", metavar="object|marker|folder", help="What to find.")] = "object",
    long: Long = False,
    json: JsonUrls = False,
    name: Annotated[list[str] | None, Option(metavar="GLOB", help="Of the last component of a key.")] = None,
    path: Annotated[list[str] | None, Option(metavar="GLOB", help="Of the key below URL; ** crosses /.")] = None,
    larger: Annotated[str | None, Option(metavar="SIZE", help="At least so large: 10k, 4MiB.")] = None,
    smaller: Annotated[str | None, Option(metavar="SIZE", help="At most so large.")] = None,
    newer: Annotated[str | None, Option(metavar="TIME", help="Changed within this time: 90, 15m, 7d.")] = None,
    older: Annotated[str | None, Option(metavar="TIME", help="Changed before that.")] = None,
    store: Store,
) -> None:
    """Find objects below URL by name, size and age, one per line. Exit code 1 if there are none."""
    line, found = choose_format(long=long, json=json), False
    matches = ps.find(
        url,
        name=name or (),
        path=path or (),
        larger_bytes=None if larger is None else size_bytes(larger, "--larger"),
        smaller_bytes=None if smaller is None else size_bytes(smaller, "--smaller"),
        newer_s=None if newer is None else seconds(newer, "--newer"),
        older_s=None if older is None else seconds(older, "--older"),
        kind=kind,  # type: ignore[arg-type]  # ps.find validates it
        store=store,
    )
    for meta in matches:
        write(line(meta.url, meta) + "\n")
        found = True
    if not found:
        if name or path or any(each is not None for each in (larger, smaller, newer, older)):
            raise NotFound("no object has the requested name, size and age", url=url)
        raise make_empty_error(url)


@app.command(epilog="Example: penstock stat --json s3://bucket/train/0.png")
@with_store
def stat(urls: Urls, *, json: JsonLines = False, store: Store) -> None:
    """Print size, time, ETag and metadata of objects. Exit code 1 at the first object that does not exist.

    A glob stands for all matches in key order; an object with exactly this name takes precedence.
    """
    form = _as_stat_json if json else _as_stat_text
    for url in urls:
        found = select_objects(url, store)
        entries = found.entries()
        # One request for each object, 256 in parallel; a glob also takes one for each 1,000 listed objects.
        while some := list(islice(entries, _AT_ONCE)):
            for meta in [found.meta] if found.meta else found.source.stat_many([entry.key for entry in some]):
                write(form(found.source.url(meta.key), meta))


def _as_stat_text(url: str, meta: ObjectMeta) -> str:
    rows = {
        "size": f"{meta.size} bytes" + (f" ({readable(meta.size)})" if meta.size >= 1024 else ""),  # noqa: PLR2004  KiB
        "modified": moment(meta.modified) or "-",
        "etag": meta.etag or "-",
        "type": meta.content_type or "-",
        **{f"metadata {name}": value for name, value in sorted(meta.metadata.items())},
    }
    lines = [url, *(f"  {name:<9} {value}" for name, value in rows.items())]
    return "".join(f"{harmless(line)}\n" for line in lines)


def _as_stat_json(url: str, meta: ObjectMeta) -> str:
    record = {"url": url, "key": meta.key, "size": meta.size, "etag": meta.etag, "modified": moment(meta.modified)}
    return json_line({**record, "type": meta.content_type, "metadata": meta.metadata}) + "\n"


def make_empty_error(url: str) -> NotFound:
    glob = " (it is taken as it stands, not as a glob)" if "*" in url else ""
    return NotFound(f"no object's URL begins with this{glob}{elsewhere(url)}", url=url)


def choose_format(*, long: bool, json: bool) -> Callable[[str, ObjectMeta], str]:
    return _as_json if json else _as_long if long else _as_url


def _as_url(url: str, entry: ObjectMeta) -> str:  # noqa: ARG001  one signature for all three
    return harmless(url)


def _as_long(url: str, entry: ObjectMeta) -> str:
    size = "-" if entry.size == UNKNOWN_SIZE else readable(entry.size)
    return f"{size:>10}  {moment(entry.modified) or '-':>20}  {harmless(url)}"


def _as_json(url: str, entry: ObjectMeta) -> str:
    modified = moment(entry.modified)
    size = None if entry.size == UNKNOWN_SIZE else entry.size
    return json_line({"url": url, "key": entry.key, "size": size, "etag": entry.etag, "modified": modified})
