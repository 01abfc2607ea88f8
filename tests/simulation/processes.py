"""Processes of the simulation: what each holds in memory, and several that take turns at their waits."""

from __future__ import annotations

from _thread import allocate_lock
from dataclasses import dataclass, field
from math import inf
from threading import Thread
from typing import TYPE_CHECKING, Any

from penstock import source
from penstock.engine.cache import tiers
from penstock.engine.node import member as node
from penstock.engine.transport import loop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from tests.simulation.world import World

# Real seconds in which a process must come to its next wait: it may be at a lock that another one holds.
_HANGS_S = 120.0
# Share of the waits after which a process does not go on at once.
_PAUSED = 0.1
# What modules keep for their process, and what a new process begins with.
_MEMORY: tuple[tuple[Any, str, Callable[[], Any]], ...] = (
    (source, "_engines", lambda: source._Engines(source._SPARE)),
    (source, "_known", dict),
    (tiers, "_tiers", dict),
    (loop, "_loop", lambda: None),
    (node.member, "__dict__", lambda: vars(node.NodeMember())),
)


class Stuck(AssertionError):
    """A wait that nothing can end, or that does not end."""


class Killed(BaseException):
    """The end of a process at one of its waits; no request of it reaches the store any more."""


class Process:
    """One process, from its start to its end.

    Attributes:
        pid: Its number.
        alive: Whether its requests reach the store.
        idle: Connections without a request.
        kill_after: When it is killed.
        seat: The thread that it runs on, beside those of others; None for the first.

    """

    def __init__(self, pid: int, seat: Seat | None = None) -> None:
        self.pid = pid
        self.alive = True
        self.idle = 0
        self.kill_after = inf
        self.seat = seat
        self._held = [make() for _, _, make in _MEMORY]
        _started.append(self)

    def install(self) -> None:
        """Put its memory in the place of another's."""
        for (place, name, _), value in zip(_MEMORY, self._held, strict=True):
            setattr(place, name, value)

    def put_away(self) -> None:
        """Keep its memory while others run."""
        self._held = [getattr(place, name) for place, name, _ in _MEMORY]

    def close(self) -> None:
        """Close the files that it has open, as the kernel does at its end."""
        self.install()
        for each in tiers._tiers.values():
            each.forget()
        node.member.forget()


# The processes of the run so far.
_started: list[Process] = []


def close_all(last: Process) -> None:
    """End all processes that were started; ``last`` is the one whose memory is installed."""
    last.put_away()
    for each in _started:
        each.close()
    _started.clear()


@dataclass(slots=True)
class Seat:
    """A thread that runs one process after another, and the wait that it is at."""

    process: Process
    turn: Any = field(default_factory=allocate_lock)
    is_ready: Callable[[], bool] = bool
    until: float = -inf
    woken: bool = False
    due: bool = False
    not_before: float = -inf
    ended: bool = False
    error: BaseException | None = None


class Crowd:
    """Processes that run at the same time: each from one of its waits to the next, in an order that dice choose."""

    def __init__(self, world: World, dice: Random) -> None:
        self._world, self._dice = world, dice
        self._turn = allocate_lock()
        self._turn.acquire()
        self._seats: list[Seat] = []

    def run(self, programs: Sequence[Callable[[], None]]) -> None:
        """Run all programs, each as a process; raise the first error of one."""
        world, first = self._world, self._world.process
        first.put_away()
        threads = []
        for program in programs:
            seat = Seat(Process(next(world.pids)))
            seat.process.seat = seat
            seat.turn.acquire()
            self._seats.append(seat)
            threads.append(Thread(target=self._live, args=(seat, program), daemon=True))
        for thread in threads:
            thread.start()
        world.crowd = self
        try:
            self._schedule()
        finally:
            for seat in self._seats:
                while not seat.ended:
                    self._end(seat)
                    self._resume(seat)
            for thread in threads:
                thread.join()
            world.crowd, world.process = None, first
            first.install()
        for seat in self._seats:
            if seat.error is not None:
                raise seat.error

    def wait(self, is_ready: Callable[[], bool], until: float) -> bool:
        """Let others run until something is ready, or a time; return whether it is. Called by a process."""
        seat = self._world.process.seat
        assert seat is not None
        if not seat.process.alive:
            raise Killed
        seat.is_ready, seat.until = is_ready, until
        self._turn.release()
        seat.turn.acquire()
        if not seat.process.alive:
            raise Killed
        return seat.woken

    def _live(self, seat: Seat, program: Callable[[], None]) -> None:
        seat.turn.acquire()
        try:
            if seat.process.alive:
                program()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001  raised by ``run``
            seat.error = error
        self._end(seat)
        seat.ended = True
        self._turn.release()

    def _end(self, seat: Seat) -> None:
        seat.process.alive = False
        self._world.wire.break_off(seat.process)

    def _schedule(self) -> None:
        world, clock = self._world, self._world.clock
        while not all(seat.ended for seat in self._seats):
            if any(seat.error is not None for seat in self._seats):
                return
            seat = self._next_due()
            if seat is None:
                at = self._cycle()
                seat = self._next_due()
            if seat is not None:
                self._resume(seat)
                continue
            world.count_step()
            if at == inf:
                raise Stuck("waits without end: nothing is due")
            clock.now = max(clock.now, at)
            world.wire.fire()

    def _cycle(self) -> float:
        """Run a cycle of each process's I/O loop; return when something is due next."""
        at = self._world.wire.next_at()
        for seat in self._seats:
            if not seat.ended:
                self._install(seat.process)
                wait_ends = seat.not_before if seat.due else seat.until
                at = min(at, self._world.cycle(), wait_ends, seat.process.kill_after)
                seat.process.put_away()
        return at

    def _next_due(self) -> Seat | None:
        """Return a process that may go on: its wait is over, or it is killed."""
        now = self._world.clock.now
        seats = [each for each in self._seats if not each.ended]
        self._dice.shuffle(seats)
        for seat in seats:
            if now >= seat.process.kill_after:
                self._end(seat)
                return seat
            if not seat.due:
                seat.woken = seat.is_ready()
                seat.due = seat.woken or now >= seat.until
                # Some other program has the processor.
                seat.not_before = now + (self._dice.uniform(0.0, 0.1) if self._dice.random() < _PAUSED else 0.0)
            if seat.due and seat.not_before <= now:
                return seat
        return None

    def _install(self, process: Process) -> None:
        self._world.process = process
        process.install()

    def _resume(self, seat: Seat) -> None:
        seat.due = False
        self._install(seat.process)
        seat.turn.release()
        if not self._turn.acquire(timeout=_HANGS_S):
            raise Stuck(f"process {seat.process.pid} waits for what another one holds")
        seat.process.put_away()
