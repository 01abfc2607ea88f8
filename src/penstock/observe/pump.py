"""Takes records from any thread and writes them on one of its own: a slow or broken sink holds nothing up."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from logging import getLogger
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Final

from penstock.events import named
from penstock.observe.sink import Record
from penstock.waiting import Wakeup

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.events import Event
    from penstock.observe.sink import Writer

__all__ = ["Pump"]

_LOG = getLogger("penstock")
_QUEUED: Final = 65_536  # records of some 300 bytes: 20 MB, and 1.6 s of 20,000 requests a second
_AT_ONCE: Final = 4096
_PAUSE_S: Final = 0.25  # between looks into the queue, unless it fills
_WARN_EVERY_S: Final = 30.0


class Pump:
    """A bounded queue of records and the thread that writes them.

    The queue is a deque, written in C: emitting threads, the I/O thread among them, share no lock
    with the writing one, so that Ctrl-C and ``fork`` leave none locked.

    Attributes:
        written: Records that the writer took.
        dropped: Records that found the queue full.
        lost: Records that the writer failed on.

    """

    def __init__(self, writer: Writer, name: str) -> None:
        """Write to ``writer``, which ``name`` describes in warnings; the thread starts with the first record."""
        self.written = self.dropped = self.lost = 0
        self._writer = writer
        self._name = name
        self._capture: Callable[[Event], object] | None = getattr(writer, "capture", None)
        self._queue: deque[tuple[int, Event, object]] = deque()
        self._wakeup = Wakeup()
        self._flushes: deque[Wakeup] = deque()  # of those who wait until all is written
        self._tokens = deque([None])  # the thread that gets it starts the writing one
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._fault: Exception | None = None  # the latest of ``capture``
        self._warned_s = 0.0
        self._told = 0

    def hear(self, event: Event) -> None:
        """Queue a record; on the emitting thread."""
        queue = self._queue
        waiting = len(queue)
        if waiting >= _QUEUED:
            self.dropped += 1
            return
        queue.append((time_ns(), event, self._captured(event)))
        if self._thread is None:
            self._start()
        elif waiting == _QUEUED // 4:
            self._wakeup.set()

    def _captured(self, event: Event) -> object:
        """Return what the writer captures; None where it fails, which is told by the writing thread."""
        try:
            return None if self._capture is None else self._capture(event)
        except Exception as error:  # noqa: BLE001  see _drain
            self._fault = error
            return None

    def flush(self, limit_s: float) -> bool:
        """Wait until what was queued has been written, or lost; False after ``limit_s``."""
        if self._thread is None and not self._queue:
            return True
        self._start()
        return self._wait(limit_s)

    def _wait(self, limit_s: float) -> bool:
        done = Wakeup()
        self._flushes.append(done)
        self._wakeup.set()
        return done.wait(limit_s)

    def close(self, limit_s: float) -> bool:
        """Write what is queued and close the writer; False where that takes longer than ``limit_s``, and goes on."""
        self._stopping = True
        self._start()
        if self._thread is None:  # the interpreter exits, and starts no thread any more
            self._drain()
            self._finish()
            return True
        return self._wait(limit_s)

    def leave(self) -> None:
        """Let go, in a forked child, of what is the parent's."""
        self._queue.clear()
        with suppress(Exception):
            self._writer.leave()

    def _start(self) -> None:
        with suppress(IndexError, RuntimeError):  # another thread starts it; or the interpreter is at its end
            self._tokens.pop()
            self._thread = threading.Thread(target=self._run, name="penstock-observe", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:
                self._thread = None
                raise

    def _run(self) -> None:
        while True:
            self._wakeup.wait(_PAUSE_S)
            waiting = len(self._flushes)
            self._drain()
            if self._stopping and not self._queue:
                self._finish()
            for _ in range(waiting):
                self._flushes.popleft().set()
            if self._stopping and not self._queue:
                return

    def _drain(self) -> None:
        """Write what is queued now; what comes meanwhile waits for the next look."""
        left = len(self._queue)
        while left > 0:
            records = [Record(*self._queue.popleft()) for _ in range(min(left, _AT_ONCE))]
            left -= len(records)
            try:
                self._writer.write(records)
                self.written += len(records)
            except Exception as error:  # noqa: BLE001  a broken sink must not break storage (trap 14)
                self.lost += len(records)
                self._warn(f"it failed with {_text(error)}")
        if self._fault is not None:
            self._warn(f"its capture failed with {_text(self._fault)}")
            self._fault = None
        if self.dropped > self._told:
            self._warn("it is slower than what it is to record")

    def _finish(self) -> None:
        try:
            self._writer.close()
        except Exception as error:  # noqa: BLE001  see _drain
            self._warned_s = 0.0
            self._warn(f"closing it failed with {_text(error)}")
        if self.dropped > self._told:
            self._warned_s = 0.0
            self._warn("it is slower than what it was to record")

    def _warn(self, why: str) -> None:
        now = monotonic()
        if self._warned_s and now < self._warned_s + _WARN_EVERY_S:
            return
        self._warned_s, self._told = now, self.dropped
        with suppress(Exception):
            _LOG.warning(
                "%s: %s; %d records were dropped and %d lost so far, and reads go on", self._name, why,
                self.dropped, self.lost,
            )  # fmt: skip


def _text(error: Exception) -> str:
    """Name an error of a sink's library, or of the system: neither holds secrets of a store."""
    return named(error) if not isinstance(error, OSError) else f"{type(error).__name__}: {error}"
