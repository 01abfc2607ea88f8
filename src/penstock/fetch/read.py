"""Reads spans into memory: each is sent, verified, and asked for again from the byte it reached."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from queue import Empty, SimpleQueue
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING

from penstock.errors import Bug, PenstockError, Transient, Truncated, Unusable
from penstock.events import RangeRead, emit, listening
from penstock.fetch.judge import bug
from penstock.fetch.operation import LOOK_S
from penstock.fetch.plan import split
from penstock.protocols.driver import RANGE_IGNORED
from penstock.target import Target
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.fetch.judge import Judge
    from penstock.protocols.exchange import Exchange, Request, Response, Work

__all__ = ["Inbox", "Parts", "Read"]


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
                    with suppress(Empty):  # a while later: see LOOK_S
                        self._signal.get(timeout=LOOK_S)
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
        "_judge",
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

    def __init__(self, judge: Judge, span: Span, owner: Inbox | Parts, target: Target | None = None) -> None:
        """Prepare a read of ``span``; memory is allocated when it is sent, unless ``target`` brings its own."""
        self._judge = judge
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
        span, driver = self.span, self._judge.driver
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
            return self._failed(bug(error))
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
        wait_s = self._judge.decide(error, self.attempts, self._began)
        if wait_s is None:
            self._end(error)
        return wait_s

    def _end(self, error: PenstockError | None) -> None:
        self.error = error
        try:
            if error is not None:
                self._judge.blame(error, self.span.key, self.attempts, self._began)
            else:
                self._judge.succeeded()
                if listening():
                    self._tell()
        finally:  # whatever goes wrong in telling, who waits must wake
            self._exchange = None
            self.complete = True
            self._owner.finished(self)

    def _tell(self) -> None:
        size_bytes = len(self.value) if self.value is not None else self.target.size if self.target else 0
        url, elapsed_s = self._judge.driver.url(self.span.key), monotonic() - self._began
        emit(RangeRead(url, self.span.start, size_bytes, elapsed_s, self.attempts))


class Parts(Read):
    """A long span, as several reads into one target."""

    __slots__ = ("_ended", "_reads")

    def __init__(self, judge: Judge, span: Span, owner: Inbox, whole: Target, most_bytes: int) -> None:
        super().__init__(judge, span, owner, whole)
        start = span.start
        self._reads = [
            Read(judge, Span(span.key, low, high, span.etag), self, whole.slice(low - start, high - start))
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
