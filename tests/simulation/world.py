"""One run of the simulation: the process under test, the store, the wire between them, and their time."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from penstock import source
from penstock.engine import waiting
from penstock.engine.contracts.driver import Limits
from penstock.engine.transport import loop
from penstock.engine.write import parts
from tests.simulation.clock import START_S, Clock, Dice, replaced
from tests.simulation.store import BUCKET, SimulatedStore
from tests.simulation.wire import Wire, connected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.options import StoreOptions
    from penstock.testing.faults.script import Settings
    from tests.simulation.store import Weather

_MOST_STEPS = 200_000


class Stuck(AssertionError):
    """A wait that nothing can end, or that does not end."""


class Killed(BaseException):
    """The end of the process under test at one of its waits; no request of it reaches the store any more."""


class World:
    """A run.

    Attributes:
        clock: Its time.
        lines: Its trace, a line for each event.
        store: Its store.
        wire: The wire between them.
        options: Options that lead to the store.
        url: URL of the bucket, ending in ``/``.

    """

    def __init__(self, seed: object, *, settings: Settings, weather: Weather) -> None:
        self.seed = seed
        self.clock = Clock(self._until)
        self.lines: list[str] = []
        self.store = SimulatedStore(self.clock, seed, settings, weather)
        self.wire = Wire(self.clock, self.store, self.trace)
        self.options = self.store.words.store(settings, "http://127.0.0.1:9")
        self.url = f"{self.store.words.scheme}://{BUCKET}/"
        self.kill_after = inf
        self._steps = 0

    def trace(self, words: str) -> None:
        self.lines.append(f"t={self.clock.now - START_S:.6f} {words}")

    @contextmanager
    def running(self, options: Callable[[StoreOptions], StoreOptions] = lambda options: options) -> Iterator[None]:
        """Be the world of this process until the block ends."""
        self.options = options(self.options)
        with ExitStack() as stack:
            stack.enter_context(replaced(self.clock, Dice(f"{self.seed}/entropy")))
            stack.enter_context(connected(self.wire))
            stack.enter_context(
                _replace(waiting.Wakeup, "wait", lambda wakeup, limit_s=inf: self._wait(wakeup, limit_s))
            )
            # Digests are made by the thread that needs them.
            stack.enter_context(_replace(parts, "start_new_thread", _refuse_thread))
            self.restart()
            try:
                yield
            finally:
                self.wire.open = False
                self._forget()

    def restart(self) -> None:
        """Be a new process: nothing in memory is left of the one before."""
        self._forget()
        self.kill_after, self.wire.open, self.wire.idle = inf, True, 0

    def _forget(self) -> None:
        source._engines.forget()
        source._known.clear()
        loop._loop = None

    def _wait(self, wakeup: waiting.Wakeup, limit_s: float) -> bool:
        until = self.clock.now + limit_s
        while not wakeup._lock.acquire(blocking=False):
            if self.clock.now >= until:
                return False
            self._step(until)
        return True

    def _until(self, when: float) -> None:
        while self.clock.now < when:
            self._step(when)

    def _step(self, until: float) -> None:
        """Run a cycle of the I/O loop, move to the next moment at which something happens, and carry that out."""
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise Stuck(f"no end after {_MOST_STEPS} cycles")
        if self.clock.now >= self.kill_after:
            if self.wire.open:
                self.wire.open = False
                self.wire.break_off()
            raise Killed
        its = loop._loop
        # As on its own thread: whatever the garbage collector closes meanwhile waits for nothing.
        waiting._here.serves = True
        try:
            due = its.cycle() if its is not None else inf
        finally:
            waiting._here.serves = False
        at = min(due, until, self.wire.next_at(), self.kill_after)
        if at == inf:
            raise Stuck("a wait without end: nothing is due")
        self.clock.now = max(self.clock.now, at)
        self.wire.fire()


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
