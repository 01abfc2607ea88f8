"""Reads into memory that is there already: many spans at once, told one after another as they are full."""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING

from penstock.errors import Unusable
from penstock.waiting import Inbox

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from penstock.budget import Budget
    from penstock.buffer import Buffer
    from penstock.protocols.fetching import Fetching, PendingRead
    from penstock.values import Span

__all__ = ["scatter"]


def scatter(fetching: Fetching, places: Iterator[tuple[Span, Buffer]], window: Budget) -> Generator[Span]:
    """Fill each target with its span, one request each, and yield the spans in order, once they are full.

    ``places`` is drawn from lazily: what is drawn and not yet yielded is at most what ``window`` allows by then, in
    bytes, and one place more.
    The first error, in order, ends it. On any way out (an error, Ctrl-C, closing) nothing writes into a target then.
    """
    pid, inbox = os.getpid(), Inbox()
    reads: deque[tuple[Span, PendingRead | None]] = deque()  # of what is empty there is none
    held_bytes, drained = 0, False
    try:
        while True:
            batch: list[tuple[Span, Buffer]] = []
            while held_bytes < window.bytes_limit and not drained:
                place = next(places, None)
                if place is None:
                    drained = True
                else:
                    batch.append(place)
                    held_bytes += place[1].size
            if batch:
                prepared = fetching.prepare_reads([place for place in batch if place[1].size], inbox)
                each = iter(prepared)
                reads.extend([(span, next(each) if buffer.size else None) for span, buffer in batch])
                fetching.send_reads(prepared)  # held by now: an interrupt may come meanwhile
            if not reads:
                return
            span, read = reads[0]
            if read is not None:
                inbox.wait(read)
                read.check()
            reads.popleft()
            held_bytes -= (span.stop or 0) - span.start
            yield span
            if pid != os.getpid():
                raise Unusable("reads were begun before a fork and continued after it")
    finally:
        if pid == os.getpid():
            fetching.stop_reads([read for _, read in reads if read is not None])
