"""``penstock stat``: metadata of objects, one by one."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

from itertools import islice

from typer import Typer

from penstock.cli.options import JsonLines, Store, Urls, with_store
from penstock.cli.output import harmless, json_line, moment, readable, write
from penstock.jobs.trees.selection import select_objects
from penstock.values import ObjectMeta

app = Typer()
_AT_ONCE = 256


@app.command(epilog="Example: penstock stat --json s3://bucket/train/0.png")
@with_store
def stat(urls: Urls, *, json: JsonLines = False, store: Store) -> None:
    """Print size, time, ETag and metadata of objects. Exit code 1 at the first object that does not exist.

    A glob stands for all matches in key order; an object with exactly this name takes precedence.
    """
    form = _as_json if json else _as_text
    for url in urls:
        found = select_objects(url, store)
        entries = found.entries()
        # One request for each object, 256 in parallel; a glob also takes one for each 1,000 listed objects.
        while some := list(islice(entries, _AT_ONCE)):
            for meta in [found.meta] if found.meta else found.source.stat_many([entry.key for entry in some]):
                write(form(found.source.url(meta.key), meta))


def _as_text(url: str, meta: ObjectMeta) -> str:
    rows = {
        "size": f"{meta.size} bytes" + (f" ({readable(meta.size)})" if meta.size >= 1024 else ""),  # noqa: PLR2004  KiB
        "modified": moment(meta.modified) or "-",
        "etag": meta.etag or "-",
        "type": meta.content_type or "-",
        **{f"metadata {name}": value for name, value in sorted(meta.metadata.items())},
    }
    lines = [url, *(f"  {name:<9} {value}" for name, value in rows.items())]
    return "".join(f"{harmless(line)}\n" for line in lines)


def _as_json(url: str, meta: ObjectMeta) -> str:
    record = {"url": url, "key": meta.key, "size": meta.size, "etag": meta.etag, "modified": moment(meta.modified)}
    return json_line({**record, "type": meta.content_type, "metadata": meta.metadata}) + "\n"
