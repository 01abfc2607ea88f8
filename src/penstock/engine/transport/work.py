"""Transport of stores without a network: blocking operations on a few threads, which end when idle."""

from __future__ import annotations

import atexit
import os
import time
from _thread import start_new_thread
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakSet

from penstock.engine.contracts.exchange import Response, Work
from penstock.engine.transport.codes import deliver, ours
from penstock.engine.waiting import Wakeup, may_wait, serve, set_current_work
from penstock.errors import Bug, Cancelled, Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.engine.contracts.exchange import Operation

T = TypeVar("T")

# For reads one after another: a waiting thread takes over in 20 µs, a new one in 80 µs.
_LINGER_S: Final = 0.05
_LOOK_S: Final = 0.001  # at the interpreter's end, and while a cancelled function takes effect
# A cancelled function may never return: NFS and foreign filesystems wait for their servers without a limit.
_CLOSE_S: Final = 5.0
# Factor by which the number of threads may grow while operations wait on some of them for another attempt.
_MOST: Final = 4

_all: WeakSet[Threads] = WeakSet()


class FlightJob:
    """An operation in flight and its cancellation flag; threads share only queues and sets, which are written in C."""

    __slots__ = ("cancelled", "delay_s", "extra_s", "off", "operation", "takes_effect")

    def __init__(self, operation: Operation, delay_s: float = 0.0) -> None:
        self.operation = operation
        self.delay_s = delay_s
        self.extra_s = 0.0
        self.cancelled = False
        self.takes_effect = False
        self.off = Wakeup()

    def cancel(self) -> None:
        self.cancelled = True
        self.off.set()

    def begin(self) -> None:
        # In this order: ``Threads.cancel`` looks in the other.
        self.takes_effect = True
        if self.cancelled:
            self.takes_effect = False
            raise Cancelled("cancelled")

    def end(self) -> None:
        self.takes_effect = False


class Threads:
    """Thread pool that runs each operation's ``Work``; file reads release the GIL, so a few threads keep a disk busy.

    The threads are started with ``_thread.start_new_thread``. ``threading.Thread.start`` waits with a ``Condition``,
    which an interrupt may leave locked, and takes twice as long. No lock is held here while Python code runs.
    """

    def __init__(self, threads: int = 8) -> None:
        """Start threads on demand: at most ``threads``, and more while operations wait for another attempt."""
        self._threads = threads
        self._ending = False
        self._closed = False
        self.forget()
        _all.add(self)

    def forget(self) -> None:
        """Start empty, also in a forked child: the threads and their jobs belong to the parent."""
        self._queue: SimpleQueue[FlightJob | None] = SimpleQueue()
        self._jobs: dict[int, FlightJob] = {}  # by the identity of the operation
        self._workers: set[object] = set()
        self._idle: set[object] = set()  # each worker adds and removes itself
        self._waiting: set[FlightJob] = set()  # between two attempts, each on its own thread

    def submit(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            if self._closed:
                deliver(operation, Response(fault=Unusable("this store was closed: open it again")))
                continue
            self._add(operation)
        self._hire()

    def _add(self, operation: Operation, delay_s: float = 0.0) -> None:
        job = self._jobs[id(operation)] = FlightJob(operation, delay_s)
        self._queue.put(job)

    def concurrency(self) -> int:
        return self._threads

    def cancel(self, operations: Iterable[Operation], *, sent: bool = True) -> None:  # noqa: ARG002  nothing is sent
        """End the operations that have not begun or wait for another attempt; let a running function finish.

        One that takes effect (``irrevocable``) is awaited, up to 5 s; another ends with ``Cancelled`` before it does.
        """
        found = [self._jobs.get(id(operation)) for operation in operations]
        jobs = [job for job in found if job is not None]
        for job in jobs:
            job.cancel()
        until = time.monotonic() + _CLOSE_S
        while may_wait() and any(job.takes_effect for job in jobs) and time.monotonic() < until:
            time.sleep(_LOOK_S)

    def close(self) -> None:
        """Cancel operations that have not begun. Running operations are left to finish, then the threads end."""
        self._closed = True
        for job in list(self._jobs.values()):
            job.cancel()

    def usable(self) -> bool:
        return not self._closed

    def end(self) -> None:
        """Finish the queued operations at the interpreter's end; later ones run on the thread that submits them.

        Functions that run for a cancelled operation get 5 s.
        """
        self._ending = True
        for _ in list(self._idle):
            self._queue.put(None)
        until = time.monotonic() + _CLOSE_S
        while self._workers and (time.monotonic() < until or self._wanted()):
            time.sleep(_LOOK_S)

    def _wanted(self) -> bool:
        return any(not job.cancelled for job in list(self._jobs.values()))

    def _hire(self) -> None:
        """Start threads while more jobs are queued than idle threads will take."""
        while self._queue.qsize() > len(self._idle) and len(self._workers) < self._most():
            worker = object()
            try:
                self._workers.add(worker)
                # Two callers may come at once; then one of them checks again.
                if len(self._workers) > self._most():
                    self._workers.discard(worker)
                elif self._ending or not start_thread(self._serve, worker):
                    self._work(worker)
            except BaseException:  # Ctrl-C
                self._workers.discard(worker)
                raise

    def _most(self) -> int:
        return min(self._threads + len(self._waiting), self._threads * _MOST)

    def _serve(self, worker: object) -> None:
        serve()
        self._work(worker)

    def _work(self, worker: object) -> None:
        job = self._next(worker)
        while job is not None:
            # This thread is no longer idle, and the caller that queued the next job may have counted on it.
            self._hire()
            self._carry(job)
            # Only the caller may keep the data of the job alive.
            del job
            job = self._next(worker)
        self._workers.discard(worker)
        # For jobs that were queued before this worker left the set.
        self._hire()

    def _next(self, worker: object) -> FlightJob | None:
        try:
            return self._queue.get_nowait()
        except Empty:
            if self._ending:
                return None
        self._idle.add(worker)
        try:
            # Rarely, this waits until the next job instead: see Wakeup.
            return self._queue.get(timeout=_LINGER_S)
        except Empty:
            return None
        finally:
            self._idle.discard(worker)

    def _carry(self, job: FlightJob) -> None:
        delay_s: float | None = job.delay_s
        while delay_s is not None:
            if delay_s and not self._ending:
                self._waiting.add(job)
                # Queued jobs must not wait with this one.
                self._hire()
            off = _called_off(job, delay_s)
            self._waiting.discard(job)
            delay_s = deliver(job.operation, Response(fault=Cancelled("cancelled"))) if off else self._attempt(job)
        if self._jobs.get(id(job.operation)) is job:
            del self._jobs[id(job.operation)]

    def _attempt(self, job: FlightJob) -> float | None:
        return deliver(job.operation, attempt(job))


def start_thread(work: Callable[[T], None], worker: T) -> bool:
    """Start a thread; return False if no more threads can be started."""
    try:
        start_new_thread(work, (worker,))
    except RuntimeError:
        return False
    return True


def _called_off(job: FlightJob, delay_s: float) -> bool:
    if not job.off.wait(delay_s):
        return False
    # Keep the flag set: the operation may ask for another attempt all the same.
    job.off.set()
    return True


def attempt(job: FlightJob) -> Response:
    set_current_work(job)
    try:
        request = job.operation.request()
        if not isinstance(request, Work):
            raise Bug("the transport of blocking calls received an HTTP request")
        return Response(body=request.run())
    except BaseException as error:  # noqa: BLE001  every error is reported to the caller
        return Response(fault=ours(error))
    finally:
        set_current_work(None)


@atexit.register
def _end() -> None:
    for each in list(_all):
        each.end()


def _reset_work() -> None:
    for each in list(_all):
        each.forget()


os.register_at_fork(after_in_child=_reset_work)
