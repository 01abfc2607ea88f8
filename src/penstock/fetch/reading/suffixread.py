"""Reads the last bytes of objects whose size is not known: one request each, where the store has such a range."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, cast

from penstock.buffer import Buffer
from penstock.errors import Cancelled, Changed, PenstockError, Transient, Truncated
from penstock.events import RangeRead, emit
from penstock.fetch.policy import bug
from penstock.fetch.reading.spanread import SpanRead
from penstock.protocols.driver import Ending, Suffix
from penstock.support import supports
from penstock.values import ObjectMeta, Span

if TYPE_CHECKING:
    from penstock.fetch.policy import RetryPolicy
    from penstock.fetch.reading.spanread import Owner
    from penstock.protocols.exchange import Request, Response, Work

__all__ = ["SuffixRead", "ending"]


def ending(span: Span, meta: ObjectMeta, url: str) -> Span:
    """Return the last bytes that ``span`` asks for as a span of the version that ``meta`` describes.

    Raises:
        Changed: That is another version than the span's.

    """
    if span.etag and meta.etag not in ("", span.etag):
        raise Changed("the object is no longer the one that was listed or opened", url=url)
    start = max(0, meta.size + span.start)
    return Span(span.key, start, meta.size, span.etag or meta.etag, whole=not start)


class SuffixRead(SpanRead):
    """The last bytes of an object, or all of a shorter one.

    One request. A HEAD and the range itself where the store has no such range, ignores ``Range``, or refuses it, as for
    an empty object. A body that breaks off is continued as any span is.
    """

    __slots__ = ("_begins", "_looks", "_wanted")

    def __init__(self, policy: RetryPolicy, span: Span, owner: Owner) -> None:
        super().__init__(policy, span, owner)
        self._wanted = span
        self._begins = 0  # where in the object it does, once known
        self._looks = not supports(policy.driver, Suffix)

    def request(self) -> Request | Work:
        """Ask for the last bytes; or for the object's size, and then for what is still missing."""
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
        """Take the bytes, or go on with what is known by now."""
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
        """Return another read of the last bytes, or of what is missing of them; None where the size is looked at."""
        if self.span.stop is not None:
            return super().twin(policy, owner)
        return None if self._looks else SuffixRead(policy, self._wanted, owner).beside(self)

    def fits(self, twin: SpanRead) -> bool:
        """Say whether ``twin`` has read what is under way."""
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
        """Look at the object; or go on with the range that its size tells: there is none of an empty object."""
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
        """Complete it."""
        self.span = self._wanted
        super().end(error)

    def _tell(self) -> None:
        url, elapsed_s = self.policy.driver.url(self.span.key), monotonic() - self._began
        emit(RangeRead(url, self._begins, self.size_bytes, elapsed_s, self.attempts))
