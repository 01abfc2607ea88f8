"""``penstock ls``: list objects, one per line, page by page."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from penstock.cli.exits import write
from penstock.cli.text import harmless, moment, readable
from penstock.errors import NotFound
from penstock.jobs.selection import elsewhere
from penstock.progress import tally
from penstock.source import open_source
from penstock.values import UNKNOWN_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.options import StoreOptions
    from penstock.values import ObjectMeta

    Line = Callable[[str, ObjectMeta], str]

__all__ = ["as_json", "as_long", "as_url", "ls", "nothing"]


def ls(url: str, line: Line, store: StoreOptions | str) -> None:
    """Print a line for each object whose URL begins with ``url``; memory for one page, one request for each 1,000.

    On a terminal, standard error shows the progress and, at the end, the number of objects and bytes.

    Raises:
        NotFound: No object matches.

    """
    source, prefix = open_source(url, store)
    count = size_bytes = 0
    # Lines on the same terminal already show the progress.
    with tally("listing", shown=False if sys.stdout.isatty() else None) as tell:
        for page in source.pages(prefix):
            write("".join(f"{line(source.url(entry.key), entry)}\n" for entry in page.entries))
            count += len(page.entries)
            size_bytes += sum(entry.size for entry in page.entries if entry.size != UNKNOWN_SIZE)
            tell(len(page.entries), 0)
    if not count:
        raise nothing(source.url(prefix))
    if sys.stderr.isatty():
        print(f"{count:,} object{'s' * (count != 1)}, {readable(size_bytes)}", file=sys.stderr)


def nothing(url: str) -> NotFound:
    """Return the error for a URL without objects."""
    glob = " (it is taken as it stands, not as a glob)" if "*" in url else ""
    return NotFound(f"nothing there begins with this URL{glob}{elsewhere(url)}", url=url)


def as_url(url: str, entry: ObjectMeta) -> str:  # noqa: ARG001  one signature for all three
    """Return the URL; control characters are escaped where they would reach a terminal."""
    return harmless(url)


def as_long(url: str, entry: ObjectMeta) -> str:
    """Return size in bytes, time of the last change (UTC) and URL."""
    size = "-" if entry.size == UNKNOWN_SIZE else entry.size
    return f"{size:>15} {moment(entry.modified) or '-':>20} {harmless(url)}"


def as_json(url: str, entry: ObjectMeta) -> str:
    """Return a JSON object on one line; special characters in a key are escaped."""
    modified = moment(entry.modified)
    size = None if entry.size == UNKNOWN_SIZE else entry.size
    return json.dumps({"url": url, "key": entry.key, "size": size, "etag": entry.etag, "modified": modified})
