"""Transport of blocking calls that may never return, those of foreign libraries: with a time limit, and watched.

A call that is given up runs on in its thread, and its result is dropped. The answer of each attempt is delivered once:
by the thread that made the call, or by the lookout.
"""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final

from penstock.engine.contracts.exchange import Response, Traffic, UnderWay
from penstock.engine.transport.codes import deliver
from penstock.engine.transport.work import FlightJob, Threads, attempt, start_thread
from penstock.engine.waiting import Wakeup, serve
from penstock.errors import Cancelled, PenstockError, TimedOut

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.engine.contracts.exchange import Operation, Watch

_OFTEN_S: Final = 0.01
_SELDOM_S: Final = 0.1
_PART: Final = 4  # checks within the time after which a call is late
_HALF: Final = 0.5  # see Traffic.under_way
_IDLE_S: Final = 1.0  # before the lookout's thread ends
# A thread that never returns costs memory: a store with so many gets no more calls.
_MOST_LOST: Final = 64


class _TimedCall:
    """An attempt in progress."""

    __slots__ = ("_open", "began", "ended_before", "job")

    def __init__(self, job: FlightJob, ended: int) -> None:
        self.job = job
        self.began = monotonic()
        self.ended_before = ended
        self._open = [True]

    def claim(self) -> bool:
        """Return True to the first of all threads that ask: it delivers the answer."""
        try:
            return self._open.pop()
        except IndexError:
            return False


class LimitedThreads(Threads):
    """``Threads`` whose calls end after ``limit_s``, and soon after they are cancelled; slow ones may be hedged."""

    def __init__(self, threads: int, limit_s: float) -> None:
        self._limit_s = limit_s
        self._watched_by: Watch | None = None
        super().__init__(threads)

    def forget(self) -> None:
        super().forget()
        self._calls: dict[_TimedCall, None] = {}
        self._lost: set[_TimedCall] = set()
        self._lookout: object = None
        self._look_now = Wakeup()
        self._ended = 0

    def watch(self, watch: Watch) -> None:
        self._watched_by = watch

    def cancel(self, operations: Iterable[Operation], *, sent: bool = True) -> None:
        super().cancel(operations, sent=sent)
        self._look_now.set()

    def close(self) -> None:
        super().close()
        self._look_now.set()

    def _most(self) -> int:
        return super()._most() + len(self._lost)

    def _attempt(self, job: FlightJob) -> float | None:
        if len(self._lost) >= _MOST_LOST and self._stuck() >= _MOST_LOST:
            words = f"{_MOST_LOST} calls of this store have never returned, so it gets no more: restart the program"
            return deliver(job.operation, Response(fault=TimedOut(words)))
        call = _TimedCall(job, self._ended)
        self._calls[call] = None
        if self._lookout is None:
            self._lookout = me = object()
            if not start_thread(self._look_out, me):
                self._lookout = None
        response = attempt(job)
        self._calls.pop(call, None)
        if not call.claim():
            self._lost.discard(call)
            return None
        self._ended += 1
        if response.fault is None:
            response.first_byte_s = monotonic() - call.began
        return deliver(job.operation, response)

    def _stuck(self) -> int:
        """Return how many calls run although their time is over; cancelled ones may return soon."""
        before = monotonic() - self._limit_s
        return sum(call.began + call.job.extra_s < before for call in [*self._lost])

    def _look_out(self, me: object) -> None:
        serve()
        used_at = monotonic()
        while self._lookout is me:
            now, calls = monotonic(), [*self._calls]
            used_at = now if calls else used_at
            if now - used_at > _IDLE_S:
                self._lookout = None
                # A call may have begun meanwhile, and seen this thread.
                if not self._calls or self._lookout is not None:
                    return
                self._lookout = me
            self._look_now.wait(self._look(calls, now))

    def _look(self, calls: list[_TimedCall], now: float) -> float:
        """Give up calls, and hedge slow ones; return the seconds until the next look."""
        for call in calls:
            if call.job.cancelled and not call.job.takes_effect:
                self._give_up(call, Cancelled("cancelled"))
            elif now - call.began > self._limit_s + call.job.extra_s:
                self._give_up(call, TimedOut(f"the call did not return within {self._limit_s:g} s (patience_s)"))
        if (watch := self._watched_by) is None or not calls:
            return _SELDOM_S
        try:
            late_s = watch.late_s(now)
            if late_s < inf and now - calls[0].began >= late_s:
                old = [each for each in calls if now - each.began >= _HALF * late_s]
                under_way = [
                    UnderWay(each.job.operation, now - each.began, passed=self._ended - each.ended_before)
                    for each in old
                ]
                for _, extra in watch.look(Traffic(under_way, self._ended, self)):
                    self._begin_extra(extra)
        except Exception:  # noqa: BLE001  a watch must not stop the lookout
            self._watched_by = None
            return _SELDOM_S
        return min(max(late_s / _PART, _OFTEN_S), _SELDOM_S)

    def _begin_extra(self, operation: Operation) -> None:
        """Carry out a second request on its own thread, before the requests that wait."""
        job = self._jobs[id(operation)] = FlightJob(operation)
        self._workers.add(job)
        if not start_thread(self._carry_extra, job):
            self._workers.discard(job)
            self._queue.put(job)

    def _carry_extra(self, job: FlightJob) -> None:
        serve()
        self._carry(job)
        self._workers.discard(job)

    def _give_up(self, call: _TimedCall, fault: PenstockError) -> None:
        if not call.claim():
            return
        self._lost.add(call)
        self._calls.pop(call, None)
        job, operation = call.job, call.job.operation
        # If the call gets on after all, it may not take effect any more.
        job.cancelled = True
        delay_s = deliver(operation, Response(fault=fault))
        if delay_s is not None:
            self._add(operation, delay_s)
        elif self._jobs.get(id(operation)) is job:
            del self._jobs[id(operation)]
        self._hire()
