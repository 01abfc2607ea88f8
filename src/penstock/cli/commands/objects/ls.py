"""``penstock ls``: list objects, one per line, page by page."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

import sys
from collections.abc import Callable

from typer import Typer

from penstock.cli.options import JsonUrls, Long, Prefix, Store, with_store
from penstock.cli.output import harmless, json_line, moment, readable, write
from penstock.display import counted
from penstock.errors import NotFound
from penstock.jobs.trees.selection import elsewhere
from penstock.progress import tally
from penstock.source import open_source
from penstock.values import UNKNOWN_SIZE, ObjectMeta

app = Typer()


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


def make_empty_error(url: str) -> NotFound:
    """Return the error for a URL without objects."""
    glob = " (it is taken as it stands, not as a glob)" if "*" in url else ""
    return NotFound(f"nothing there begins with this URL{glob}{elsewhere(url)}", url=url)


def choose_format(*, long: bool, json: bool) -> Callable[[str, ObjectMeta], str]:
    """Return the function that makes the line of an object from its URL and metadata."""
    return _as_json if json else _as_long if long else _as_url


def _as_url(url: str, entry: ObjectMeta) -> str:  # noqa: ARG001  one signature for all three
    """Return the URL; control characters are escaped where they would reach a terminal."""
    return harmless(url)


def _as_long(url: str, entry: ObjectMeta) -> str:
    """Return size, time of the last change (UTC) and URL, in columns."""
    size = "-" if entry.size == UNKNOWN_SIZE else readable(entry.size)
    return f"{size:>10}  {moment(entry.modified) or '-':>20}  {harmless(url)}"


def _as_json(url: str, entry: ObjectMeta) -> str:
    """Return a JSON object on one line; special characters in a key are escaped."""
    modified = moment(entry.modified)
    size = None if entry.size == UNKNOWN_SIZE else entry.size
    return json_line({"url": url, "key": entry.key, "size": size, "etag": entry.etag, "modified": modified})
