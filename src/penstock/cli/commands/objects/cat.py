"""``penstock cat``: objects to standard output, in bounded memory."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

import os
import re
import sys
from typing import Annotated

from typer import Option, Typer

from penstock.cli.options import Store, Urls, with_store
from penstock.cli.output import handle_output_errors
from penstock.errors import Unusable
from penstock.jobs.trees.selection import select_objects
from penstock.values import cut_spans

app = Typer()
_PIECE_BYTES = 8 << 20
# Number of equal shares of options.read.ahead_bytes (256 MiB); this command uses one of them.
_READERS = 4
_RANGE = re.compile(r"(\d*):(\d*)")


@app.command(epilog="Example: penstock cat --range 0:512 s3://bucket/shard-0.tar | xxd")
@with_store
def cat(
    urls: Urls,
    *,
    span: Annotated[
        str, Option("--range", metavar="START:STOP", help="Bytes from START up to, not including, STOP.")
    ] = ":",
    store: Store,
) -> None:
    """Write objects to standard output, one after another. Exit code 1 at the first object that does not exist.

    A glob stands for all matches in key order; an object with exactly this name takes precedence.
    """
    start, stop = _parse_range(span)
    for url in urls:
        found = select_objects(url, store)
        spans = (span for meta in found.entries() for span in cut_spans(meta, _PIECE_BYTES, start, stop))
        # 64 MiB are read ahead, one request for each 8 MiB.
        with found.source.lookahead(spans, _READERS) as pieces:
            for piece in pieces:
                _out(piece)


def _parse_range(span: str) -> tuple[int, int | None]:
    match = _RANGE.fullmatch(span)
    if match is None or (match[2] and int(match[1] or 0) > int(match[2])):
        raise Unusable(f"--range {span!r}: write START:STOP in bytes, STOP not included; either may be left out")
    return int(match[1] or 0), int(match[2]) if match[2] else None


def _out(data: bytes) -> None:
    """Write bytes without Python's buffer, which would keep the bytes that a closed reader did not take."""
    view = memoryview(data)
    with handle_output_errors():
        while view:
            view = view[os.write(sys.stdout.fileno(), view) :]
