"""Reads spans into memory: each is sent, verified, and asked for again from the byte it reached."""

from __future__ import annotations

from itertools import count
from time import monotonic, time
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, Self

from penstock.buffer import Buffer
from penstock.errors import Bug, Cancelled, PenstockError, Transient, Truncated, Unusable
from penstock.events import RangeRead, RequestTrace, SlowRequest, emit, listening, slow
from penstock.fetch.plan import split
from penstock.fetch.policy import again, bug
from penstock.protocols.driver import RANGE_IGNORED
from penstock.protocols.exchange import Exchange
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.fetch.policy import RetryPolicy
    from penstock.protocols.exchange import Request, Response, Work
    from penstock.waiting import Inbox

__all__ = ["RangeProbe", "SpanRead", "SplitRead"]


class Owner(Protocol):
    """Who is told when a read is complete, on the transport's thread."""

    def finished(self, read: SpanRead, /) -> None:
        """Take note that it is."""


class _Both(NamedTuple):
    """Two owners of one read."""

    first: Owner
    second: Owner

    def finished(self, read: SpanRead, /) -> None:
        self.first.finished(read)
        self.second.finished(read)


class SpanRead:
    """One span on its way into memory. Bytes that arrived count even when their body broke off.

    Attributes:
        policy: What all operations on the store share.
        front: It begins where its object does and may be as long: it is asked for also where ``Range`` is ignored.
        called_off: Cancelled by its caller: it writes nothing that it has not begun to. Set from any thread, before
            ``attempts`` is looked at.
        retries: How often it was asked for again after a failure.
        attempts: How often it was asked for, second requests included; raised before ``called_off`` is looked at.

    """

    __slots__ = (
        "_began",
        "_exchange",
        "_handed_over",
        "_owner",
        "_reached",
        "_trace",
        "attempts",
        "called_off",
        "complete",
        "error",
        "front",
        "policy",
        "retries",
        "span",
        "target",
        "value",
    )

    def __init__(self, policy: RetryPolicy, span: Span, owner: Owner, target: Buffer | None = None) -> None:
        """Prepare a read of ``span``; memory is allocated when it is sent, unless ``target`` brings its own."""
        self.policy = policy
        self._owner = owner
        self._exchange: Exchange[Any] | None = None
        self._began = 0.0
        self._reached = 0
        self._handed_over = False
        self._trace = RequestTrace("read", policy.driver.url(span.key)) if listening() else None
        self.front = False
        self.called_off = False
        self.span = span
        self.target = target
        self.value: bytes | None = None
        self.attempts = 0
        self.retries = 0
        self.error: PenstockError | None = None
        self.complete = False

    @property
    def size_bytes(self) -> int:
        """Return how many bytes it holds; only once complete."""
        return len(self.value) if self.value is not None else self.target.size if self.target else 0

    def calls(self) -> Sequence[SpanRead]:
        """Return what the transport carries for this read."""
        return (self,)

    def tell(self, inbox: Inbox) -> None:
        """Tell ``inbox``, too, when it is complete; where it is by now, ``inbox`` need not be told."""
        self._owner = _Both(inbox, self._owner)

    def look(self) -> None:
        """Log what it has met with, if it takes long; on the thread that waits for it."""
        error = self.error
        if error is not None and not self.complete:
            self.policy.warn(error, self.span.key, self.attempts, self._began)

    def check(self) -> None:
        """Raise what went wrong, if anything did; only once complete."""
        if self.error is not None:
            raise again(self.error)

    def take(self) -> bytes:
        """Return the bytes, or raise what went wrong; only once complete."""
        if self.error is not None:
            raise again(self.error)
        if self.value is not None:
            return self.value
        return self.target.take() if self.target is not None else b""

    def request(self) -> Request | Work:
        """Ask for what is still missing."""
        attempts = self.attempts = self.attempts + 1
        if attempts == 1:
            self._began = monotonic()
        if self.called_off:
            self._exchange = None
            raise Cancelled("called off")
        span, driver = self.span, self.policy.driver
        if not (span.whole or self.front) and driver.abilities.ranges is False:
            self._exchange = None
            raise self._unranged()
        target = self.target
        if target is None:
            target = self.target = Buffer.allocate((span.stop or 0) - span.start)
        if self._reached:
            span = Span(span.key, span.start + self._reached, span.stop, span.etag)
            target = target.slice(self._reached, target.size)
        exchange = self._exchange = driver.read(span, target)
        return exchange.request if self._trace is None else self._traced(exchange.request)

    def _begin_attempt(self) -> None:
        self.attempts += 1
        if self.attempts == 1:
            self._began = monotonic()

    def _traced(self, request: Request | Work) -> Request | Work:
        if self._trace is not None:
            self._trace.start(self.attempts, request)
        return request

    def done(self, response: Response) -> float | None:
        """Verify what came; say when to go on, if something is missing."""
        trace, exchange = self._trace, self._exchange
        if trace is not None:
            trace.answer(response)
        try:
            if exchange is None:
                self._raise(response)
            got = exchange.parse(response)
        except PenstockError as error:
            return self._failed(error)
        except Exception as error:  # noqa: BLE001  a parser that trips over an answer must not take the I/O thread along
            return self._failed(bug(error))
        target = self.target
        if target is not None and self._reached + got < target.size:
            return self._cut_short(got, response.fault)
        if trace is not None:
            trace.end(None)
        counted = 0 if self._handed_over else got  # as ``_count``; here a call costs too much
        if elapsed_s := self.policy.timings.answered(response, exchange.request.url, counted, self._began):
            self._slow(elapsed_s, response.status, got)
        self.end(None)
        return None

    def _slow(self, elapsed_s: float, status: int, size_bytes: int) -> None:
        """Tell of a read that is one of the slowest."""
        slow(SlowRequest(elapsed_s, self.policy.driver.url(self.span.key), size_bytes, self.attempts, status, time()))

    def _count(self, response: Response, size_bytes: int) -> None:
        """Count a good response; the bytes that a second request brought were counted with its own."""
        exchange, received_bytes = self._exchange, 0 if self._handed_over else size_bytes
        url = exchange.request.url if exchange is not None else ""
        if elapsed_s := self.policy.timings.answered(response, url, received_bytes, self._began):
            self._slow(elapsed_s, response.status, size_bytes)

    def cut(self, whole: bytes) -> None:
        """Take the span out of its whole object."""
        start, stop = self.span.start, self.span.stop or 0
        if stop > len(whole):
            self.end(Truncated(f"the object has {len(whole)} bytes, {stop} were asked for"))
            return
        try:
            if self.target is None:
                self.target = Buffer.allocate(stop - start)
            self.target.fill(memoryview(whole)[start:stop])
        except Exception as error:  # noqa: BLE001  see done
            self.end(bug(error))
        else:
            self.end(None)

    def twin(self, policy: RetryPolicy, owner: Owner) -> SpanRead | None:
        """Return a read of what is still missing, into memory of its own, for a second request; None: not of this."""
        span = self.span
        if self._reached:
            span = Span(span.key, span.start + self._reached, span.stop, span.etag)
        twin = SpanRead(policy, span, owner)
        twin.front = self.front and not self._reached
        return twin.beside(self)

    def beside(self, first: SpanRead) -> Self:
        """Belong to the operation of ``first``."""
        trace = first._trace
        self._trace = trace.beside() if trace is not None else None
        return self

    def fits(self, twin: SpanRead) -> bool:
        """Say whether the bytes of ``twin``, and those that are here, are all of them; while a request is under way."""
        return self._exchange is not None and twin.span.start - self.span.start <= self._reached

    def answer_by(self, answer: Callable[[Response], Any]) -> None:
        """Have ``answer`` say what the request that is under way has brought, however it ends."""
        exchange = self._exchange
        if exchange is not None:
            self._exchange = Exchange(exchange.request, answer)

    def hand_over(self, twin: SpanRead) -> object:
        """Take the bytes of ``twin``, which fits, and return what the request would have brought."""
        target = self.target
        if target is None:
            raise Bug("a read under way without memory")
        target.slice(target.size - twin.size_bytes, target.size).fill(twin.take())
        self._superseded()
        return target.size - self._reached

    def _superseded(self) -> None:
        self._handed_over = True
        if self._trace is not None:
            self._trace.end(Cancelled("a second request was answered first"))

    def _unranged(self) -> PenstockError:
        """Return what leads to ``policy.unranged``: requests are made here, and answers taken in ``done``."""
        error = Unusable("this server ignores Range", url=self.policy.driver.url(self.span.key))
        error.code = RANGE_IGNORED
        return error

    def _raise(self, response: Response) -> NoReturn:
        raise response.fault or Bug("a response without a request")

    def _cut_short(self, got: int, fault: PenstockError | None) -> float | None:
        size = self.target.size if self.target is not None else 0
        error = fault or Truncated(f"{self._reached + got} of {size} bytes arrived")
        # Without a version to pin, the rest might be another object's; without ranges there is no asking for it.
        if got and self.span.etag and self.policy.driver.abilities.ranges is not False:
            self._reached += got
            self._began = monotonic()  # patience is for lack of progress
        if isinstance(error, Truncated):
            error.retries = Transient.retries
        return self._failed(error)

    def _failed(self, error: PenstockError) -> float | None:
        if self._trace is not None:
            self._trace.end(error)
        if error.code == RANGE_IGNORED:
            self._exchange = None
            if self._reached:
                self._reached = 0  # from its start, then
                return 0.0
            self.policy.unranged(self)  # from here on it waits for the whole object
            return None
        url = self._exchange.request.url if self._exchange is not None else ""
        error, wait_s = self.policy.failed(error, url, self.attempts, self._began)
        if wait_s is None:
            self.end(error)
        else:
            self.retries += 1
            self.error = error  # so far: see look
        return wait_s

    def end(self, error: PenstockError | None) -> None:
        """Complete it; what it reads into is the caller's alone from here on."""
        self.error, policy = error, self.policy
        try:
            if (hedges := policy.hedges.open) and (hedge := hedges.pop(self, None)) is not None:
                hedge.settle()
            if error is not None:
                policy.blame(error, self.span.key, self.attempts, self._began)
            else:
                policy.succeeded()
                if self._trace is not None and policy.tells:
                    self._tell()
        except Exception as broken:
            self.error = self.error or bug(broken)
            raise
        finally:  # whatever goes wrong in telling, who waits must wake
            self._exchange = None
            self.complete = True
            self._owner.finished(self)

    def _tell(self) -> None:
        url, elapsed_s = self.policy.driver.url(self.span.key), monotonic() - self._began
        emit(RangeRead(url, self.span.start, self.size_bytes, elapsed_s, self.attempts))


class RangeProbe(SpanRead):
    """A read whose answer teaches the driver something: tried once, whatever comes of it."""

    __slots__ = ()

    def twin(self, policy: RetryPolicy, owner: Owner) -> None:
        """Return None: the answer of another request would teach nothing."""

    def _failed(self, error: PenstockError) -> None:
        if self._trace is not None:
            self._trace.end(error)
        self.end(error)


class SplitRead(SpanRead):
    """A long span, as several reads into one target."""

    __slots__ = ("_ended", "_reads")

    def __init__(self, policy: RetryPolicy, span: Span, owner: Owner, whole: Buffer, most_bytes: int) -> None:
        super().__init__(policy, span, owner, whole)
        start = span.start
        self._reads = [
            SpanRead(policy, Span(span.key, low, high, span.etag), self, whole.slice(low - start, high - start))
            for low, high in split(start, start + whole.size, most_bytes)
        ]
        self._reads[0].front = start == 0 and len(self._reads) == 1
        self._ended = count(1)  # counts in one step: a transport may have several threads

    def calls(self) -> Sequence[SpanRead]:
        """Return the reads of the parts."""
        return self._reads

    def look(self) -> None:
        """Let each part look."""
        for read in self._reads:
            read.look()

    def finished(self, part: SpanRead) -> None:
        """Count a part; the first error is the whole's, told when no part writes into the target any more."""
        self.error = self.error or part.error
        if next(self._ended) == len(self._reads):
            self.attempts = sum(read.attempts for read in self._reads)
            self.retries = sum(read.retries for read in self._reads)
            self._reads = []  # each of them leads back here: the memory would be held until the collector runs
            self.complete = True
            self._owner.finished(self)
