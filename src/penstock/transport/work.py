"""The transport of stores without a wire: blocking calls on a few threads, which end when nothing is left to do."""

from __future__ import annotations

import atexit
import os
import time
from _thread import start_new_thread
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from penstock.errors import Bug, Cancelled, Unusable
from penstock.protocols.exchange import Response, Work
from penstock.transport.codes import deliver, ours
from penstock.waiting import Wakeup, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.protocols.exchange import Call

__all__ = ["Threads"]

_LINGER_S: Final = 0.05  # a thread that waits takes over in 20 µs, a new one in 80: for reads one after another
_LOOK_S: Final = 0.001  # at the interpreter's end
_MOST: Final = 4  # times as many threads, while calls wait for another attempt on some

_all: WeakSet[Threads] = WeakSet()


class _Job:
    """A call in flight, and how it is cancelled; the threads share nothing but queues and sets written in C."""

    __slots__ = ("call", "off")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.off = Wakeup()


class Threads:
    """Runs each call's ``Work``; file reads drop the GIL, so a few threads keep a disk busy.

    The threads are the interpreter's bare ones. ``threading.Thread.start`` waits with a ``Condition``, which an
    interrupt may leave locked, and takes twice as long. Nothing here holds a lock while Python code runs.
    """

    def __init__(self, threads: int = 8) -> None:
        """Start threads as they are needed, at most ``threads``, and more where calls wait for another attempt."""
        self._threads = threads
        self._ending = False
        self._closed = False
        self.forget()
        _all.add(self)

    def forget(self) -> None:
        """Begin anew, in a forked child: the threads and what they had to do are the parent's."""
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._jobs: dict[int, _Job] = {}  # by the identity of the call
        self._workers: set[object] = set()
        self._idle: set[object] = set()  # each worker puts itself there and takes itself out
        self._waiting: set[_Job] = set()  # for another attempt, each on a thread of its own

    def submit(self, calls: Iterable[Call]) -> None:
        """Queue calls; returns at once."""
        for call in calls:
            if self._closed:
                deliver(call, Response(fault=Unusable("this store was closed: open it again")))
                continue
            job = self._jobs[id(call)] = _Job(call)
            self._queue.put(job)
        self._hire()

    def concurrency(self) -> int:
        """Return the number of threads."""
        return self._threads

    def cancel(self, calls: Iterable[Call]) -> None:
        """End those that have not begun, or wait for another attempt; a blocking read that runs is left to finish."""
        for job in [self._jobs.get(id(call)) for call in calls]:
            if job is not None:
                job.off.set()

    def close(self) -> None:
        """Cancel calls that have not begun; those that run are left to finish, and then threads end."""
        self._closed = True
        for job in list(self._jobs.values()):
            job.off.set()

    def usable(self) -> bool:
        """Say whether it carries calls: not once it was closed."""
        return not self._closed

    def end(self) -> None:
        """Finish what is queued, at the interpreter's end; whatever comes later is done where it is asked for."""
        self._ending = True
        for _ in list(self._idle):
            self._queue.put(None)
        while self._workers:
            time.sleep(_LOOK_S)

    def _hire(self) -> None:
        """Start threads, as long as more is queued than idle ones will take."""
        while self._queue.qsize() > len(self._idle) and len(self._workers) < self._most():
            worker = object()
            try:
                self._workers.add(worker)
                if len(self._workers) > self._most():  # two callers came at once: one of them looks again
                    self._workers.discard(worker)
                elif self._ending or not _started(self._serve, worker):
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
        """Carry jobs out until there is none for a while, or for good."""
        job = self._next(worker)
        while job is not None:
            self._hire()  # this one is idle no more, and who queued the next job may have counted on it
            self._carry(job)
            del job  # what it read is its caller's alone
            job = self._next(worker)
        self._workers.discard(worker)
        self._hire()  # for what was queued before it was out

    def _next(self, worker: object) -> _Job | None:
        try:
            return self._queue.get_nowait()
        except Empty:
            if self._ending:
                return None
        self._idle.add(worker)
        try:
            return self._queue.get(timeout=_LINGER_S)  # or, seldom, until the next job: see Wakeup
        except Empty:
            return None
        finally:
            self._idle.discard(worker)

    def _carry(self, job: _Job) -> None:
        delay_s: float | None = 0.0
        while delay_s is not None:
            if delay_s and not self._ending:
                self._waiting.add(job)
                self._hire()  # what is queued is not to wait with it
            off = _called_off(job, delay_s)
            self._waiting.discard(job)
            delay_s = deliver(job.call, Response(fault=Cancelled("called off")) if off else _attempt(job.call))
        if self._jobs.get(id(job.call)) is job:
            del self._jobs[id(job.call)]


def _started(work: Callable[[object], None], worker: object) -> bool:
    """Start a thread; False where no more are to be had."""
    try:
        start_new_thread(work, (worker,))
    except RuntimeError:
        return False
    return True


def _called_off(job: _Job, delay_s: float) -> bool:
    if not job.off.wait(delay_s):
        return False
    job.off.set()  # for good: its caller may ask for another attempt all the same
    return True


def _attempt(call: Call) -> Response:
    try:
        request = call.request()
        if not isinstance(request, Work):
            raise Bug("an HTTP request was given to the transport of blocking calls")
        return Response(body=request.run())
    except BaseException as error:  # noqa: BLE001  the caller's to hear, whatever it is
        return Response(fault=ours(error))


@atexit.register
def _end() -> None:
    for each in list(_all):
        each.end()


def _forget() -> None:
    for each in list(_all):
        each.forget()


os.register_at_fork(after_in_child=_forget)
