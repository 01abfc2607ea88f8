"""Sends operations on their way, many at once, and waits for them."""

from __future__ import annotations

from functools import partial
from itertools import chain, filterfalse
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from penstock.buffer import Buffer
from penstock.errors import Changed, PenstockError, Unusable
from penstock.fetch.operation import Operation
from penstock.fetch.pace import Pace
from penstock.fetch.policy import RetryPolicy
from penstock.fetch.reading.hedging import Hedging
from penstock.fetch.reading.openread import OpenRead
from penstock.fetch.reading.spanread import RangeProbe, SpanRead, SplitRead
from penstock.fetch.reading.suffixread import SuffixRead, ending
from penstock.fetch.reading.unranged import WholeObjects
from penstock.node.member import member
from penstock.protocols.exchange import Gated, Watchable
from penstock.protocols.limits import Limits
from penstock.values import Span
from penstock.waiting import Inbox, may_wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.budget import Budget
    from penstock.options import NodeOptions, ReadOptions, RetryOptions
    from penstock.protocols.credentials import Identity
    from penstock.protocols.driver import Driver
    from penstock.protocols.exchange import Exchange, Transport
    from penstock.protocols.fetching import PendingRead, ReadOwner

__all__ = ["Fetcher"]

T = TypeVar("T")

_PROBE_BYTES = 4 << 10  # of a server that ignores Range little more is read


class Fetcher:
    """Operations on one store, reads among them (``Fetching``): many at once, each retried within a shared budget."""

    def __init__(
        self, driver: Driver, transport: Transport, retry: RetryOptions, read: ReadOptions, limits: Limits | None = None
    ) -> None:
        """Carry ``driver``'s verbs out over ``transport``, within the limits of its store."""
        self.driver = driver
        self.limits = limits or Limits()
        self.options = read
        self._node: NodeOptions | None = None  # where it takes part
        self._transport = transport
        self._policy = RetryPolicy(driver, retry)
        self._wholes = WholeObjects(transport, read.ahead_bytes)
        self._policy.unranged = self._wholes.add
        if read.hedge and isinstance(transport, Watchable):
            transport.watch(Hedging(self._policy.hedges, self._policy.tokens, self._policy.timings))

    def share(self, store: str, options: NodeOptions) -> Self:
        """Have the rate of its requests bounded where the store refuses them for it, with others of the node; itself.

        ``store`` tells the store from all others, in all processes. A store without a network needs none of this.
        """
        if options.share and isinstance(self._transport, Gated):
            self._node = options
            pace = Pace(store, self.driver.url, self._policy.timings)
            self._transport.guard(pace)
            member.enter(pace, options)
        return self

    def hold(self, budget: Budget) -> Budget:
        """Return ``budget``, which is this process's share of it from then on, if its store takes part in the node."""
        return budget if self._node is None else member.hold(budget, self._node)

    def close(self) -> None:
        """End all that is under way with ``Cancelled``, soon, and close the connections; it is not used any more."""
        self._transport.close()

    def usable(self) -> bool:
        """Say whether it carries anything: not once it was closed, or its I/O thread broke, which is a bug."""
        return self._transport.usable()

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
        """Start operations. Where they may have to be cancelled, hold them first: Ctrl-C may come meanwhile."""
        self.driver.prepare()
        self._transport.submit(operations)

    def call_off(self, operations: Iterable[Operation[T]]) -> None:
        """End operations with ``Cancelled``, before anything that is started after this; does not wait for it."""
        if running := [each for each in operations if not each.complete]:
            self._transport.cancel(running)

    def concurrency(self) -> int:
        """Return how many requests the transport has under way, at most, at present."""
        return self._transport.concurrency()

    def waits(self, spans: Iterable[Span]) -> bool:
        """Say whether starting reads of these spans, or any verb, may wait for something first: no request.

        For credentials that are due; for a look at whether the store heeds ``Range``; for a HEAD, which tells the
        version of a span that takes several requests.
        """
        identity: Identity[Any] | None = getattr(self.driver, "identity", None)  # of drivers that sign
        if identity is not None and identity.due():
            return True
        spans, most_bytes = [*spans], self.options.split_bytes
        return (self.driver.abilities.ranges is None and self._ranged(spans) is not None) or any(
            -span.start > most_bytes if span.stop is None else span.stop - span.start > most_bytes and not span.etag
            for span in spans
        )

    def prepare_reads(self, wanted: Iterable[tuple[Span, Buffer | None]], owner: ReadOwner) -> list[PendingRead]:
        """Return reads to be sent: one request each, or several beyond ``split_bytes`` (see ``protocols.fetching``)."""
        self.driver.prepare()
        wanted, most_bytes = [*wanted], self.options.split_bytes
        if self.driver.abilities.ranges is None and (
            ranged := [span for span, _ in wanted if not span.whole or (span.stop or 0) > most_bytes]
        ):
            self._learn_ranges(ranged)
        read = self._read
        reads = [read(span, buffer, owner) for span, buffer in wanted]
        if len(wanted) == 1 and wanted[0][1] is not None:  # others of the object would need the whole of it anyway
            reads[0].front = wanted[0][0].start == 0
        return cast("list[PendingRead]", reads)

    def send_reads(self, reads: Iterable[PendingRead]) -> None:
        """Send reads on their way."""
        self._transport.submit(_calls(reads))

    def cancel_reads(self, reads: Iterable[PendingRead]) -> None:
        """Stop what is in flight; its memory stays alive until libcurl has let go of it."""
        self._cancel(_calls(reads))

    def stop_reads(self, reads: Iterable[PendingRead]) -> None:
        """Call reads off and wait until none of them writes into its buffer any more, nor ever will.

        An interrupt may have kept some from being sent, which then never complete: only what has begun is waited for.
        The transport's thread, where the garbage collector runs this, waits for nothing; the memory stays alive.
        """
        calls, inbox = _calls(reads), Inbox()
        for call in calls:
            call.tell(inbox)
        self._cancel(calls)
        for call in calls if may_wait() else ():
            if call.attempts:
                inbox.wait(call)

    def _cancel(self, calls: Sequence[SpanRead]) -> None:
        for call in calls:
            call.called_off = True  # first: one that the transport does not know yet may come late
        self._transport.cancel(calls)
        self._wholes.call_off(calls)

    def _read(self, span: Span, buffer: Buffer | None, owner: ReadOwner) -> SpanRead:
        size_bytes = None if span.stop is None else span.stop - span.start
        if buffer is None and size_bytes is not None and size_bytes <= self.options.split_bytes:  # nearly all
            return SpanRead(self._policy, span, owner)
        if buffer is not None and buffer.size != size_bytes:
            message = f"{size_bytes} bytes were to be read into a buffer of {buffer.size}"
            raise Unusable(message, url=self.driver.url(span.key))
        if size_bytes is not None and size_bytes > self.options.split_bytes:
            return self._split(span, size_bytes, buffer, owner)
        if size_bytes is None:
            if span.start < 0:
                return self._end(span, owner)
            if span.start:
                message = f"a span from byte {span.start} on needs its stop: look at the object's size (head) first"
                raise Unusable(message, url=self.driver.url(span.key))
            return OpenRead(self._policy, span, owner)
        return SpanRead(self._policy, span, owner, buffer)

    def _end(self, span: Span, owner: ReadOwner) -> SpanRead:
        """Return a read of an object's last bytes: in one request, or in parts after a HEAD that says where."""
        if -span.start <= self.options.split_bytes:
            return SuffixRead(self._policy, span, owner)
        try:
            known = ending(span, self.run(partial(self.driver.head, span.key)), self.driver.url(span.key))
        except PenstockError as error:
            return self._failed(span, owner, error)
        return self._read(known, None, owner)

    def _failed(self, span: Span, owner: ReadOwner, error: PenstockError) -> SpanRead:
        failed = SpanRead(self._policy, span, owner)
        failed.error, failed.complete = error, True
        return failed

    def _split(self, span: Span, size_bytes: int, buffer: Buffer | None, owner: ReadOwner) -> SpanRead:
        """Return a read in parts; where no version to pin can be had, one that has failed, to be told in its turn."""
        try:
            span = self._pinned(span)
        except PenstockError as error:
            return self._failed(span, owner, error)
        most_bytes = self.options.split_bytes
        if self.driver.abilities.ranges is False and span.start == 0:
            most_bytes = size_bytes  # from front to back, straight into place
        return SplitRead(self._policy, span, owner, buffer or Buffer.allocate(size_bytes), most_bytes)

    def _learn_ranges(self, spans: Sequence[Span]) -> None:
        """Find out, once for a store, whether it heeds ``Range``, before many bytes rely on it: a small request.

        Where it does not, each of them would bring the whole object. What goes wrong is left for them to tell.
        """
        first = self._ranged(spans)
        if first is None:
            return
        span, size = first
        start = span.start + 1  # at 0 an answer could be right by chance
        inbox, stop = Inbox(), min(size, 1 + _PROBE_BYTES) + span.start
        probe = RangeProbe(self._policy, Span(span.key, start, stop, span.etag), inbox)
        try:
            self._transport.submit((probe,))
            inbox.wait(probe)
        finally:
            self.cancel_reads((probe,))

    def _ranged(self, spans: Sequence[Span]) -> tuple[Span, int] | None:
        """Return the first of the ranges among spans, and its size; None where they are few bytes."""
        most_bytes = self.options.split_bytes
        ranged = [
            (span, span.stop - span.start)
            for span in spans
            if span.stop is not None and span.stop > (most_bytes if span.whole else span.start + 1)
        ]
        return ranged[0] if sum(size for _, size in ranged) > most_bytes else None

    def _pinned(self, span: Span) -> Span:
        """Give a span that will take several requests a version to hold them to: one HEAD where none is known."""
        if span.etag or span.stop is None:
            return span
        found = self.run(partial(self.driver.head, span.key))
        if span.whole and found.size != span.stop:
            message = f"the object has {found.size} bytes and was listed with {span.stop}"
            raise Changed(message, url=self.driver.url(span.key))
        return span._replace(etag=found.etag)


_complete: Callable[[object], bool] = attrgetter("complete")
_each: Callable[[object], Iterable[SpanRead]] = methodcaller("calls")


def _calls(reads: Iterable[PendingRead]) -> list[SpanRead]:
    return [*chain.from_iterable(map(_each, filterfalse(_complete, reads)))]  # a loop takes three times as long
