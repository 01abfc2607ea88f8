"""Carries operations out: each is sent, verified, and tried again from the byte it reached."""

from __future__ import annotations

import random
from concurrent.futures import Future
from itertools import count
from queue import SimpleQueue
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from penstock.errors import (
    Bug,
    Cancelled,
    Changed,
    PenstockError,
    TimedOut,
    Transient,
    Truncated,
    Unreachable,
    Unusable,
)
from penstock.events import RangeRead, Retried, emit, listening
from penstock.fetch.plan import split
from penstock.fetch.retry import Failure, Tokens, delay
from penstock.protocols.driver import RANGE_IGNORED
from penstock.target import Target
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.options import ReadOptions, RetryOptions
    from penstock.protocols.driver import Driver
    from penstock.protocols.exchange import Exchange, Request, Response, Transport, Work

__all__ = ["Fetcher", "Inbox", "Operation", "Read"]

T = TypeVar("T")


class Inbox:
    """Where one consumer waits for its reads; the transport's thread wakes it only for what it waits for."""

    __slots__ = ("_alone", "_awaited", "_signal")

    def __init__(self) -> None:
        """Nobody waits yet."""
        self._alone = Lock()
        self._awaited: Read | None = None
        self._signal: SimpleQueue[None] = SimpleQueue()

    def wait(self, read: Read) -> None:
        """Block until ``read`` is complete; Ctrl-C interrupts it, and a second thread is refused."""
        if read.complete:
            return
        if not self._alone.acquire(blocking=False):
            raise Unusable("two threads read from one file or iterator at once: give each its own, or take turns")
        try:
            while not read.complete:
                self._awaited = read
                if not read.complete:  # it may have completed before it was announced
                    self._signal.get()
        finally:
            self._awaited = None
            self._alone.release()

    def finished(self, read: Read) -> None:
        """Take note, on the transport's thread, that a read is complete."""
        if read is self._awaited:
            self._signal.put(None)


class Read:
    """One span on its way into memory. Bytes that arrived count even when their body broke off."""

    __slots__ = (
        "_began",
        "_exchange",
        "_fetcher",
        "_owner",
        "_reached",
        "_unranged",
        "attempts",
        "complete",
        "error",
        "span",
        "target",
        "value",
    )

    def __init__(self, fetcher: Fetcher, span: Span, owner: Inbox | _Parts, target: Target | None = None) -> None:
        """Prepare a read of ``span``; memory is allocated when it is sent, unless ``target`` brings its own."""
        self._fetcher = fetcher
        self._owner = owner
        self._exchange: Exchange[int] | Exchange[bytes] | None = None
        self._began = 0.0
        self._reached = 0
        self._unranged = False
        self.span = span
        self.target = target
        self.value: bytes | None = None
        self.attempts = 0
        self.error: PenstockError | None = None
        self.complete = False

    def calls(self) -> Sequence[Read]:
        """Return what the transport carries for this read."""
        return (self,)

    def take(self) -> bytes:
        """Return the bytes, or raise what went wrong; only once complete."""
        if self.error is not None:
            raise self.error
        if self.value is not None:
            return self.value
        return self.target.take() if self.target is not None else b""

    def request(self) -> Request | Work:
        """Ask for what is still missing."""
        self.attempts += 1
        if self.attempts == 1:
            self._began = monotonic()
        span, driver = self.span, self._fetcher.driver
        if span.stop is None or self._unranged:
            self._exchange = driver.get(span.key, span.etag)
            return self._exchange.request
        target = self.target
        if target is None:
            target = self.target = Target.allocate(span.stop - span.start)
        if self._reached:
            span = Span(span.key, span.start + self._reached, span.stop, span.etag)
            target = target.slice(self._reached, target.size)
        self._exchange = driver.read(span, target)
        return self._exchange.request

    def done(self, response: Response) -> float | None:
        """Verify what came; say when to go on, if something is missing."""
        try:
            got = self._exchange.parse(response) if self._exchange is not None else self._raise(response)
        except PenstockError as error:
            return self._failed(error)
        except Exception as error:  # noqa: BLE001  a parser that trips over an answer must not take the I/O thread along
            return self._failed(_bug(error))
        if isinstance(got, bytes):
            if not self._unranged:
                self.value = got
            elif not self._cut_out(got):
                return self._failed(Truncated(f"the object has {len(got)} bytes, {self.span.stop} were asked for"))
        elif self.target is not None and self._reached + got < self.target.size:
            return self._cut_short(got, response.fault)
        self._end(None)
        return None

    def _cut_out(self, whole: bytes) -> bool:
        start, stop = self.span.start, self.span.stop or 0
        if self.target is None or len(whole) < stop:
            return False
        self.target.fill(memoryview(whole)[start:stop])
        return True

    def _raise(self, response: Response) -> int:
        raise response.fault or Bug("a response without a request")

    def _cut_short(self, got: int, fault: PenstockError | None) -> float | None:
        size = self.target.size if self.target is not None else 0
        error = fault or Truncated(f"{self._reached + got} of {size} bytes arrived")
        if got and self.span.etag:  # without a version to pin, the rest might be another object's
            self._reached += got
            self._began = monotonic()  # patience is for lack of progress
        if isinstance(error, Truncated):
            error.retries = Transient.retries
        return self._failed(error)

    def _failed(self, error: PenstockError) -> float | None:
        if error.code == RANGE_IGNORED and not self._unranged:
            self._unranged = True  # from here on the whole object is read, and the span cut out of it
            return 0.0
        wait_s = self._fetcher.decide(error, self.attempts, self._began)
        if wait_s is None:
            self._end(error)
        return wait_s

    def _end(self, error: PenstockError | None) -> None:
        self.error = error
        try:
            if error is not None:
                self._fetcher.blame(error, self.span.key, self.attempts, self._began)
            else:
                self._fetcher.succeeded()
                if listening():
                    self._tell()
        finally:  # whatever goes wrong in telling, who waits must wake
            self._exchange = None
            self.complete = True
            self._owner.finished(self)

    def _tell(self) -> None:
        size_bytes = len(self.value) if self.value is not None else self.target.size if self.target else 0
        url, elapsed_s = self._fetcher.driver.url(self.span.key), monotonic() - self._began
        emit(RangeRead(url, self.span.start, size_bytes, elapsed_s, self.attempts))


class _Parts(Read):
    """A long span, as several reads into one target."""

    __slots__ = ("_ended", "_reads")

    def __init__(self, fetcher: Fetcher, span: Span, owner: Inbox, whole: Target, most_bytes: int) -> None:
        super().__init__(fetcher, span, owner, whole)
        start = span.start
        self._reads = [
            Read(fetcher, Span(span.key, low, high, span.etag), self, whole.slice(low - start, high - start))
            for low, high in split(start, start + whole.size, most_bytes)
        ]
        self._ended = count(1)  # counts in one step: a transport may have several threads

    def calls(self) -> Sequence[Read]:
        """Return the reads of the parts."""
        return self._reads

    def finished(self, part: Read) -> None:
        """Count a part; the first error is the whole's, told when no part writes into the target any more."""
        self.error = self.error or part.error
        if next(self._ended) == len(self._reads):
            self.complete = True
            self._owner.finished(self)


class Operation(Generic[T]):
    """Any other verb on its way; ``future`` holds its result, or what went wrong."""

    __slots__ = ("__weakref__", "_attempts", "_began", "_exchange", "_fetcher", "_make", "future")

    def __init__(self, fetcher: Fetcher, make: Callable[[], Exchange[T]]) -> None:
        self._fetcher = fetcher
        self._make = make
        self._exchange: Exchange[T] | None = None
        self._attempts = 0
        self._began = monotonic()
        self.future: Future[T] = Future()

    def request(self) -> Request | Work:
        """Make the next attempt's exchange."""
        self._attempts += 1
        self._exchange = self._make()
        return self._exchange.request

    def done(self, response: Response) -> float | None:
        """Settle the future, or say when to try again."""
        try:
            if self._exchange is None:
                raise response.fault or Bug("a response without a request")
            result = self._exchange.parse(response)
        except PenstockError as error:
            return self._failed(error)
        except Exception as error:  # noqa: BLE001  see Read.done
            return self._failed(_bug(error))
        self._fetcher.succeeded()
        self.future.set_result(result)
        return None

    def _failed(self, error: PenstockError) -> float | None:
        wait_s = self._fetcher.decide(error, self._attempts, self._began)
        if wait_s is None:
            self.future.set_exception(self._fetcher.blame(error, "", self._attempts, self._began))
        return wait_s


class Fetcher:
    """Operations on one store: many at once, each retried within a budget that all share.

    Attributes:
        pace: What jitter and ``Retry-After`` are multiplied by; ``penstock.testing.clock`` sets it, nobody else.

    """

    pace: ClassVar[float] = 1.0

    def __init__(self, driver: Driver, transport: Transport, retry: RetryOptions, read: ReadOptions) -> None:
        """Carry ``driver``'s verbs out over ``transport``."""
        self.driver = driver
        self.options = read
        self._transport = transport
        self._retry = retry
        self._tokens = Tokens(retry.tokens, retry.tokens)
        self._answered = False
        self._draw = random.Random().random  # noqa: S311  jitter; a generator of its own, so user seeds do not align ranks

    def run(self, make: Callable[[], Exchange[T]]) -> T:
        """Carry one verb out and return its result; Ctrl-C calls it off, lest it happen later."""
        operation = self.start(make)
        try:
            return operation.future.result()
        finally:
            self.call_off((operation,))

    def start(self, make: Callable[[], Exchange[T]]) -> Operation[T]:
        """Send one verb on its way; ``make`` is called anew for every attempt."""
        self.driver.prepare()
        operation = Operation(self, make)
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
            Read(self, span, inbox)
            if span.stop is None or span.stop - span.start <= most_bytes
            else self._long(span, span.stop - span.start, inbox)
            for span in spans
        ]
        self._transport.submit(_calls(reads))
        return reads

    def begin_into(self, places: Iterable[tuple[Span, Target]], inbox: Inbox) -> list[Read]:
        """Send reads on their way, each into a target of its span's size, in one request; none where that is empty."""
        self.driver.prepare()
        reads = [Read(self, span, inbox, target) for span, target in places]
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
        whole = _Parts(self, self._pinned(span), inbox, target, self.options.split_bytes)
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

    def decide(self, error: PenstockError, attempt: int, began: float) -> float | None:
        """Return the delay before another attempt, or None; on the transport's thread."""
        if not error.retries:
            return None
        answered = self._answered or not isinstance(error, (TimedOut, Unreachable))
        asked_s = (error.retry_after_s or 0.0) * self.pace
        failure = Failure(attempt, monotonic() - began, answered, error.retries, asked_s)
        wait_s = delay(failure, self._retry, self._tokens, self._draw() * self.pace)
        if wait_s is not None and listening():
            emit(Retried(error.url, error, attempt, wait_s))
        return wait_s

    def succeeded(self) -> None:
        """Count a success: the store lives, and a retry token comes back."""
        self._answered = True
        self._tokens.refund()

    def blame(self, error: PenstockError, key: str, attempts: int, began: float) -> PenstockError:
        """Complete an error with what the operation knows."""
        if not isinstance(error, Cancelled):
            error.attempts, error.elapsed_s = attempts, monotonic() - began
        error.url = error.url or (self.driver.url(key) if key else "")
        return error

    def _long(self, span: Span, size_bytes: int, inbox: Inbox) -> Read:
        """Return a read in parts; where no version to pin can be had, one that has failed, to be told in its turn."""
        try:
            span = self._pinned(span)
        except PenstockError as error:
            failed = Read(self, span, inbox)
            failed.error, failed.complete = error, True
            return failed
        return _Parts(self, span, inbox, Target.allocate(size_bytes), self.options.split_bytes)

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


def _bug(error: Exception) -> PenstockError:
    wrapped = Bug(f"unexpected {type(error).__name__} in an answer: {error}")
    wrapped.__cause__ = error
    return wrapped
