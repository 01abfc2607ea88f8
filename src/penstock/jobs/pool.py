"""Concurrent execution of many jobs in bounded memory: in this process and, for many jobs, also in workers."""

from __future__ import annotations

from contextlib import suppress
from operator import attrgetter
from sys import maxsize
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.engine.budget import Budget
from penstock.jobs.running import Tasks
from penstock.jobs.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from threading import Event

    from penstock.errors import PenstockError
    from penstock.jobs.steps import Task

__all__ = ["run_jobs"]

J = TypeVar("J")
R = TypeVar("R")

# Initial and maximum number of tasks per process; an engine sends as many of their requests as it has connections.
_FIRST, _AT_ONCE = 64, 256
# Ended tasks per additional concurrent task: a full disk or a refusal shows before much was read in vain.
_GROWTH = 8
# Jobs to complete before processes are forked for more; a fork takes 10 ms.
_FEW = 256
# The cost of larger jobs is their bytes, which one process moves as fast as several.
_SMALL_BYTES = 1 << 20
# Jobs that one process gets in a row, so that one message carries several.
_IN_TURN = 16


def run_jobs(
    jobs: Iterable[J],
    work: Callable[[J], Task[R]],
    cost_bytes: Callable[[J], int],
    stop: Event,
    most_bytes: int = 384 << 20,
    processes: int = 1,
) -> Generator[tuple[J, R | PenstockError]]:
    """Yield each job and its result as jobs end; up to 64, later 256 at once, with ``most_bytes`` by ``cost_bytes``.

    A job that costs more runs alone.

    ``work(job)`` is a coroutine that awaits steps (``tasks.steps``). The thread that consumes this generator also
    consumes ``jobs`` and runs the tasks. Leaving early, by an exception or ``close``, sets ``stop``, cancels requests,
    and waits up to 3 s for them and for blocking calls to stop.

    With ``processes`` above 1, workers are forked once this process has more small jobs than it can run at
    once. Each worker runs a share of the small jobs, as many at once as this process. Jobs and results are pickled, and
    ``work`` must work after a fork.
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
        self._missing = processes - 1  # workers that are still to be forked
        self._turn: _Own[J, R] | Worker[J, R] = self._own  # receiver of the next job
        self._left = 0  # jobs left in its turn
        self._count = 0
        self._most = _FIRST

    @property
    def busy(self) -> bool:
        """Whether any job is running."""
        return self._budget.items_held > 0

    def took(self, job: J) -> bool:
        """Start a job if there is room for it; return whether it was started."""
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
        """Run all jobs until some end, and yield those."""
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
        """Cancel all running jobs, and wait a limited time for them to stop."""
        for worker in self._workers:
            worker.leave()
        self._tasks.close(error)
        for worker in self._workers:
            worker.end()

    def _hire(self) -> None:
        missing, self._missing = self._missing, 0
        # If no more processes can be forked, the existing ones do all the work.
        with suppress(OSError):
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
    """Jobs that this process runs itself.

    Attributes:
        held: Number of running jobs.

    """

    __slots__ = ("_tasks", "_work", "held")

    def __init__(self, tasks: Tasks[Any, Any], work: Callable[[J], Task[R]]) -> None:
        self._tasks, self._work, self.held = tasks, work, 0

    def start(self, job: J, size_bytes: int) -> None:
        self.held += 1
        self._tasks.start((job, size_bytes), self._work(job))
