"""One run of the simulation: the process under test, the store, the wire between them, and their time."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from math import inf
from types import SimpleNamespace
from typing import TYPE_CHECKING
from weakref import ref

from penstock import source
from penstock.engine import waiting
from penstock.engine.budget import Budget
from penstock.engine.contracts.driver import Limits
from penstock.engine.node import member as node
from penstock.engine.read import hedging
from penstock.engine.transport import loop
from penstock.engine.write import parts
from tests.simulation.clock import START_S, Clock, Dice, replaced
from tests.simulation.processes import Crowd, Killed, Process, Stuck, close_all
from tests.simulation.store import BUCKET, SimulatedStore
from tests.simulation.wire import Wire, connected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.options import StoreOptions
    from penstock.testing.faults.script import Settings
    from tests.simulation.store import Weather

_MOST_STEPS = 200_000


class World:
    """A run.

    Attributes:
        clock: Its time.
        lines: Its trace, a line for each event.
        store: Its store.
        wire: The wire between them.
        options: Options that lead to the store.
        url: URL of the bucket, ending in ``/``.
        crowd: The processes that run at the same time, if several do.

    """

    def __init__(self, seed: object, *, settings: Settings, weather: Weather) -> None:
        self.seed = seed
        self.clock = Clock(self._until)
        self.lines: list[str] = []
        self.store = SimulatedStore(self.clock, seed, settings, weather)
        self.pids = count(4242)
        self.wire = Wire(self.clock, self.store, self.trace, Process(next(self.pids)))
        self.options = self.store.words.store(settings, "http://127.0.0.1:9")
        self.url = f"{self.store.words.scheme}://{BUCKET}/"
        self.crowd: Crowd | None = None
        self._locks: dict[tuple[int, int], Process] = {}
        self._budgets: list[ref[Budget]] = []
        self._steps = 0

    def trace(self, words: str) -> None:
        self.lines.append(f"t={self.clock.now - START_S:.6f} {words}")

    @contextmanager
    def running(self, options: Callable[[StoreOptions], StoreOptions] = lambda options: options) -> Iterator[None]:
        """Be the world of this process until the block ends."""
        self.options = options(self.options)
        with ExitStack() as stack:
            dice = Dice(f"{self.seed}/entropy")
            stack.enter_context(replaced(self.clock, dice, lambda: self.process.pid))
            stack.enter_context(connected(self.wire))
            stack.enter_context(
                _replace(waiting.Wakeup, "wait", lambda wakeup, limit_s=inf: self._wait(wakeup, limit_s))
            )
            # Digests are made by the thread that needs them.
            stack.enter_context(_replace(parts, "start_new_thread", _refuse_thread))
            locks = {name: getattr(fcntl, name) for name in ("LOCK_EX", "LOCK_NB", "LOCK_UN")}
            stack.enter_context(_replace(node, "fcntl", SimpleNamespace(lockf=self._lockf, **locks)))
            stack.enter_context(_replace(Budget, "__init__", self._begin_budget(Budget.__init__)))
            outside = Process(0)
            outside.put_away()
            self.process.install()
            try:
                yield
            finally:
                self.process.alive = False
                close_all(self.process)
                outside.install()

    @property
    def process(self) -> Process:
        """The process that runs."""
        return self.wire.process

    @process.setter
    def process(self, process: Process) -> None:
        self.wire.process = process

    @property
    def kill_after(self) -> float:
        """When the process that runs is killed."""
        return self.process.kill_after

    @kill_after.setter
    def kill_after(self, at: float) -> None:
        self.process.kill_after = at

    def restart(self) -> None:
        """Be a new process: nothing in memory is left of the one before."""
        seat = self.process.seat
        self.process = Process(next(self.pids), seat)
        if seat is not None:
            seat.process = self.process
        self.process.install()

    def settle(self) -> None:
        """Wait until nothing is on its way any more."""
        while self.wire.next_at() < inf or (loop._loop is not None and loop._loop.busy()):
            self._until(self.wire.next_at() if self.wire.next_at() < inf else self.clock.now + 1.0)

    def check_returned(self) -> None:
        """Require that this process's operations have returned all that they took: retries, second requests, memory."""
        its = loop._loop
        if its is not None and (its._busy or any(each.active for each in its._connections._handles)):
            raise AssertionError("no operation is left, and transfers are")
        for policy in [engine._policy for engine in (each() for each in source._engines._all.values()) if engine]:
            tokens, hedges = policy.tokens, policy.hedges
            if not 0 <= tokens.left <= tokens.limit:
                raise AssertionError(f"{tokens.left} of {tokens.limit} quick retries are left")
            if policy.scratch._held_bytes:
                raise AssertionError(f"buffers of {policy.scratch._held_bytes} bytes are in use, and no operation is")
            if hedges.open:
                raise AssertionError(f"second requests are open, and no operation is: {hedges.open}")
            if hedges.made > hedging.SHARE * self.store.requests + hedging._MOST:
                raise AssertionError(f"{hedges.made} second requests of {self.store.requests}")
        for budget in [each for each in (held() for held in self._budgets) if each is not None]:
            if budget.bytes_held or budget.items_held:
                raise AssertionError(f"a budget holds {budget.bytes_held} bytes of nothing that is under way")

    def count_step(self) -> None:
        """Refuse a run without an end."""
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise Stuck(f"no end after {_MOST_STEPS} cycles")

    def cycle(self) -> float:
        """Run a cycle of the process's I/O loop; return when the next one is due."""
        its = loop._loop
        # As on its own thread: whatever the garbage collector closes meanwhile waits for nothing.
        waiting._here.serves = True
        try:
            return its.cycle() if its is not None else inf
        finally:
            waiting._here.serves = False

    def _begin_budget(self, begin: Callable[..., None]) -> Callable[..., None]:
        def noted(budget: Budget, *amounts: int) -> None:
            begin(budget, *amounts)
            self._budgets.append(ref(budget))

        return noted

    def _wait(self, wakeup: waiting.Wakeup, limit_s: float) -> bool:
        until = self.clock.now + limit_s
        take = partial(wakeup._lock.acquire, blocking=False)
        if self.crowd is not None:
            return take() or self.crowd.wait(take, until)
        while not take():
            if self.clock.now >= until:
                return False
            self._step(until)
        return True

    def _until(self, when: float) -> None:
        if self.crowd is not None:
            self.crowd.wait(bool, when)
        while self.clock.now < when:
            self._step(when)

    def _step(self, until: float) -> None:
        """Run a cycle of the I/O loop, move to the next moment at which something happens, and carry that out."""
        self.count_step()
        process = self.process
        if self.clock.now >= process.kill_after:
            process.alive = False
            self.wire.break_off(process)
        if not process.alive:
            raise Killed
        at = min(self.cycle(), until, self.wire.next_at(), process.kill_after)
        if at == inf:
            raise Stuck("a wait without end: nothing is due")
        self.clock.now = max(self.clock.now, at)
        self.wire.fire()

    def _lockf(self, descriptor: int, what: int, _length: int = 0, start: int = 0) -> None:
        """Lock a byte of a file for the process that runs, as ``fcntl.lockf`` does for processes of the system."""
        at = os.fstat(descriptor).st_ino, start
        holder = self._locks.get(at)
        if what & fcntl.LOCK_UN:
            if holder is self.process:
                del self._locks[at]
        elif holder not in (None, self.process) and holder.alive:
            raise BlockingIOError(errno.EAGAIN, "another process holds this lock")
        else:
            self._locks[at] = self.process


def _refuse_thread(*_call: object) -> None:
    raise RuntimeError("can't start new thread")


@contextmanager
def _replace(place: object, name: str, value: object) -> Iterator[None]:
    before = getattr(place, name)
    setattr(place, name, value)
    try:
        yield
    finally:
        setattr(place, name, before)


@contextmanager
def small_parts(least: int = 1) -> Iterator[None]:
    """Let uploads have small parts in all stores, so that a few bytes take many requests."""
    kinds = [each for each in _store_kinds() if isinstance(vars(each).get("limits"), Limits)]
    before = [(each, each.limits) for each in kinds]
    try:
        for kind, limits in before:
            kind.limits = replace(limits, least_part_bytes=min(limits.least_part_bytes, least))
        yield
    finally:
        for kind, limits in before:
            kind.limits = limits


def _store_kinds() -> list[type]:
    from penstock.stores.azure import store as _azure
    from penstock.stores.gcs import store as _gcs
    from penstock.stores.oss import store as _oss
    from penstock.stores.s3 import services as _s3
    from penstock.stores.store import Store

    del _azure, _gcs, _oss, _s3
    found, left = [], [Store]
    while left:
        found.append(left.pop())
        left += found[-1].__subclasses__()
    return found
