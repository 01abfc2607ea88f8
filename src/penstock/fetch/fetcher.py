"""Sends operations on their way, many at once, and waits for them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from penstock.buffer import Buffer
from penstock.errors import Changed, PenstockError, Unusable
from penstock.events import operation
from penstock.fetch.operation import Operation
from penstock.fetch.policy import RetryPolicy
from penstock.fetch.spanread import RangeProbe, SpanRead, SplitRead
from penstock.fetch.unranged import WholeObjects
from penstock.values import Span
from penstock.waiting import Inbox

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.options import ReadOptions, RetryOptions
    from penstock.protocols.driver import Driver
    from penstock.protocols.exchange import Exchange, Transport

__all__ = ["Fetcher"]

T = TypeVar("T")

_PROBE_BYTES = 4 << 10  # as little as goes straight into memory


class Fetcher:
    """Operations on one store: many at once, each retried within a budget that all share."""

    def __init__(self, driver: Driver, transport: Transport, retry: RetryOptions, read: ReadOptions) -> None:
        """Carry ``driver``'s verbs out over ``transport``."""
        self.driver = driver
        self.options = read
        self._transport = transport
        self._policy = RetryPolicy(driver, retry)
        self._wholes = WholeObjects(self._policy, transport, read.ahead_bytes)
        self._policy.unranged = self._wholes.add

    def run(self, make: partial[Exchange[T]]) -> T:
        """Carry one verb out and return its result; Ctrl-C calls it off, lest it happen later."""
        operation = self.operation(make, Inbox())
        try:
            self.send((operation,))
            operation.wait()
            return operation.result()
        finally:
            self.call_off((operation,))

    def operation(self, make: partial[Exchange[T]], inbox: Inbox) -> Operation[T]:
        """Return one verb, to be sent: ``make`` is the driver's, with its arguments; ``inbox`` is told of the end."""
        return Operation(self._policy, make, inbox)

    def send(self, operations: Sequence[Operation[T]]) -> None:
        """Send operations on their way. Where they are to be called off, hold them first: Ctrl-C may come meanwhile."""
        self.driver.prepare()
        self._transport.submit(operations)

    def call_off(self, operations: Iterable[Operation[T]]) -> None:
        """End operations with ``Cancelled``, before anything that is started after this; does not wait for it."""
        if running := [each for each in operations if not each.complete]:
            self._transport.cancel(running)

    def concurrency(self) -> int:
        """Return how many requests the transport has under way, at most, at present."""
        return self._transport.concurrency()

    def begin(self, spans: Iterable[Span], inbox: Inbox) -> list[SpanRead]:
        """Send reads on their way; each tells ``inbox`` when it is complete."""
        self.driver.prepare()
        spans, most_bytes = [*spans], self.options.split_bytes
        self._learn_ranges(spans)
        reads = [
            SpanRead(self._policy, span, inbox)
            if span.stop is None or span.stop - span.start <= most_bytes
            else self._long(span, span.stop - span.start, inbox)
            for span in spans
        ]
        self._transport.submit(_calls(reads))
        return reads

    def make_reads(self, places: Iterable[tuple[Span, Buffer]], inbox: Inbox) -> list[SpanRead]:
        """Return reads to be sent, each into a target of its span's size, in one request; none where that is empty."""
        self.driver.prepare()
        places = [*places]
        self._learn_ranges([span for span, _ in places])
        reads = [SpanRead(self._policy, span, inbox, target) for span, target in places]
        for read in reads:
            read.complete = read.span.start == read.span.stop
        return reads

    def send_reads(self, reads: Iterable[SpanRead]) -> None:
        """Send reads on their way. Hold them first, to ``stop`` them: an interrupt may come meanwhile."""
        self._transport.submit(_calls(reads))

    def read_many(self, spans: Iterable[Span]) -> list[bytes]:
        """Read all spans at once and return their bytes in order; the first error, in order, is raised."""
        inbox, spans = Inbox(), [*spans]
        with operation("read", self.driver.url, spans[0].key if len(spans) == 1 else ""):
            reads = self.begin(spans, inbox)
            try:
                for read in reversed(reads):  # the last one first: one wake-up serves them all
                    inbox.wait(read)
            except BaseException:
                self.cancel(reads)
                raise
            return [read.take() for read in reads]

    def read_into(self, span: Span, target: Buffer) -> None:
        """Fill ``target`` with the span, in parallel ranges; on any way out, nobody writes into it any more."""
        if span.stop is not None and span.stop - span.start != target.size:
            message = f"{span.stop - span.start} bytes were to be read into a buffer of {target.size}"
            raise Unusable(message, url=self.driver.url(span.key))
        self.driver.prepare()
        with operation("read", self.driver.url, span.key):
            inbox, span = Inbox(), self._pinned(span)
            self._learn_ranges((span,))
            whole = self._parts(span, inbox, target)
            try:
                self.send_reads((whole,))
                inbox.wait(whole)
            except BaseException:
                self.stop((whole,), inbox)
                raise
            whole.check()

    def cancel(self, reads: Iterable[SpanRead]) -> None:
        """Stop what is in flight; its memory stays alive until libcurl has let go of it."""
        self._cancel(_calls(reads))

    def stop(self, reads: Iterable[SpanRead], inbox: Inbox) -> None:
        """Call reads off and wait until none of them writes into its target any more, nor ever will.

        An interrupt may have kept some from being sent, which then never complete: only what has begun is waited for.
        """
        calls = _calls(reads)
        self._cancel(calls)
        for call in calls:
            if call.attempts:
                inbox.wait(call)

    def _cancel(self, calls: Sequence[SpanRead]) -> None:
        for call in calls:
            call.called_off = True  # first: one that the transport does not know yet may come late
        self._transport.cancel(calls)
        self._wholes.call_off(calls)

    def _long(self, span: Span, size_bytes: int, inbox: Inbox) -> SpanRead:
        """Return a read in parts; where no version to pin can be had, one that has failed, to be told in its turn."""
        try:
            span = self._pinned(span)
        except PenstockError as error:
            failed = SpanRead(self._policy, span, inbox)
            failed.error, failed.complete = error, True
            return failed
        return self._parts(span, inbox, Buffer.allocate(size_bytes))

    def _parts(self, span: Span, inbox: Inbox, target: Buffer) -> SplitRead:
        most_bytes = self.options.split_bytes
        if self.driver.abilities.ranges is False and span.start == 0:
            most_bytes = max(1, target.size)  # from front to back, straight into place
        return SplitRead(self._policy, span, inbox, target, most_bytes)

    def _learn_ranges(self, spans: Sequence[Span]) -> None:
        """Find out, once for a store, whether it heeds ``Range``, before many bytes rely on it: a small request.

        Where it does not, each of them would bring the whole object. What goes wrong is left for them to tell.
        """
        if self.driver.abilities.ranges is not None:
            return
        most_bytes = self.options.split_bytes
        sizes = [(span, span.stop - span.start) for span in spans if span.stop is not None]
        ranged = [(span, size) for span, size in sizes if size > 1 and (not span.whole or size > most_bytes)]
        if sum(size for _, size in ranged) <= most_bytes:
            return
        span, start = ranged[0][0], ranged[0][0].start + 1  # at 0 an answer could be right by chance
        inbox, stop = Inbox(), min(ranged[0][1], 1 + _PROBE_BYTES) + span.start
        probe = RangeProbe(self._policy, Span(span.key, start, stop, span.etag), inbox)
        try:
            self._transport.submit((probe,))
            inbox.wait(probe)
        finally:
            self.cancel((probe,))

    def _pinned(self, span: Span) -> Span:
        """Give a span that will take several requests a version to hold them to: one HEAD where none is known."""
        if span.etag or span.stop is None:
            return span
        found = self.run(partial(self.driver.head, span.key))
        if span.whole and found.size != span.stop:
            message = f"the object has {found.size} bytes and was listed with {span.stop}"
            raise Changed(message, url=self.driver.url(span.key))
        return span._replace(etag=found.etag)


def _calls(reads: Iterable[SpanRead]) -> list[SpanRead]:
    return [call for read in reads if not read.complete for call in read.calls()]
