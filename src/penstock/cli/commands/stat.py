"""``penstock stat``: metadata of objects, one by one."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING

from penstock.cli.exits import write
from penstock.cli.text import harmless, readable
from penstock.cli.text import moment as time
from penstock.jobs.selection import select_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.options import StoreOptions
    from penstock.values import ObjectMeta

__all__ = ["as_json", "as_text", "stat"]

_AT_ONCE = 256


def stat(urls: Sequence[str], shown: Callable[[str, ObjectMeta], str], store: StoreOptions | str) -> None:
    """Print the metadata of each object, in the order of ``urls`` and of a glob's keys; the first error ends it.

    One request for each object, 256 in parallel; a glob also takes one for each 1,000 listed objects.

    Raises:
        NotFound: One of ``urls`` matches nothing. Objects before it have been printed, of a glob all but up to 255.

    """
    for url in urls:
        found = select_objects(url, store)
        entries = found.entries()
        while some := list(islice(entries, _AT_ONCE)):
            for meta in [found.meta] if found.meta else found.source.stat_many([entry.key for entry in some]):
                write(shown(found.source.url(meta.key), meta))


def as_text(url: str, meta: ObjectMeta) -> str:
    """Return readable lines."""
    rows = {
        "size": f"{meta.size} bytes" + (f" ({readable(meta.size)})" if meta.size >= 1024 else ""),  # noqa: PLR2004  KiB
        "modified": time(meta.modified) or "-",
        "etag": meta.etag or "-",
        "type": meta.content_type or "-",
        **{f"metadata {name}": value for name, value in sorted(meta.metadata.items())},
    }
    lines = [url, *(f"  {name:<9} {value}" for name, value in rows.items())]
    return "".join(f"{harmless(line)}\n" for line in lines)


def as_json(url: str, meta: ObjectMeta) -> str:
    """Return a JSON object on one line."""
    record = {"url": url, "key": meta.key, "size": meta.size, "etag": meta.etag, "modified": time(meta.modified)}
    return json.dumps({**record, "type": meta.content_type, "metadata": meta.metadata}) + "\n"
