"""Reads of spans into memory: each is sent, verified, and requested again from the byte that it reached."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from time import monotonic, time
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self, cast

from penstock.engine.buffer import Buffer
from penstock.engine.contracts.driver import RANGE_IGNORED
from penstock.engine.contracts.exchange import Exchange
from penstock.engine.operations.operation import head_with_sums
from penstock.engine.operations.policy import again, bug, count_row
from penstock.errors import Bug, Cancelled, ChecksumMismatch, PenstockError, Transient, Truncated, Unusable
from penstock.events import RangeRead, RequestTrace, SlowRequest, emit, listening, slow
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.engine.contracts.driver import Summed
    from penstock.engine.contracts.exchange import Request, Response, Work
    from penstock.engine.contracts.fetching import Owner, ReadOperation
    from penstock.engine.operations.policy import RetryPolicy
    from penstock.engine.waiting import Inbox
    from penstock.values import Checksum, ObjectMeta

Again = Callable[[Span, Buffer], "SpanRead"]


class _Both(NamedTuple):
    """Two owners of one read."""

    first: Owner
    second: Owner

    def finished(self, read: ReadOperation, /) -> None:
        self.first.finished(read)
        self.second.finished(read)


class SpanRead:
    """A read of one span into memory. Bytes of an interrupted body count.

    ``front``: it begins where its object does and may be as long: it is requested even if ``Range`` is ignored.
    ``checksum``: that of the whole object, if its bytes come in several responses; no single one is compared then.
    ``called_off``: its caller cancelled it: it begins no more writes. Set from any thread, before ``attempts`` is
    looked at; ``attempts`` (second requests included) is increased before ``called_off`` is looked at.
    """

    __slots__ = (
        *("_began", "_exchange", "_handed_over", "_owner", "_reached", "_row", "_trace", "attempts", "called_off"),
        *("checksum", "complete", "error", "front", "policy", "retries", "span", "target", "value", "version"),
    )

    def __init__(self, policy: RetryPolicy, span: Span, owner: Owner, target: Buffer | None = None) -> None:
        """Prepare a read of ``span`` into ``target``; without one, memory is allocated when the read is sent."""
        self.policy = policy
        self._owner = owner
        self._exchange: Exchange[Any] | None = None
        self._began = 0.0
        self._reached = self._row = 0
        self._handed_over = False
        self.checksum: Checksum | None = None
        self._trace = RequestTrace("read", policy.driver.url(span.key)) if listening() else None
        self.front = False
        self.called_off = False
        self.span = span
        self.target = target
        self.value: bytes | None = None
        self.version = ""
        self.attempts = 0
        self.retries = 0
        self.error: PenstockError | None = None
        self.complete = False

    @property
    def size_bytes(self) -> int:
        return len(self.value) if self.value is not None else self.target.size if self.target else 0

    def operations(self) -> Sequence[SpanRead]:
        return (self,)

    def tell(self, inbox: Inbox) -> None:
        """Notify ``inbox``, too, when the read is complete; if it is already complete, ``inbox`` needs no notice."""
        self._owner = _Both(inbox, self._owner)

    def look(self) -> None:
        """Log the error of the last attempt if the read takes long; called on the waiting thread."""
        error = self.error
        if error is not None and not self.complete:
            self.policy.warn(error, self.span.key, self.attempts, self._began)

    def check(self) -> None:
        if self.error is not None:
            raise again(self.error)

    def take(self) -> bytes:
        if self.error is not None:
            raise again(self.error)
        if self.value is not None:
            return self.value
        return self.target.take() if self.target is not None else b""

    def request(self) -> Request | Work:
        attempts = self.attempts = self.attempts + 1
        if attempts == 1:
            self._began = monotonic()
        if self.called_off:
            self._exchange = None
            raise Cancelled("cancelled")
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
        """Do the same as the beginning of ``request``, which avoids a function call."""
        self.attempts += 1
        if self.attempts == 1:
            self._began = monotonic()
        if self.called_off:
            self._exchange = None
            raise Cancelled("cancelled")

    def _end_trace(self, error: PenstockError | None = None) -> None:
        if self._trace is not None:
            self._trace.end(error)

    def _traced(self, request: Request | Work) -> Request | Work:
        if self._trace is not None:
            self._trace.start(self.attempts, request)
        return request

    def done(self, response: Response) -> float | None:
        trace, exchange = self._trace, self._exchange
        if trace is not None:
            trace.answer(response)
        try:
            if exchange is None:
                self._raise(response)
            got = exchange.parse(response)
        except PenstockError as error:
            return self._failed(error)
        except Exception as error:  # noqa: BLE001  a parser that fails on a response must not stop the I/O thread
            return self._failed(bug(error))
        target = self.target
        if target is not None and self._reached + got < target.size:
            if self.span.whole:
                self._note(response)
            return self._cut_short(got, response.fault)
        if self.checksum is not None and (differs := self._mismatch(self.checksum)) is not None:
            return self._failed(differs)
        if trace is not None:
            trace.end(None)
        # As in ``_count``; a function call costs too much here.
        counted = 0 if self._handed_over else got
        if elapsed_s := self.policy.timings.answered(response, exchange.request.url, counted, self._began):
            self._slow(elapsed_s, response.status, got)
        self.version = self.span.etag or response.version
        self.end(None)
        return None

    def _note(self, response: Response) -> None:
        """Keep the checksum of the whole object until the rest arrives in another response."""
        driver = self.policy.driver
        if driver.abilities.sums and not self._reached:
            self.checksum = cast("Summed", driver).checksum(response.headers)

    def _mismatch(self, checksum: Checksum) -> ChecksumMismatch | None:
        """Compare the bytes of the whole object with its checksum; on a mismatch they are requested from the start."""
        if self.target is None or checksum.holds(self.target.view()):
            return None
        self._reached = 0
        return ChecksumMismatch(f"the bytes do not match the store's {checksum.name}")

    def _slow(self, elapsed_s: float, status: int, size_bytes: int) -> None:
        slow(SlowRequest(elapsed_s, self.policy.driver.url(self.span.key), size_bytes, self.attempts, status, time()))

    def _count(self, response: Response, size_bytes: int) -> None:
        """Count a successful response; the bytes of a second request were counted with that request."""
        exchange, received_bytes = self._exchange, 0 if self._handed_over else size_bytes
        url = exchange.request.url if exchange is not None else ""
        if elapsed_s := self.policy.timings.answered(response, url, received_bytes, self._began):
            self._slow(elapsed_s, response.status, size_bytes)

    def cut(self, whole: bytes, version: str) -> None:
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
            self.version = version
            self.end(None)

    def twin(self, policy: RetryPolicy, owner: Owner) -> SpanRead | None:
        """Return a read of the missing bytes into separate memory, for a second request; None if not allowed."""
        span = self.span
        if self._reached:
            span = Span(span.key, span.start + self._reached, span.stop, span.etag)
        twin = SpanRead(policy, span, owner)
        twin.front = self.front and not self._reached
        return twin.beside(self)

    def beside(self, first: SpanRead) -> Self:
        trace = first._trace
        self._trace = trace.beside() if trace is not None else None
        return self

    def fits(self, twin: SpanRead) -> bool:
        """Return whether a request is in flight and the bytes of ``twin`` complete the received bytes."""
        return self._exchange is not None and twin.span.start - self.span.start <= self._reached

    def answer_by(self, answer: Callable[[Response], Any]) -> None:
        """Let ``answer`` return the outcome of the request in flight, however that ends."""
        exchange = self._exchange
        if exchange is not None:
            self._exchange = Exchange(exchange.request, answer)

    def hand_over(self, twin: SpanRead) -> object:
        """Take the bytes of ``twin``, which must fit, and return the result of the request that it replaces."""
        target = self.target
        if target is None:
            raise Bug("a running read has no memory")
        target.slice(target.size - twin.size_bytes, target.size).fill(twin.take())
        self._superseded()
        return target.size - self._reached

    def _superseded(self) -> None:
        self._handed_over = True
        self._end_trace(Cancelled("a second request was answered first"))

    def _unranged(self) -> PenstockError:
        """Return the error that leads to ``policy.unranged``: ``request`` raises it, and ``done`` handles it."""
        error = Unusable("this server ignores Range", url=self.policy.driver.url(self.span.key))
        error.code = RANGE_IGNORED
        return error

    def _raise(self, response: Response) -> NoReturn:
        raise response.fault or Bug("a response without a request")

    def _cut_short(self, got: int, fault: PenstockError | None) -> float | None:
        size = self.target.size if self.target is not None else 0
        error = fault or Truncated(f"{self._reached + got} of {size} bytes arrived")
        # Without a version to pin, the rest might be another object's; without ranges it cannot be requested.
        if got and self.span.etag and self.policy.driver.abilities.ranges is not False:
            self._reached += got
            # Patience limits the time without progress.
            self._began = monotonic()
        if isinstance(error, Truncated):
            error.retries = Transient.retries
        return self._failed(error)

    def _failed(self, error: PenstockError) -> float | None:
        self._end_trace(error)
        if error.code == RANGE_IGNORED:
            self._exchange = None
            if self._reached:
                self._reached = 0  # from its start
                return 0.0
            # From here on the read waits for the whole object.
            self.policy.unranged(self)
            return None
        url = self._exchange.request.url if self._exchange is not None else ""
        self._row = count_row(self._row, error)
        error, wait_s = self.policy.failed(error, url, self.attempts, self._began, self._row)
        if wait_s is None:
            self.end(error)
        else:
            self.retries += 1
            self.error = error  # until the next attempt: see look
        return wait_s

    def end(self, error: PenstockError | None) -> None:
        """Complete the read; from here on its memory belongs to the caller alone."""
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
        finally:
            # Whatever goes wrong above, the waiting thread must wake.
            self._exchange = None
            self.complete = True
            self._owner.finished(self)

    def _tell(self) -> None:
        url, elapsed_s = self.policy.driver.url(self.span.key), monotonic() - self._began
        emit(RangeRead(url, self.span.start, self.size_bytes, elapsed_s, self.attempts))


class RangeProbe(SpanRead):
    """A read from whose response the driver learns; never retried."""

    __slots__ = ()

    def twin(self, policy: RetryPolicy, owner: Owner) -> None:
        """Return None: the driver would learn nothing from another response."""

    def _failed(self, error: PenstockError) -> None:
        self._end_trace(error)
        self.end(error)


class ChecksumRead(SpanRead):
    """Look-up of an object's checksum: a HEAD in parallel with the requests for the object's parts."""

    __slots__ = ()

    def request(self) -> Request | Work:
        self._begin_attempt()
        exchange = self._exchange = head_with_sums(self.policy.driver, self.span.key, self.span.etag)()
        return self._traced(exchange.request)

    def done(self, response: Response) -> float | None:
        if self._trace is not None:
            self._trace.answer(response)
        try:
            found: ObjectMeta = self._exchange.parse(response) if self._exchange is not None else self._raise(response)
        except PenstockError as error:
            return self._failed(error)
        except Exception as error:  # noqa: BLE001  see SpanRead.done
            return self._failed(bug(error))
        self._end_trace()
        self.policy.timings.carried(self._exchange.request.url if self._exchange is not None else "", 0)
        # If the version differs, the parts themselves report that.
        self.checksum = found.checksum if found.etag == self.span.etag else None
        self.end(None)
        return None

    def twin(self, policy: RetryPolicy, owner: Owner) -> None:
        """Return None: the parts take longer."""

    def _tell(self) -> None:
        """Emit nothing: no bytes were read."""


def split_range(start: int, stop: int, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Cut ``[start, stop)`` into the fewest, nearly equal runs of at most ``most_bytes``; an empty run is kept."""
    size = stop - start
    pieces = max(1, -(-size // most_bytes))
    for piece in range(pieces):
        yield start + size * piece // pieces, start + size * (piece + 1) // pieces


class SplitRead(SpanRead):
    """A long span, read in several parts into one target.

    The bytes of a whole object are compared with its checksum, if the store provides one. The thread that first asks
    for the outcome compares them, because the transport's thread has other operations to serve. Bytes that differ are
    read again.
    """

    __slots__ = ("_again", "_asked", "_calls", "_ended", "_fault", "_unseen")

    def __init__(
        self, policy: RetryPolicy, span: Span, owner: Owner, whole: Buffer, most_bytes: int, again: Again | None = None
    ) -> None:
        """Prepare the reads; ``again`` reads the same span into its buffer once more."""
        self._unseen = False
        self._fault: PenstockError | None = None
        super().__init__(policy, span, owner, whole)
        start = span.start
        reads = [
            SpanRead(
                policy, span._replace(start=low, stop=high, whole=False), self, whole.slice(low - start, high - start)
            )
            for low, high in split_range(start, start + whole.size, most_bytes)
        ]
        reads[0].front = start == 0 and len(reads) == 1
        self._again = again
        self._unseen = span.whole and policy.driver.abilities.sums
        self.checksum = span.checksum
        self._asked = ChecksumRead(policy, span, self) if self._unseen and span.checksum is None else None
        self._calls = reads if self._asked is None else [*reads, self._asked]
        # Counts in one step, because a transport may have several threads.
        self._ended = count(1)

    @property
    def error(self) -> PenstockError | None:
        """The error, or None; once complete, the first access compares the checksum."""
        if self._unseen and self.complete:
            if self._fault is None:
                self._fault = self._differs()
            # Last, so that another thread that asks meanwhile compares, too.
            self._unseen = False
        return self._fault

    @error.setter
    def error(self, error: PenstockError | None) -> None:
        self._fault = error

    def _differs(self) -> PenstockError | None:
        checksum, target = self.checksum, self.target
        error = None if checksum is None else self._mismatch(checksum)
        if error is None or target is None:
            return None
        if self._again is None:
            error.url, error.attempts = self.policy.driver.url(self.span.key), self.attempts
            return error
        try:
            read = self._again(self.span._replace(checksum=checksum), target)
        except PenstockError as failed:
            return failed
        self.attempts += read.attempts
        self.retries += read.attempts
        self.version = read.version
        return read.error

    def operations(self) -> Sequence[SpanRead]:
        return self._calls

    def look(self) -> None:
        for read in self._calls:
            read.look()

    def finished(self, part: ReadOperation) -> None:
        """Count a part; the first error is the whole read's, reported once no part writes into the target."""
        self._fault = self._fault or part.error
        if next(self._ended) == len(self._calls):
            self.attempts = sum(read.attempts for read in self._calls)
            self.retries = sum(read.retries for read in self._calls)
            # Several parts are pinned to the span's version.
            self.version = self._calls[0].version
            # Each part refers back to this read: the cycle would hold the memory until the garbage collector runs.
            self._calls = []
            if self._asked is not None:
                self.checksum, self._asked = self._asked.checksum, None
            self.complete = True
            self._owner.finished(self)
