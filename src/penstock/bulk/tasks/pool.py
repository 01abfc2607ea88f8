"""Carries many jobs out at once, in bounded memory: in this process and, where they are many, in workers, too."""

from __future__ import annotations

from contextlib import suppress
from operator import attrgetter
from sys import maxsize
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.budget import Budget
from penstock.bulk.tasks.running import Tasks
from penstock.bulk.tasks.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from threading import Event

    from penstock.bulk.tasks.steps import Task
    from penstock.errors import PenstockError

__all__ = ["run_jobs"]

J = TypeVar("J")
R = TypeVar("R")

_FIRST, _AT_ONCE = 64, 256  # tasks of a process; what they ask is under way as far as an engine has connections
_GROWTH = 8  # tasks that end for one more at once: a full disk or a refusal shows before much was read in vain
_FEW = 256  # jobs that are done before a process is forked for more, which takes 10 ms
_SMALL_BYTES = 1 << 20  # what costs more is bytes, which one process moves as fast as several
_IN_TURN = 16  # jobs that one process gets before another one may: one message for several


def run_jobs(
    jobs: Iterable[J],
    work: Callable[[J], Task[R]],
    cost_bytes: Callable[[J], int],
    stop: Event,
    most_bytes: int = 384 << 20,
    processes: int = 1,
) -> Generator[tuple[J, R | PenstockError]]:
    """Yield each job and what came of it, as they end; 64 at once, later 256, and ``most_bytes`` by ``cost_bytes``.

    One that costs more is worked on alone.

    ``work(job)`` is a coroutine that awaits steps (``tasks.steps``). ``jobs`` is drawn from, and tasks go on, on the
    thread that draws from this. Leaving early, by an exception or ``close``, sets ``stop``, calls requests off, and
    waits up to 3 s for them and for what blocks to stop.

    With more ``processes`` than this one, workers are forked once it has more small jobs than it can do at once, and
    do their share of those, so many at once each: jobs and results are pickled, and ``work`` must bear a fork.
    """
    pool = _Pool(work, cost_bytes, stop, Budget(most_bytes, maxsize), processes)
    try:
        for job in jobs:
            while not pool.took(job):
                yield from pool.ended()
        while pool.busy:
            yield from pool.ended()
    except BaseException as error:
        pool.close(error)
        raise
    pool.close()


class _Pool(Generic[J, R]):
    """This process and its workers."""

    def __init__(
        self, work: Callable[[J], Task[R]], cost_bytes: Callable[[J], int], stop: Event, budget: Budget, processes: int
    ) -> None:
        self._work, self._cost_bytes, self._stop, self._budget = work, cost_bytes, stop, budget
        self._tasks = Tasks[Any, Any](stop)
        self._own = _Own(self._tasks, work)
        self._workers: list[Worker[J, R]] = []
        self._missing = processes - 1  # workers that would have enough to do, once they are there
        self._turn: _Own[J, R] | Worker[J, R] = self._own  # who gets the next job
        self._left = 0  # jobs, in its turn
        self._count = 0
        self._most = _FIRST

    @property
    def busy(self) -> bool:
        """Whether anything is under way."""
        return self._budget.items_held > 0

    def took(self, job: J) -> bool:
        """Begin a job, if there is room for it; returns whether there is."""
        size_bytes = self._cost_bytes(job)
        who = self._who(size_bytes) if self._workers else self._own
        if who.held >= self._most or not self._budget.admitted(size_bytes):
            return False
        self._left -= 1
        who.start(job, size_bytes)
        return True

    def _who(self, size_bytes: int) -> _Own[J, R] | Worker[J, R]:
        if size_bytes > _SMALL_BYTES:
            return self._own
        if self._left <= 0 or self._turn.held >= self._most:
            everybody: list[_Own[J, R] | Worker[J, R]] = [self._own, *self._workers]
            self._turn, self._left = min(everybody, key=attrgetter("held")), _IN_TURN
        return self._turn

    def ended(self) -> Iterator[tuple[J, R | PenstockError]]:
        """Go on with all jobs until some have ended, which it yields."""
        if self._missing > 0 and self._count >= _FEW and self._own.held >= self._most:
            self._hire()
        for worker in self._workers:
            worker.send()
        for job, result in self._tasks.ended():
            if isinstance(job, Worker):
                yield from self._heard(job, result)
            else:
                self._own.held -= 1
                its, size_bytes = job
                yield self._end(its, size_bytes, result)

    def close(self, error: BaseException | None = None) -> None:
        """Cancel what is under way, and wait a while until it has stopped."""
        for worker in self._workers:
            worker.leave()
        self._tasks.close(error)
        for worker in self._workers:
            worker.end()

    def _hire(self) -> None:
        missing, self._missing = self._missing, 0
        with suppress(OSError):  # no room for another process: those that are there do it all
            for _ in range(missing):
                worker = Worker(self._work, self._stop, self._workers)
                self._workers.append(worker)
                self._tasks.follow(worker, worker.receive)

    def _heard(self, worker: Worker[J, R], found: Any) -> Iterator[tuple[J, R | PenstockError]]:  # noqa: ANN401
        if not isinstance(found, list):
            self._workers.remove(worker)
            self._left = 0
        for job, size_bytes, result in worker.results(found):
            yield self._end(job, size_bytes, result)

    def _end(self, job: J, size_bytes: int, result: R | PenstockError) -> tuple[J, R | PenstockError]:
        self._budget.release(size_bytes)
        self._count += 1
        if self._most < _AT_ONCE:
            self._most = _FIRST + self._count // _GROWTH
        return job, result


class _Own(Generic[J, R]):
    """What this process does itself.

    Attributes:
        held: How many jobs it is at.

    """

    __slots__ = ("_tasks", "_work", "held")

    def __init__(self, tasks: Tasks[Any, Any], work: Callable[[J], Task[R]]) -> None:
        self._tasks, self._work, self.held = tasks, work, 0

    def start(self, job: J, size_bytes: int) -> None:
        self.held += 1
        self._tasks.start((job, size_bytes), self._work(job))
