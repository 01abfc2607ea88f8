"""A bounded thread pool for regions: zarr encodes and decodes in them; an exception or Ctrl-C stops every thread."""

from __future__ import annotations

from math import inf
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from penstock.budget import Budget
from penstock.errors import Bug, Cancelled, PenstockError
from penstock.waiting import received

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from threading import Event

__all__ = ["run_jobs"]

J = TypeVar("J")
R = TypeVar("R")

_AT_ONCE = 16
_GRACE_S = 3.0  # for a region that is worked on to end: the next look at ``stop`` is after its read


def run_jobs(
    jobs: Iterable[J],
    work: Callable[[J], R],
    cost_bytes: Callable[[J], int],
    stop: Event,
    most_bytes: int,
) -> Generator[tuple[J, R | PenstockError]]:
    """Yield each job and what came of it, as they end; up to 16 at once, and ``most_bytes`` by ``cost_bytes``.

    One that costs more is worked on alone.

    ``jobs`` is drawn from on this thread, a little ahead. Leaving early, by an exception or ``close``, sets ``stop``
    and waits up to 3 s for the work to stop.
    """
    budget = Budget(most_bytes, _AT_ONCE)
    todo: SimpleQueue[J | None] = SimpleQueue()
    done: SimpleQueue[tuple[J, R | PenstockError]] = SimpleQueue()
    workers = 0

    def take(limit_s: float = inf) -> tuple[J, R | PenstockError]:
        ended = received(done, limit_s)
        budget.release(cost_bytes(ended[0]))
        return ended

    try:
        for job in jobs:
            while not budget.admits(cost_bytes(job)):
                yield take()
            budget.admit(cost_bytes(job))
            todo.put(job)
            if workers < budget.items_held:
                # Daemons: one that waits for a store that is gone must not keep the process from ending.
                Thread(target=_worker, args=(todo, done, work, stop), daemon=True).start()
                workers += 1
        while budget.items_held:
            yield take()
    finally:
        stop.set()
        until = monotonic() + _GRACE_S
        while budget.items_held and (left_s := until - monotonic()) > 0:
            try:
                take(left_s)
            except Empty:
                break
        for _ in range(workers):
            todo.put(None)


def _worker(
    todo: SimpleQueue[J | None], done: SimpleQueue[tuple[J, R | PenstockError]], work: Callable[[J], R], stop: Event
) -> None:
    for job in iter(todo.get, None):
        result: R | PenstockError
        try:
            if stop.is_set():
                raise Cancelled("cancelled")
            result = work(job)
        except PenstockError as error:
            result = error
        except Exception as error:  # noqa: BLE001  the caller's to hear, whatever it is
            result = Bug(f"unexpected {type(error).__name__}: {error}")
            result.__cause__ = error
        done.put((job, result))
