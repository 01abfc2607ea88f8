"""``penstock cat``: objects to standard output, in bounded memory."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from penstock.cli.exits import outgoing
from penstock.errors import Unusable
from penstock.jobs.selection import select_objects
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.options import StoreOptions
    from penstock.values import ObjectMeta

__all__ = ["cat"]

_PIECE_BYTES = 8 << 20
# Number of equal shares of options.read.ahead_bytes (256 MiB); this command uses one of them.
_READERS = 4
_RANGE = re.compile(r"(\d*):(\d*)")


def cat(urls: Sequence[str], span: str, store: StoreOptions | str) -> None:
    """Write objects to standard output, one after another; the matches of a glob are in key order.

    64 MiB are read ahead, one request for each 8 MiB.

    ``span`` is the half-open range ``START:STOP`` of bytes of each object; either may be left out, and bytes past the
    end are ignored. All reads of an object are pinned to its first version. The first error ends the command.

    Raises:
        Unusable: ``span`` is not a valid range.
        NotFound: One of ``urls`` matches nothing; the objects before it have been written.

    """
    start, stop = _bounds(span)
    for url in urls:
        found = select_objects(url, store)
        spans = (span for meta in found.entries() for span in _spans(meta, start, stop))
        with found.source.lookahead(spans, _READERS) as pieces:
            for piece in pieces:
                _out(piece)


def _bounds(span: str) -> tuple[int, int | None]:
    match = _RANGE.fullmatch(span)
    if match is None or (match[2] and int(match[1] or 0) > int(match[2])):
        raise Unusable(f"--range {span!r}: write START:STOP in bytes, STOP not included; either may be left out")
    return int(match[1] or 0), int(match[2]) if match[2] else None


def _spans(meta: ObjectMeta, start: int, stop: int | None) -> Iterator[Span]:
    stop = meta.size if stop is None else min(stop, meta.size)
    for at in range(start, stop, _PIECE_BYTES):
        yield Span(meta.key, at, min(at + _PIECE_BYTES, stop), meta.etag)


def _out(data: bytes) -> None:
    """Write bytes without Python's buffer, which would keep the bytes that a closed reader did not take."""
    view = memoryview(data)
    with outgoing():
        while view:
            view = view[os.write(sys.stdout.fileno(), view) :]
