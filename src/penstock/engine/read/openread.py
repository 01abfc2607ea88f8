"""Reads of objects of unknown size: one request each, into a buffer as large as earlier objects needed."""

from __future__ import annotations

from abc import abstractmethod
from time import monotonic
from typing import TYPE_CHECKING, Any, Self, cast

from penstock.engine.buffer import Buffer
from penstock.engine.contracts.driver import RANGE_IGNORED, Beginning, Ending, Suffix
from penstock.engine.contracts.exchange import Request
from penstock.engine.operations.operation import head_of
from penstock.engine.operations.policy import bug
from penstock.engine.read.spanread import SpanRead
from penstock.engine.support import supports
from penstock.errors import Changed, PenstockError, Transient, Truncated
from penstock.events import RangeRead, emit
from penstock.values import ObjectMeta, Span

if TYPE_CHECKING:
    from penstock.engine.contracts.exchange import Exchange, Response, Work
    from penstock.engine.contracts.fetching import Owner
    from penstock.engine.operations.policy import RetryPolicy


class _UnsizedRead(SpanRead):
    """A read whose first response defines its bounds; the rest is then read as a span of that version.

    While ``span.stop`` is None, the bounds are unknown: a subclass asks for them (``_ask``) and takes the answer
    (``_take``), which completes the read, or sets ``span``, ``target`` and what was reached.
    """

    __slots__ = ("_wanted",)

    def __init__(self, policy: RetryPolicy, span: Span, owner: Owner) -> None:
        super().__init__(policy, span, owner)
        self._wanted = span

    @property
    def _bounded(self) -> bool:
        return self.span.stop is not None

    @abstractmethod
    def _ask(self) -> Exchange[Any]: ...

    @abstractmethod
    def _take(self, got: Any, response: Response) -> float | None:  # noqa: ANN401  the result of what ``_ask`` returned
        ...

    def _release(self) -> None:
        """Release the resources of ``_ask``, once its response is parsed."""

    def request(self) -> Request | Work:
        if self._bounded:
            return super().request()
        self._begin_attempt()
        exchange = self._exchange = self._ask()
        return self._traced(exchange.request)

    def done(self, response: Response) -> float | None:
        if self._bounded:
            return super().done(response)
        if self._trace is not None:
            self._trace.answer(response)
        try:
            got = self._exchange.parse(response) if self._exchange is not None else self._raise(response)
        except PenstockError as error:
            return self._failed(error)
        except Exception as error:  # noqa: BLE001  see SpanRead.done
            return self._failed(bug(error))
        finally:
            self._release()
        self.version = self.span.etag or response.version
        return self._take(got, response)

    def twin(self, policy: RetryPolicy, owner: Owner) -> SpanRead | None:
        if self._bounded:
            return super().twin(policy, owner)
        return type(self)(policy, self._wanted, owner).beside(self)

    def fits(self, twin: SpanRead) -> bool:
        if not self._bounded and isinstance(twin, _UnsizedRead):
            return self._exchange is not None
        return self._bounded and not isinstance(twin, _UnsizedRead) and super().fits(twin)

    def hand_over(self, twin: SpanRead) -> object:
        if self._bounded:
            return super().hand_over(twin)
        self._superseded()
        return self._answer_of(cast("Self", twin))

    @abstractmethod
    def _answer_of(self, twin: Self) -> object: ...

    def end(self, error: PenstockError | None) -> None:
        self.version = self.version or self.span.etag
        self.span = self._wanted
        super().end(error)


class OpenRead(_UnsizedRead):
    """A whole object of unknown size. If its buffer is too small, the rest of the same version is requested."""

    __slots__ = ("_grows", "_learns", "_scratch", "_told_bytes")

    def __init__(self, policy: RetryPolicy, span: Span, owner: Owner) -> None:
        super().__init__(policy, span, owner)
        self._grows = False  # read it without a buffer
        self._told_bytes = 0  # its size, from a response without a version
        self._learns = False
        self._scratch: Buffer | None = None

    def _ask(self) -> Exchange[Any]:
        policy, span = self.policy, self.span
        if self._told_bytes:
            exchange = policy.driver.get(span.key, span.etag, buffer=Buffer.allocate(self._told_bytes))
        elif self._grows or (scratch := policy.scratch.take(span.most)) is None:
            exchange = policy.driver.get(span.key, span.etag)
        else:
            self._scratch = scratch
            exchange = policy.driver.get(span.key, span.etag, buffer=scratch)
        self._learns = isinstance(exchange.request, Request)  # a ``Work`` needs no buffer
        return exchange

    def _release(self) -> None:
        scratch, self._scratch = self._scratch, None
        if scratch is not None:
            self.policy.scratch.give(scratch)

    def _take(self, got: bytes | Beginning, response: Response) -> float | None:
        self._end_trace()
        self._count(response, len(got.data) if isinstance(got, Beginning) else len(got))
        if isinstance(got, Beginning):
            self._note(response)
            return self._go_on(got)
        self.value = got
        if self._learns:
            self.policy.scratch.learn(len(got), self._wanted.most)
        self.end(None)
        return None

    def _answer_of(self, twin: Self) -> object:
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
        if error.code == RANGE_IGNORED and self._bounded:
            # Request the whole object again.
            self.span, self.target, self._reached = self._wanted, None, 0
            self._end_trace(error)
            return 0.0
        return super()._failed(error)


def resolve_suffix(span: Span, meta: ObjectMeta, url: str) -> Span:
    """Return the last bytes requested by ``span`` in the version of ``meta``; ``Changed`` if ``span`` has another."""
    if span.etag and meta.etag not in ("", span.etag):
        raise Changed("the object has changed since it was listed or opened", url=url)
    start = max(0, meta.size + span.start)
    return Span(span.key, start, meta.size, span.etag or meta.etag, whole=not start)


class SuffixRead(_UnsizedRead):
    """The last bytes of an object, or all of a shorter one.

    Takes one request. If the store has no suffix ranges, ignores ``Range``, or refuses it (as for an empty object), it
    takes a HEAD and the range itself. A body that breaks off is continued as for any span.
    """

    __slots__ = ("_begins", "_looks")

    def __init__(self, policy: RetryPolicy, span: Span, owner: Owner) -> None:
        super().__init__(policy, span, owner)
        self._begins = 0  # offset in the object, once known
        self._looks = not supports(policy.driver, Suffix)

    def _ask(self) -> Exchange[Any]:
        driver, span = self.policy.driver, self.span
        self._looks = self._looks or driver.abilities.ranges is False
        if self._looks:
            return head_of(driver, span.key, span.etag)()
        self.target = Buffer.allocate(-span.start)
        return cast("Suffix", driver).suffix(span.key, span.etag, self.target)

    def _take(self, got: ObjectMeta | Ending | None, response: Response) -> float | None:
        if not isinstance(got, Ending):
            self.policy.timings.carried(self._exchange.request.url if self._exchange is not None else "", 0)
            return self._looked(got)
        if got.received == got.size - got.start:
            self._count(response, got.received)
        return self._arrived(got, response.fault)

    def twin(self, policy: RetryPolicy, owner: Owner) -> SpanRead | None:
        return None if self._looks and not self._bounded else super().twin(policy, owner)

    def fits(self, twin: SpanRead) -> bool:
        """Return whether ``twin`` has read the data in flight, unless that is a look-up of the size."""
        return (self._bounded or not self._looks) and super().fits(twin)

    def _answer_of(self, twin: Self) -> object:
        data, target = twin.take(), cast("Buffer", self.target)
        target.fill(data)
        return Ending(twin._begins, twin._begins + len(data), twin.version, len(data))

    def _looked(self, meta: ObjectMeta | None) -> float | None:
        """Look up the object, or continue with the range that its size determines; an empty object has no range."""
        self._end_trace()
        self.target = None
        if meta is None:
            self._looks = True
            return 0.0
        try:
            self.span = resolve_suffix(self.span, meta, self.policy.driver.url(self.span.key))
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
            self._end_trace()
            self.version = self.version or etag
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

    def _tell(self) -> None:
        url, elapsed_s = self.policy.driver.url(self.span.key), monotonic() - self._began
        emit(RangeRead(url, self._begins, self.size_bytes, elapsed_s, self.attempts))
