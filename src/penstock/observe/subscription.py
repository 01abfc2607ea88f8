"""Subscriptions of sinks, in this process and in the processes that are forked or spawned from it."""

from __future__ import annotations

import os
import secrets
import threading
from collections import deque
from contextlib import suppress
from functools import cached_property, partial
from logging import getLogger
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Final, Self

from penstock.engine.waiting import Wakeup
from penstock.errors import Unusable, discreet, printable
from penstock.events import at_end, carry, describe_error, subscribe, when_fetching
from penstock.observe.sink import Record, discreet_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.events import Event
    from penstock.observe.sink import Sink, Writer

_LOG = getLogger("penstock")
# How long closing waits for a sink, which is abandoned after that.
_CLOSE_S: Final = 5.0
# The same in a worker: torch kills workers that take 5 s to end.
_WORKER_S: Final = 2.0

# Subscriptions of this process, by a name that is the same in the processes that it starts.
_open: dict[str, Subscription] = {}


def to(*sinks: Sink) -> Subscription:
    """Send the events of this process, and of processes that it forks or spawns from now on, to sinks.

    A forked child has the sinks immediately. A spawned child (``spawn``, ``forkserver``) has them once it unpickles an
    object that reads from a store, such as a dataset or a loader. Each sink writes on a separate thread, so that a
    slow, full or broken sink delays no request: beyond 65,536 waiting records, new ones are dropped and counted.

    Args:
        *sinks: The sinks, such as ``JsonLines("events.jsonl")``.

    Returns:
        A context manager; closing it, or the interpreter's exit, writes the remaining records.

    Raises:
        Unusable: No sink is given, or an argument is not a sink.
        MissingExtra: The sink's library is not installed.
        OSError: The sink's file cannot be opened, or its port cannot be listened on.

    Example:
        >>> from penstock.observe import ChromeTrace, JsonLines, to
        >>> with to(ChromeTrace("trace.json"), JsonLines("events.jsonl")) as sinks:
        ...     meta = ps.stat("s3://bucket/train/3/0000.png")
        >>> sinks.dropped
        0
    """
    if not sinks:
        raise Unusable("penstock.observe.to needs at least one sink, such as JsonLines(path)")
    for sink in sinks:
        if not callable(getattr(sink, "open", None)) or isinstance(sink, type):
            raise Unusable(f"a sink must be a value such as penstock.observe.JsonLines(path), got {sink!r}")
    return Subscription(secrets.token_hex(8), sinks, first=True)


class Subscription:
    """A context manager of open sinks: use it in a ``with`` block, or call ``close``. See ``to``, which makes one.

    Args:
        name: Name of the subscription, unique in this process and its children.
        sinks: The sinks to open.
        first: Whether this process asks for them; False in processes that it starts.

    Example:
        >>> from penstock.observe import JsonLines, to
        >>> sinks = to(JsonLines("events.jsonl"))
        >>> meta = ps.stat("s3://bucket/train/3/0000.png")
        >>> sinks.close(), sinks.written, sinks.dropped
        (True, 2, 0)
    """

    def __init__(self, name: str, sinks: tuple[Sink, ...], *, first: bool) -> None:
        self._name, self._sinks = name, sinks
        self._pid = os.getpid()
        self._arrived_pid = 0  # process that has begun to fetch
        self._closed = False
        self._pumps: list[Pump] = []
        self._stops: list[Callable[[], None]] = []
        try:
            self._begin(first=first)
        except BaseException:
            self.close()
            raise
        self._kept = [carry(self._carried), at_end(self._at_end), when_fetching(self._arrive)]
        _open[name] = self

    def _begin(self, *, first: bool) -> None:
        for sink in self._sinks:
            pump = Pump(sink.open(first=first), f"the sink {sink!r}")
            self._pumps.append(pump)
            if sink.events:
                self._stops.append(subscribe(pump.hear))

    @property
    def written(self) -> int:
        """Number of records that this process has written, over all sinks, without those of its children."""
        return sum(pump.written for pump in self._pumps)

    @property
    def dropped(self) -> int:
        """Number of records that this process has not written because a sink was too slow or failed."""
        return sum(pump.dropped + pump.lost for pump in self._pumps)

    def flush(self, limit_s: float = _CLOSE_S) -> bool:
        """Wait until all records so far have been written; after ``close``, this does not wait.

        Args:
            limit_s: Most seconds to wait.

        Returns:
            False if the time was not enough; after ``close`` see its own result.
        """
        if self._closed:
            return True
        return self._each(Pump.flush, limit_s)

    def close(self, limit_s: float = _CLOSE_S) -> bool:
        """Write the remaining records, and close the sinks.

        A second call does nothing. Processes that were started meanwhile keep their sinks.

        Args:
            limit_s: Most seconds to wait.

        Returns:
            False if a sink was abandoned.
        """
        if self._closed:
            return True
        self._closed = True
        if _open.get(self._name) is self:
            del _open[self._name]
        for stop in (*self._stops, *getattr(self, "_kept", ())):
            stop()
        return self._each(Pump.close, limit_s)

    def _each(self, end: Callable[[Pump, float], bool], limit_s: float) -> bool:
        until = monotonic() + limit_s
        # Of every pump, also after one that was not done in time.
        return min([end(pump, max(0.0, until - monotonic())) for pump in self._pumps], default=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _at_end(self) -> None:
        if self._pid == os.getpid():
            self.close()

    def _carried(self) -> Callable[[], object]:
        return partial(receive, self._name, self._picklable)

    @cached_property
    def _picklable(self) -> tuple[Sink, ...]:
        """The sinks that can be pickled for a spawned process; computed when the first process is spawned."""
        return tuple(sink for sink in self._sinks if _can_be_pickled(sink))

    def _forked(self) -> None:
        """Abandon the parent's threads and files in its forked child; the sinks open again with the first event."""
        for stop in self._stops:
            stop()
        for pump in self._pumps:
            pump.leave()
        self._pumps = []
        self._stops = [subscribe(self._hear_first)] if any(sink.events for sink in self._sinks) else []

    def _hear_first(self, event: Event) -> None:
        self._arrive()
        for sink, pump in zip(self._sinks, self._pumps, strict=False):
            if sink.events:
                pump.hear(event)

    def _arrive(self) -> None:
        """Open the sinks in a forked child that begins to fetch; log failures."""
        if self._closed or self._arrived_pid == os.getpid():
            return
        self._arrived_pid = os.getpid()
        if self._pid != self._arrived_pid:
            self._pid = self._arrived_pid
            for stop in self._stops:
                stop()
            self._stops = []
            try:
                self._begin(first=False)
            except Exception as error:  # noqa: BLE001  see receive
                _log_refused_sink(error)
        _close_with_worker(self)


def _can_be_pickled(sink: Sink) -> bool:
    from multiprocessing.reduction import ForkingPickler  # most programs spawn nothing

    try:
        ForkingPickler.dumps(sink)
    except Exception as error:  # noqa: BLE001  see receive
        _LOG.warning(
            "%s records nothing in processes that are spawned, because it cannot be pickled (%s): use functions and "
            "classes of a module, not lambdas", type(sink).__name__, type(error).__name__,
        )  # fmt: skip
        return False
    return True


def has(sink: Sink) -> bool:
    """Return whether an equal sink is open in this process, or was open in the process that it was forked from."""
    return any(sink in each._sinks for each in _open.values())  # noqa: SLF001  of this module


def receive(name: str, sinks: tuple[Sink, ...], *, first: bool = False) -> None:
    """Open sinks in a process that was spawned, unless they are already open; log failures."""
    if name in _open or not sinks:
        return
    try:
        Subscription(name, sinks, first=first)
    except Exception as error:  # noqa: BLE001  a broken sink must not break storage (trap 14)
        _log_refused_sink(error)


def _log_refused_sink(error: Exception) -> None:
    text = printable(discreet(str(error))) if isinstance(error, OSError) else describe_error(error)
    _LOG.warning("a sink could not be opened in process %d: %s", os.getpid(), text)


def _close_with_worker(subscription: Subscription) -> None:
    """Close the subscription when a ``multiprocessing`` process ends, which runs no ``atexit`` unless it was spawned.

    Called when the process begins to fetch: finalizers registered while it unpickles its work are cleared before it
    starts.
    """
    from multiprocessing import parent_process, util

    if parent_process() is not None:
        util.Finalize(subscription, subscription.close, args=(_WORKER_S,), exitpriority=0)


def _notify_fork() -> None:
    for subscription in _open.values():
        with suppress(Exception):
            subscription._forked()  # noqa: SLF001  of this module


os.register_at_fork(after_in_child=_notify_fork)


# Records of some 300 bytes each: 20 MB, or 1.6 s of 20,000 requests per second.
_QUEUED: Final = 65_536
_AT_ONCE: Final = 4096
# Seconds between two checks of the queue, unless it fills.
_PAUSE_S: Final = 0.25
_WARN_EVERY_S: Final = 30.0


class Pump:
    """A bounded queue of records and the thread that writes them.

    The queue is a deque, implemented in C: emitting threads, such as the I/O thread, share no lock with the writing
    thread, so that Ctrl-C and ``fork`` leave no lock held.

    Attributes:
        written: Number of records that the writer has written.
        dropped: Number of records dropped because the queue was full.
        lost: Number of records on which the writer failed.
    """

    def __init__(self, writer: Writer, name: str) -> None:
        """Write to ``writer``, which ``name`` describes in warnings; the thread starts with the first record."""
        self.written = self.dropped = self.lost = 0
        self._writer = writer
        self._name = name
        self._capture: Callable[[Event], object] | None = getattr(writer, "capture", None)
        self._queue: deque[tuple[int, Event, object]] = deque()
        self._wakeup = Wakeup()
        self._flushes: deque[Wakeup] = deque()  # of threads in ``flush``
        # The thread that takes the token starts the writing thread.
        self._tokens = deque([None])
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._ended = Wakeup()  # of the thread in ``close``
        self._fault: Exception | None = None  # latest error of ``capture``
        self._warned_s = 0.0
        self._told = 0

    def hear(self, event: Event) -> None:
        """Queue a record; called on the emitting thread."""
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
        """Return the result of the writer's ``capture``; None if it fails, which the writing thread logs."""
        try:
            return None if self._capture is None else self._capture(event)
        except Exception as error:  # noqa: BLE001  see _drain
            self._fault = error
            return None

    def flush(self, limit_s: float) -> bool:
        """Wait until all queued records have been written or lost; return False after ``limit_s`` seconds."""
        if self._thread is None and not self._queue:
            return True
        self._start()
        done = Wakeup()
        self._flushes.append(done)
        self._wakeup.set()
        return done.wait(limit_s)

    def close(self, limit_s: float) -> bool:
        """Write the queued records and close the writer.

        Returns False if that takes longer than ``limit_s`` seconds; the writing thread then continues.
        """
        self._stopping = True
        self._start()
        if self._thread is None:
            # The interpreter exits, and starts no more threads.
            self._drain()
            self._finish()
            return True
        self._wakeup.set()
        return self._ended.wait(limit_s)

    def leave(self) -> None:
        """Release the parent's records and writer in a forked child."""
        self._queue.clear()
        with suppress(Exception):
            self._writer.leave()

    def _start(self) -> None:
        # Another thread starts it, or the interpreter exits.
        with suppress(IndexError, RuntimeError):
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
            # Looked at once in each turn: another thread closes at any time.
            stopping, waiting = self._stopping, len(self._flushes)
            self._drain()
            ending = stopping and not self._queue
            if ending:
                self._finish()
            for _ in range(waiting):
                self._flushes.popleft().set()
            if ending:
                self._ended.set()
                return

    def _drain(self) -> None:
        """Write the records that are queued now; later records wait for the next call."""
        left = len(self._queue)
        while left > 0:
            taken = [self._queue.popleft() for _ in range(min(left, _AT_ONCE))]
            left -= len(taken)
            try:
                self._writer.write([Record(at_ns, discreet_event(event), about) for at_ns, event, about in taken])
                self.written += len(taken)
            except Exception as error:  # noqa: BLE001  a broken sink must not break storage (trap 14)
                self.lost += len(taken)
                self._warn(f"it failed with {_describe_failure(error)}")
        if self._fault is not None:
            self._warn(f"its capture failed with {_describe_failure(self._fault)}")
            self._fault = None
        if self.dropped > self._told:
            self._warn("it is slower than what it is to record")

    def _finish(self) -> None:
        try:
            self._writer.close()
        except Exception as error:  # noqa: BLE001  see _drain
            self._warned_s = 0.0
            self._warn(f"closing it failed with {_describe_failure(error)}")
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
                "%s: %s; %d records dropped and %d lost so far; reads continue", self._name, why,
                self.dropped, self.lost,
            )  # fmt: skip


def _describe_failure(error: Exception) -> str:
    """Return the text of an error, without secrets: an ``OSError`` may quote a URL (those of ``requests`` do)."""
    return (
        describe_error(error)
        if not isinstance(error, OSError)
        else printable(discreet(f"{type(error).__name__}: {error}"))
    )
