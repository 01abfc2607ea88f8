"""``penstock cat``: objects to standard output, in bounded memory."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from penstock.cli.exits import write
from penstock.errors import Unusable
from penstock.source import open_source
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.options import StoreOptions
    from penstock.values import ObjectMeta

__all__ = ["cat"]

_PIECE_BYTES = 8 << 20
_READERS = 4  # share options.read.ahead_bytes, 256 MiB, as that many
_RANGE = re.compile(r"(\d*):(\d*)")


def cat(urls: Sequence[str], span: str, store: StoreOptions) -> None:
    """Write objects to standard output, one after another; 64 MiB are read ahead, one request for each 8 MiB.

    ``span`` is ``START:STOP``, half-open, of each of them; either may be left out, and what lies past the end is
    nothing. Every object is held to the version it had at first, and the first error ends it all.

    Raises:
        Unusable: ``span`` is no such range.

    """
    start, stop = _bounds(span)
    for url in urls:
        source, key = open_source(url, store)
        if not key:
            raise Unusable("this names a bucket, not an object in it", url=source.root)
        meta = source.head(key)
        with source.lookahead(_spans(meta, start, stop), _READERS) as pieces:
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
    """Write bytes past Python's buffer, which would hold what a reader that has gone did not take."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(sys.stdout.fileno(), view) :]
    except BrokenPipeError:
        write("\n")  # which meets the same, and ends the process as every command does
