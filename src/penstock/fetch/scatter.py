"""Reads into memory that is there already: many spans at once, told one after another as they are full."""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING

from penstock.errors import Unusable
from penstock.waiting import Inbox

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from penstock.buffer import Buffer
    from penstock.fetch.fetcher import Fetcher
    from penstock.fetch.spanread import SpanRead
    from penstock.values import Span

__all__ = ["scatter"]


def scatter(fetcher: Fetcher, places: Iterator[tuple[Span, Buffer]], window_bytes: int) -> Generator[Span]:
    """Fill each target with its span, one request each, and yield the spans in order, once they are full.

    ``places`` is drawn from lazily: what is drawn and not yet yielded is at most ``window_bytes``, and one place more.
    The first error, in order, ends it. On any way out (an error, Ctrl-C, closing) nobody writes into any target more.
    """
    pid, inbox = os.getpid(), Inbox()
    reads: deque[SpanRead] = deque()
    held_bytes, drained = 0, False
    try:
        while True:
            batch: list[tuple[Span, Buffer]] = []
            while held_bytes < window_bytes and not drained:
                place = next(places, None)
                if place is None:
                    drained = True
                else:
                    batch.append(place)
                    held_bytes += place[1].size
            if batch:
                fresh = fetcher.make_reads(batch, inbox)
                reads.extend(fresh)  # before they are sent: an interrupt may come meanwhile
                fetcher.send_reads(fresh)
            if not reads:
                return
            read = reads[0]
            inbox.wait(read)
            read.check()
            reads.popleft()
            held_bytes -= (read.span.stop or 0) - read.span.start
            yield read.span
            if pid != os.getpid():
                raise Unusable("reads were begun before a fork and continued after it")
    finally:
        if pid == os.getpid():
            fetcher.stop(reads, inbox)
