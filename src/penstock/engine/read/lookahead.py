"""Read-ahead for a consumer, in order, within a budget of bytes and requests."""

from __future__ import annotations

import os
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Self

from penstock.engine.contracts.fetching import ReadCounts
from penstock.engine.operations.policy import Sizes
from penstock.engine.read.reader import start_reads
from penstock.engine.waiting import Inbox
from penstock.errors import Cancelled, Unusable
from penstock.events import Scope
from penstock.values import PAUSE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.engine.budget import Budget
    from penstock.engine.contracts.fetching import Fetching, ReadOperation
    from penstock.values import Span

# Bytes that a read of unknown length counts for, until others have shown their sizes.
_GUESS_BYTES = 1 << 20
# Smallest window in items, if the budget has as many: a smaller window would be refilled in tiny steps.
_LEAST = 128
# Shrink by an eighth at a time: shrinking late costs little, and a consumer that pauses may continue.
_SHRINK = 8
# Refill when a quarter of the window is free: one wake-up of the I/O thread then serves many requests.
_REFILL = 4


class Lookahead:
    """Iterator over the bytes of ``spans``, in order; up to a budget of bytes is in flight or waiting.

    Of the budget's items only as many are used as keep the transport busy: more would only fill the processor's caches.
    The first error ends the iterator. ``close`` (or garbage collection, or leaving a ``with``) cancels reads in flight.
    """

    def __init__(self, fetching: Fetching, spans: Iterator[Span], budget: Budget, scope: Scope | None = None) -> None:
        """Begin at the first ``next``; ``spans`` is consumed lazily, on the consumer's thread.

        ``spans`` may yield ``PAUSE`` if the next spans are not known yet; it is asked again once reads were taken. The
        requests belong to the operation ``scope``, which ends with the iterator.
        """
        self._fetching = fetching
        self._spans = spans
        self._budget = budget
        self._inbox = Inbox()
        self._reads: deque[ReadOperation] = deque()
        self._costs: deque[int] = deque()  # of the reads
        self._sizes = Sizes()  # of reads of unknown length
        self._next: Span | None = None
        self._drained = False
        self._window = budget.items_limit
        self._starved = False  # only the budget keeps reads from being sent
        self._low = 0  # items held at which to refill
        self._opened = False  # requests were sent
        self._pid = os.getpid()
        self._scope = scope or Scope()
        self._ended = False  # and the scope with it
        self.counts = ReadCounts()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        try:
            return self.advance().take()
        except BaseException as error:
            self._scope.end(error)
            self.close()
            raise

    def begin(self) -> None:
        if not self._reads and not self._drained:
            self._resize()
            self._refill()

    @property
    def ready(self) -> bool:
        reads = self._reads
        return bool(reads) and reads[0].complete

    def has_ready(self, count: int) -> bool:
        """Return whether the next ``count`` calls of ``advance`` have a read to return without waiting."""
        reads = self._reads
        try:
            return all(reads[number].complete for number in range(count))
        except IndexError:  # fewer were sent, or another thread closes meanwhile
            return False

    def advance(self) -> ReadOperation:
        """Return the next read, complete; its ``take`` returns the bytes or raises, and later reads still follow."""
        if self._pid != os.getpid():
            raise Unusable("an iterator over objects cannot continue after a fork: create it in the new process")
        self.refill()
        budget = self._budget
        reads = self._reads  # another thread may close meanwhile
        if not reads:
            self._ended = True
            self._scope.end()
            raise StopIteration
        read = reads[0]
        if not read.complete:
            self._await(read)
        reads.popleft()
        size_bytes = self._costs.popleft()
        budget.release(size_bytes)
        counts = self.counts
        attempts = read.attempts
        counts.requests += attempts
        if attempts != 1:
            counts.retries += read.retries
            counts.cached += not attempts and read.error is None
        if read.error is not None:
            counts.errors += 1
            return read
        if read.span.stop is None:
            size_bytes = read.size_bytes
            if not read.span.start:
                self._sizes.add(size_bytes)
        counts.size_bytes += size_bytes
        counts.read_bytes += size_bytes if attempts else 0
        return read

    def refill(self) -> None:
        """Draw further spans and send their requests, within the budget; for a caller that ends a pause."""
        if self._budget.items_held <= self._low and not self._drained:
            self._resize()
            self._refill()

    def _await(self, read: ReadOperation) -> None:
        began = monotonic()
        try:
            self._inbox.wait(read)
        finally:
            waited_s, counts = monotonic() - began, self.counts
            counts.waiting_s += waited_s
            if self._starved:
                counts.starved_s += waited_s

    def _resize(self) -> None:
        """Double the window when the transport has run out of reads; shrink it while many reads only queue.

        A short queue is enough for a consumer that keeps up, but not for one that takes many reads at once after a
        pause.
        """
        reads, limit, most = self._reads, self._fetching.concurrency(), self._budget.items_limit
        if len(reads) >= limit and reads[-limit].complete:
            self._window = min(2 * self._window, most)
        elif len(reads) > 2 * limit and not reads[-2 * limit].complete:
            self._window = max(self._window - self._window // _SHRINK, min(_LEAST, most))
        self._low = self._window - max(1, self._window // _REFILL)

    def _refill(self) -> None:
        budget, batch = self._budget, []
        held_back = self._window == budget.items_limit
        while budget.items_held < self._window:
            span = self._next or next(self._spans, None)
            if span is PAUSE:
                held_back = False
                break
            self._next = span
            if span is None:
                self._drained, held_back = True, False
                break
            cost = self._cost(span) if span.stop is None else span.stop - span.start
            if not budget.admitted(cost):
                held_back = True
                break
            self._costs.append(cost)
            batch.append(span)
            self._next = None
        if batch:
            self._starved = held_back and budget.items_held < self._fetching.concurrency()
            began = monotonic()
            reads = self._scope.run(start_reads, self._fetching, batch, self._inbox)
            self._reads.extend(reads)
            if self._opened or all(read.complete and not read.attempts for read in reads):  # from a cache
                self.counts.waiting_s += monotonic() - began
            else:
                self._opened, self.counts.opening_s = True, self.counts.opening_s + monotonic() - began

    def _cost(self, span: Span) -> int:
        return -span.start if span.start < 0 else span.most or self._sizes.bound or _GUESS_BYTES

    def close(self) -> None:
        reads, self._reads, self._drained = list(self._reads), deque(), True
        if reads:
            self._fetching.cancel_reads(reads)
        if not self._ended:
            self._ended = True
            self._scope.end(Cancelled("closed"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        """Close: an abandoned iterator leaves nothing running."""
        self.close()
