"""``penstock stat``: what a store says of single objects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from penstock.cli.exits import write
from penstock.cli.ls import harmless, readable
from penstock.cli.ls import moment as time
from penstock.errors import Unusable
from penstock.source import open_source

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.options import StoreOptions
    from penstock.values import ObjectMeta

__all__ = ["as_json", "as_text", "stat"]


def stat(urls: Sequence[str], shown: Callable[[str, ObjectMeta], str], store: StoreOptions) -> None:
    """Print what is known of each object: one request each, in their order; the first that is not there ends it."""
    for url in urls:
        source, key = open_source(url, store)
        if not key:
            raise Unusable("this names a bucket, not an object in it", url=source.root)
        write(shown(source.url(key), source.head(key)))


def as_text(url: str, meta: ObjectMeta) -> str:
    """Return lines for people."""
    rows = {
        "size": f"{meta.size} bytes" + (f" ({readable(meta.size)})" if meta.size >= 1024 else ""),  # noqa: PLR2004  KiB
        "modified": time(meta.modified) or "-",
        "etag": meta.etag or "-",
        **{f"metadata {name}": value for name, value in sorted(meta.metadata.items())},
    }
    lines = [url, *(f"  {name:<9} {value}" for name, value in rows.items())]
    return "".join(f"{harmless(line)}\n" for line in lines)


def as_json(url: str, meta: ObjectMeta) -> str:
    """Return a JSON object on one line."""
    record = {"url": url, "key": meta.key, "size": meta.size, "etag": meta.etag, "modified": time(meta.modified)}
    return json.dumps({**record, "metadata": meta.metadata}) + "\n"
