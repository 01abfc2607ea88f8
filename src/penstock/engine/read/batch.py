"""Reads that are sent together: started, waited for all at once, or read into one buffer."""

from __future__ import annotations

from itertools import repeat
from operator import methodcaller
from typing import TYPE_CHECKING

from penstock.engine.waiting import Inbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.engine.buffer import Buffer
    from penstock.engine.contracts.fetching import Fetching, PendingRead, ReadOwner
    from penstock.values import Span

__all__ = ["read_into", "read_many", "start_reads"]

_taken: Callable[[PendingRead], bytes] = methodcaller("take")  # for ``map``, which is faster than a loop


def start_reads(fetching: Fetching, spans: Iterable[Span], owner: ReadOwner) -> list[PendingRead]:
    """Send reads, each into separate memory; each notifies ``owner`` when it is complete."""
    reads = fetching.prepare_reads(zip(spans, repeat(None)), owner)
    fetching.send_reads(reads)
    return reads


def read_many(fetching: Fetching, spans: Iterable[Span]) -> list[bytes]:
    """Read all spans at once and return their bytes in order; raise the first error, in order."""
    inbox = Inbox()
    reads = start_reads(fetching, spans, inbox)
    try:
        # The last read first, so that one wake-up serves all of them.
        for read in reversed(reads):
            if not read.complete:
                inbox.wait(read)
    except BaseException:
        fetching.cancel_reads(reads)
        raise
    return [*map(_taken, reads)]


def read_into(fetching: Fetching, span: Span, buffer: Buffer) -> None:
    """Fill ``buffer`` with the span, in parallel ranges; after the return, or an error, nothing writes into it."""
    inbox = Inbox()
    reads = fetching.prepare_reads(((span, buffer),), inbox)
    try:
        fetching.send_reads(reads)
        inbox.wait(reads[0])
    except BaseException:
        fetching.stop_reads(reads)
        raise
    reads[0].check()
