"""Sends operations on their way, many at once, and waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from penstock.errors import Changed, PenstockError, Unusable
from penstock.fetch.judge import Judge
from penstock.fetch.operation import Operation, await_one
from penstock.fetch.read import Inbox, Parts, Read
from penstock.target import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.options import ReadOptions, RetryOptions
    from penstock.protocols.driver import Driver
    from penstock.protocols.exchange import Exchange, Transport
    from penstock.values import Span

__all__ = ["Fetcher"]

T = TypeVar("T")


class Fetcher:
    """Operations on one store: many at once, each retried within a budget that all share."""

    def __init__(self, driver: Driver, transport: Transport, retry: RetryOptions, read: ReadOptions) -> None:
        """Carry ``driver``'s verbs out over ``transport``."""
        self.driver = driver
        self.options = read
        self._transport = transport
        self._judge = Judge(driver, retry)

    def run(self, make: Callable[[], Exchange[T]]) -> T:
        """Carry one verb out and return its result; Ctrl-C calls it off, lest it happen later."""
        operation = self.start(make)
        try:
            await_one((operation.future,))
            return operation.future.result()
        finally:
            self.call_off((operation,))
            del operation  # what it raises leads here, and from here to all that the callers hold: no way back to it

    def start(self, make: Callable[[], Exchange[T]]) -> Operation[T]:
        """Send one verb on its way; ``make`` is called anew for every attempt."""
        self.driver.prepare()
        operation = Operation(self._judge, make)
        self._transport.submit((operation,))
        return operation

    def call_off(self, operations: Iterable[Operation[T]]) -> None:
        """End operations with ``Cancelled``, before anything that is started after this; does not wait for it."""
        if running := [each for each in operations if not each.future.done()]:
            self._transport.cancel(running)

    def places(self) -> int:
        """Return how many requests the transport has under way, at most, at present."""
        return self._transport.places()

    def begin(self, spans: Iterable[Span], inbox: Inbox) -> list[Read]:
        """Send reads on their way; each tells ``inbox`` when it is complete."""
        self.driver.prepare()
        most_bytes = self.options.split_bytes
        reads = [
            Read(self._judge, span, inbox)
            if span.stop is None or span.stop - span.start <= most_bytes
            else self._long(span, span.stop - span.start, inbox)
            for span in spans
        ]
        self._transport.submit(_calls(reads))
        return reads

    def begin_into(self, places: Iterable[tuple[Span, Target]], inbox: Inbox) -> list[Read]:
        """Send reads on their way, each into a target of its span's size, in one request; none where that is empty."""
        self.driver.prepare()
        reads = [Read(self._judge, span, inbox, target) for span, target in places]
        for read in reads:
            read.complete = read.span.start == read.span.stop
        self._transport.submit(_calls(reads))
        return reads

    def read_many(self, spans: Iterable[Span]) -> list[bytes]:
        """Read all spans at once and return their bytes in order; the first error, in order, is raised."""
        inbox = Inbox()
        reads = self.begin(spans, inbox)
        try:
            for read in reversed(reads):  # the last one first: one wake-up serves them all
                inbox.wait(read)
        except BaseException:
            self.cancel(reads)
            raise
        return [read.take() for read in reads]

    def read_into(self, span: Span, target: Target) -> None:
        """Fill ``target`` with the span, in parallel ranges; on any way out, nobody writes into it any more."""
        if span.stop is not None and span.stop - span.start != target.size:
            message = f"{span.stop - span.start} bytes were to be read into a buffer of {target.size}"
            raise Unusable(message, url=self.driver.url(span.key))
        self.driver.prepare()
        inbox = Inbox()
        whole = Parts(self._judge, self._pinned(span), inbox, target, self.options.split_bytes)
        self._transport.submit(whole.calls())
        try:
            inbox.wait(whole)
        except BaseException:
            self._transport.cancel(whole.calls())
            inbox.wait(whole)
            raise
        if whole.error is not None:
            raise whole.error

    def cancel(self, reads: Iterable[Read]) -> None:
        """Stop what is in flight; its memory stays alive until libcurl has let go of it."""
        self._transport.cancel(_calls(reads))

    def _long(self, span: Span, size_bytes: int, inbox: Inbox) -> Read:
        """Return a read in parts; where no version to pin can be had, one that has failed, to be told in its turn."""
        try:
            span = self._pinned(span)
        except PenstockError as error:
            failed = Read(self._judge, span, inbox)
            failed.error, failed.complete = error, True
            return failed
        return Parts(self._judge, span, inbox, Target.allocate(size_bytes), self.options.split_bytes)

    def _pinned(self, span: Span) -> Span:
        """Give a span that will take several requests a version to hold them to: one HEAD where none is known."""
        if span.etag or span.stop is None:
            return span
        found = self.run(lambda: self.driver.head(span.key))
        if span.whole and found.size != span.stop:
            message = f"the object has {found.size} bytes and was listed with {span.stop}"
            raise Changed(message, url=self.driver.url(span.key))
        return span._replace(etag=found.etag)


def _calls(reads: Iterable[Read]) -> list[Read]:
    return [call for read in reads if not read.complete for call in read.calls()]
