"""Reads of objects of unknown size: one request each, into a buffer as large as earlier objects needed."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, cast

from penstock.engine.buffer import Buffer
from penstock.engine.contracts.driver import RANGE_IGNORED, Beginning, Ending, Suffix
from penstock.engine.contracts.exchange import Request
from penstock.engine.fetch.policy import bug
from penstock.engine.read.spanread import SpanRead
from penstock.engine.support import supports
from penstock.errors import Cancelled, Changed, PenstockError, Transient, Truncated
from penstock.events import RangeRead, emit
from penstock.values import ObjectMeta, Span

if TYPE_CHECKING:
    from penstock.engine.contracts.exchange import Response, Work
    from penstock.engine.fetch.policy import RetryPolicy
    from penstock.engine.read.spanread import Owner

__all__ = ["OpenRead", "SuffixRead", "ending"]


class OpenRead(SpanRead):
    """A whole object of unknown size. If its buffer is too small, the rest of the same version is requested."""

    __slots__ = ("_grows", "_learns", "_scratch", "_told_bytes", "_wanted")

    def __init__(self, policy: RetryPolicy, span: Span, owner: Owner) -> None:
        super().__init__(policy, span, owner)
        self._wanted = span
        self._grows = False  # read it without a buffer
        self._told_bytes = 0  # its size, from a response without a version
        self._learns = False
        self._scratch: Buffer | None = None

    def request(self) -> Request | Work:
        """Return the request for the object or, once its size is known, for the missing rest."""
        if self.span.stop is not None:
            return super().request()
        self._begin_attempt()
        if self.called_off:
            self._exchange = None
            raise Cancelled("called off")
        policy, span = self.policy, self.span
        if self._told_bytes:
            exchange = policy.driver.get(span.key, span.etag, buffer=Buffer.allocate(self._told_bytes))
        elif self._grows or (scratch := policy.scratch.take(span.most)) is None:
            exchange = policy.driver.get(span.key, span.etag)
        else:
            self._scratch = scratch
            exchange = policy.driver.get(span.key, span.etag, buffer=scratch)
        self._exchange = exchange
        self._learns = isinstance(exchange.request, Request)  # a ``Work`` needs no buffer
        return self._traced(exchange.request)

    def done(self, response: Response) -> float | None:
        """Take the object, or take its beginning and continue with the rest."""
        if self.span.stop is not None:
            return super().done(response)
        if self._trace is not None:
            self._trace.answer(response)
        try:
            got: bytes | Beginning
            got = self._exchange.parse(response) if self._exchange is not None else self._raise(response)
        except PenstockError as error:
            return self._failed(error)
        except Exception as error:  # noqa: BLE001  see SpanRead.done
            return self._failed(bug(error))
        finally:
            scratch, self._scratch = self._scratch, None
            if scratch is not None:
                self.policy.scratch.give(scratch)
        if self._trace is not None:
            self._trace.end(None)
        self._count(response, len(got.data) if isinstance(got, Beginning) else len(got))
        if isinstance(got, Beginning):
            self._note(response)
            return self._go_on(got)
        self.value = got
        if self._learns:
            self.policy.scratch.learn(len(got), self._wanted.most)
        self.end(None)
        return None

    def twin(self, policy: RetryPolicy, owner: Owner) -> SpanRead | None:
        """Return another read of the object, or of its missing rest."""
        return (
            super().twin(policy, owner)
            if self.span.stop is not None
            else OpenRead(policy, self._wanted, owner).beside(self)
        )

    def fits(self, twin: SpanRead) -> bool:
        """Return whether ``twin`` has read what is in flight: the object, or the rest of it."""
        if self.span.stop is None or isinstance(twin, OpenRead):
            return self.span.stop is None and isinstance(twin, OpenRead) and self._exchange is not None
        return super().fits(twin)

    def hand_over(self, twin: SpanRead) -> object:
        """Take the bytes of ``twin``."""
        if self.span.stop is not None:
            return super().hand_over(twin)
        self._superseded()
        return twin.take()

    def _go_on(self, beginning: Beginning) -> float | None:
        """Request the rest if the version is known, else the whole object again."""
        data, size, etag = beginning
        if self._told_bytes:
            # The size grows with every response, so the attempts would never end.
            self._told_bytes = 0
            return self._failed(Transient("the object is written to while it is read"))
        self._grows = True
        if not (size and etag):
            # The next response is the whole object, and is compared as such.
            self.checksum = None
        if size:
            self.policy.scratch.learn(size, self._wanted.most)
        if size and not etag:
            self._told_bytes = size
        if size and etag:
            try:
                self.target = Buffer.allocate(size)
            except MemoryError as error:
                return self._failed(bug(error))
            self.target.fill(data)
            self.span = Span(self.span.key, 0, size, etag)
            self._reached = len(data)
        return 0.0

    def _failed(self, error: PenstockError) -> float | None:
        if error.code == RANGE_IGNORED and self.span.stop is not None:
            # Request the whole object again.
            self.span, self.target, self._reached = self._wanted, None, 0
            if self._trace is not None:
                self._trace.end(error)
            return 0.0
        return super()._failed(error)

    def end(self, error: PenstockError | None) -> None:
        """Complete the read."""
        self.span = self._wanted
        super().end(error)


def ending(span: Span, meta: ObjectMeta, url: str) -> Span:
    """Return the last bytes that ``span`` asks for as a span of the version that ``meta`` describes.

    Raises:
        Changed: That version differs from the span's.

    """
    if span.etag and meta.etag not in ("", span.etag):
        raise Changed("the object is no longer the one that was listed or opened", url=url)
    start = max(0, meta.size + span.start)
    return Span(span.key, start, meta.size, span.etag or meta.etag, whole=not start)


class SuffixRead(SpanRead):
    """The last bytes of an object, or all of a shorter one.

    Takes one request. If the store has no suffix ranges, ignores ``Range``, or refuses it (as for an empty object), it
    takes a HEAD and the range itself. A body that breaks off is continued as for any span.
    """

    __slots__ = ("_begins", "_looks", "_wanted")

    def __init__(self, policy: RetryPolicy, span: Span, owner: Owner) -> None:
        super().__init__(policy, span, owner)
        self._wanted = span
        self._begins = 0  # offset in the object, once known
        self._looks = not supports(policy.driver, Suffix)

    def request(self) -> Request | Work:
        """Return the request for the last bytes; or for the object's size, and then for the missing rest."""
        if self.span.stop is not None:
            return super().request()
        self._begin_attempt()
        if self.called_off:
            self._exchange = None
            raise Cancelled("called off")
        driver, span = self.policy.driver, self.span
        self._looks = self._looks or driver.abilities.ranges is False
        if self._looks:
            self._exchange = driver.head(span.key)
        else:
            self.target = Buffer.allocate(-span.start)
            self._exchange = cast("Suffix", driver).suffix(span.key, span.etag, self.target)
        return self._traced(self._exchange.request)

    def done(self, response: Response) -> float | None:
        """Take the bytes, or continue with what is known so far."""
        if self.span.stop is not None:
            return super().done(response)
        if self._trace is not None:
            self._trace.answer(response)
        try:
            got: ObjectMeta | Ending | None
            got = self._exchange.parse(response) if self._exchange is not None else self._raise(response)
        except PenstockError as error:
            return self._failed(error)
        except Exception as error:  # noqa: BLE001  see SpanRead.done
            return self._failed(bug(error))
        if not isinstance(got, Ending):
            self.policy.timings.carried(self._exchange.request.url if self._exchange is not None else "", 0)
            return self._looked(got)
        if got.received == got.size - got.start:
            self._count(response, got.received)
        return self._arrived(got, response.fault)

    def twin(self, policy: RetryPolicy, owner: Owner) -> SpanRead | None:
        """Return another read of the last bytes, or of the missing rest; None while the size is looked up."""
        if self.span.stop is not None:
            return super().twin(policy, owner)
        return None if self._looks else SuffixRead(policy, self._wanted, owner).beside(self)

    def fits(self, twin: SpanRead) -> bool:
        """Return whether ``twin`` has read what is in flight."""
        if self.span.stop is None or isinstance(twin, SuffixRead):
            known = self.span.stop is not None or self._looks or self._exchange is None
            return isinstance(twin, SuffixRead) and not known
        return super().fits(twin)

    def hand_over(self, twin: SpanRead) -> object:
        """Take the bytes of ``twin``."""
        if not isinstance(twin, SuffixRead):
            return super().hand_over(twin)
        data, target = twin.take(), cast("Buffer", self.target)
        target.fill(data)
        self._superseded()
        return Ending(twin._begins, twin._begins + len(data), "", len(data))  # noqa: SLF001  one of this class

    def _looked(self, meta: ObjectMeta | None) -> float | None:
        """Look the object up, or continue with the range that its size determines; an empty object has no range."""
        if self._trace is not None:
            self._trace.end(None)
        self.target = None
        if meta is None:
            self._looks = True
            return 0.0
        try:
            self.span = ending(self.span, meta, self.policy.driver.url(self.span.key))
        except PenstockError as error:
            return self._failed(error)
        self._begins = self.span.start
        if meta.size:
            return 0.0
        self.end(None)
        return None

    def _arrived(self, got: Ending, fault: PenstockError | None) -> float | None:
        begins, size, etag, received = got
        target, length = cast("Buffer", self.target), size - begins
        self._begins, self.target = begins, None
        if received == length:
            if self._trace is not None:
                self._trace.end(None)
            self.value = target.take() if length == target.size else target.cut(length)
            self.end(None)
            return None
        if not received or not etag:
            error = fault or Truncated(f"{received} of {length} bytes arrived")
            if isinstance(error, Truncated):
                error.retries = Transient.retries
            return self._failed(error)
        try:
            self.target = Buffer.allocate(length)
            self.target.fill(target.copy(received))
        except MemoryError as error:
            return self._failed(bug(error))
        self.span = Span(self.span.key, begins, size, etag)
        return self._cut_short(received, fault)

    def end(self, error: PenstockError | None) -> None:
        """Complete the read."""
        self.span = self._wanted
        super().end(error)

    def _tell(self) -> None:
        url, elapsed_s = self.policy.driver.url(self.span.key), monotonic() - self._began
        emit(RangeRead(url, self._begins, self.size_bytes, elapsed_s, self.attempts))
