"""A wire in virtual time: what libcurl's handles are to Penstock's I/O loop, over a store of this process.

``SimulatedLoop`` is the real loop without its thread; ``SimulatedMulti`` and ``SimulatedEasy`` stand for libcurl. All
of Penstock above them runs as it is.
"""

from __future__ import annotations

import heapq
from contextlib import contextmanager
from itertools import count
from math import inf
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from penstock.engine.contracts.exchange import TEXT_BYTES, Response
from penstock.engine.transport import late_calls, loop, session
from penstock.engine.transport.easy import CUT, STALL_BYTES_PER_S, WRITE_ERROR
from penstock.engine.transport.libcurl import OK
from penstock.testing.faults.message import Request as Received

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.engine.contracts.exchange import Request
    from penstock.options import TransportOptions
    from tests.simulation.clock import Clock
    from tests.simulation.processes import Process
    from tests.simulation.store import Outcome, SimulatedStore

_CONNECT_FAILED, _PARTIAL, _TIMED_OUT, _NOTHING, _RESET = 7, 18, 28, 52, 56
_SMALL_BYTES = 16 << 10
_REFUSED = 300
# Times the loop's own interval between two looks for late calls.
_LONGEST = 10.0
_GOOD = (200, 206)


class Wire:
    """Requests on their way, and everything else that happens at a time: a queue of events.

    Attributes:
        clock: The time.
        process: The process that sends requests.
        fired: Number of events that were carried out.

    """

    def __init__(self, clock: Clock, store: SimulatedStore, trace: Callable[[str], None], process: Process) -> None:
        self.clock, self.store, self.trace, self.process = clock, store, trace, process
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self.numbers = count(1)
        self.fired = 0
        self.flights: set[Flight] = set()

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Carry out ``do`` at a time."""
        heapq.heappush(self._events, (max(when, self.clock.now), next(self._order), do))

    def break_off(self, process: Process) -> None:
        """End all requests of a process, as its end does."""
        for flight in sorted(self.flights, key=lambda each: each.number):
            if flight.process is process:
                flight.cut()

    def next_at(self) -> float:
        return self._events[0][0] if self._events else inf

    def fire(self) -> None:
        """Carry out what is due."""
        while self._events and self._events[0][0] <= self.clock.now:
            self.fired += 1
            heapq.heappop(self._events)[2]()


class Flight:
    """One request on the wire: when its parts arrive, and how it ends."""

    def __init__(self, wire: Wire, easy: SimulatedEasy, *, fresh: bool) -> None:
        self.wire, self.easy = wire, easy
        self.number = next(wire.numbers)
        self.request = request = easy.request
        assert request is not None
        self.began = wire.clock.now
        self.process = process = wire.process
        self.gone = not process.alive
        self.sent_at = self.first_at = 0.0
        self.ended_at = inf
        self.status = 0
        self.headers: list[tuple[str, str]] = []
        self.arrived = b""
        self.code = OK
        wire.flights.add(self)
        self.reused = process.idle > 0 and not fresh
        process.idle -= self.reused
        if self.gone:
            return
        self.dice = wire.store.dice()
        weather = wire.store.weather
        self.connect_s = 0.0 if self.reused else weather.delay_s(self.dice)
        up_s = weather.delay_s(self.dice)
        if not self.reused and self.dice.random() < weather.unconnected:
            wire.at(self.began + self.connect_s, self._refuse)
            return
        body = len(request.body) if request.body is not None else 0
        self.sent_at = self.began + self.connect_s + body / weather.bytes_per_s
        wire.at(self.sent_at + up_s, self.arrive)

    def _refuse(self) -> None:
        self.wire.trace(f"#{self.number} not connected")
        self.end(_CONNECT_FAILED)

    @property
    def sent(self) -> bool:
        return 0 < self.sent_at <= self.wire.clock.now

    def arrive(self) -> None:
        """Carry the request out at the store, whether or not the sender still waits; then its answer comes back."""
        request, wire = self.request, self.wire
        assert request is not None
        if self.gone and not (self.sent_at <= self.ended_at and self.dice.random() < wire.store.weather.late):
            return
        outcome = wire.store.carry_out(_received(request), reused=self.reused, dice=self.dice)
        wire.trace(f"#{self.number} {outcome.words}{' (its sender has gone)' if self.gone else ''}")
        if self.gone:
            return
        self._answer(outcome)

    def _answer(self, outcome: Outcome) -> None:
        wire, weather = self.wire, self.wire.store.weather
        first_at = wire.clock.now + weather.delay_s(self.dice)
        if outcome.cut == "start":
            self._break(first_at, outcome.how, _NOTHING)
            return
        if outcome.cut == "headers":
            wire.at(first_at, lambda: self._begin(outcome.status, []))
            self._break(first_at, outcome.how, _RESET)
            return
        body = outcome.body
        stop = len(body) // 2 if outcome.cut == "body" else len(body)
        if outcome.cut == "body" and outcome.how != "stall" and not weather.halves:
            stop = self.dice.randrange(len(body)) if body else 0
        rate = outcome.bytes_per_s or weather.bytes_per_s
        pieces = 1 if stop < _SMALL_BYTES and self.dice.random() < 0.5 else self.dice.randint(1, 4)
        wire.at(first_at, lambda: self._begin(outcome.status, outcome.headers))
        slow = outcome.bytes_per_s and outcome.bytes_per_s < STALL_BYTES_PER_S
        if slow and stop > outcome.bytes_per_s * self.easy.options.stall_timeout_s:
            wire.at(first_at + self.easy.options.stall_timeout_s, lambda: self.end(_TIMED_OUT))
            return
        before = 0
        for piece in range(1, pieces + 1):
            upto = stop * piece // pieces
            wire.at(first_at + upto / rate, lambda low=before, high=upto: self._bring(body[low:high]))
            before = upto
        last = first_at + stop / rate
        if outcome.cut:
            self._break(last, outcome.how, OK if outcome.unsized else _PARTIAL)
        elif outcome.promised > len(body):
            wire.at(last, lambda: self.end(_PARTIAL))
        else:
            kept = not outcome.unsized
            wire.at(last, lambda: self.end(OK, kept=kept))

    def _begin(self, status: int, headers: list[tuple[str, str]]) -> None:
        if not self.gone:
            self.first_at, self.status, self.headers = self.wire.clock.now, status, headers

    def _break(self, at: float, how: str, closed: int) -> None:
        if how == "stall":
            self.wire.at(at + self.easy.options.stall_timeout_s, lambda: self.end(_TIMED_OUT))
        else:
            self.wire.at(at, lambda: self.end(_RESET if how == "reset" else closed))

    def _bring(self, data: bytes) -> None:
        if self.gone:
            return
        target = self.easy.request.target if self.easy.request is not None else None
        if target is not None and target.size > _SMALL_BYTES and self.status in _GOOD:
            room = target.size - len(self.arrived)
            target.view()[len(self.arrived) : len(self.arrived) + min(room, len(data))] = data[:room]
        self.arrived += data
        if target is not None and len(self.arrived) > max(_SMALL_BYTES, target.size):
            self.end(WRITE_ERROR)

    def end(self, code: int, *, kept: bool = False) -> None:
        """End with libcurl's ``code``; a connection that is ``kept`` carries further requests."""
        if self.gone:
            return
        self.gone, self.ended_at, self.code = True, self.wire.clock.now, code
        self.wire.flights.discard(self)
        self.process.idle += kept
        self.easy.multi.done.append((self.easy.pointer, code))

    def cut(self) -> None:
        """Be ended by its sender. A request that was sent may reach the store all the same."""
        if not self.gone:
            self.gone, self.ended_at = True, self.wire.clock.now
            self.wire.flights.discard(self)
            self.wire.trace(f"#{self.number} ended by its sender")


def _received(request: Request) -> Received:
    parts = urlsplit(request.url)
    lines = (line.partition(":") for line in request.headers)
    # libcurl leaves out a header without a value.
    headers = {name.strip().lower(): value.strip() for name, _, value in lines if value.strip()}
    body = bytearray(request.body or b"")
    headers |= {"host": parts.netloc} | (
        {"content-length": str(len(body))} if request.method in ("PUT", "POST") else {}
    )
    return Received(request.method, parts.path, parts.query, headers, body)


class SimulatedEasy:
    """A handle for one request at a time, as ``engine.transport.easy.Easy``."""

    wire: Wire
    _pointers = count(1)

    def __init__(self, options: TransportOptions, pool: object = None) -> None:
        del pool
        self.options = options
        self.pointer = next(self._pointers)
        self.handle = self
        self.request: Request | None = None
        self.guarded = False
        self.collected: object = None
        self.fresh: str | bool = False
        self.flight: Flight | None = None
        self.multi: SimulatedMulti

    def load(self, request: Request, *, fresh: str | bool) -> None:
        self.request, self.fresh, self.flight = request, fresh, None
        self.collected = None if request.target is not None or request.method == "HEAD" else self

    def unload(self, code: int = CUT) -> Response:
        request, self.request, self.collected = self.request, None, None
        flight = self.flight
        if request is None or flight is None:
            return Response()
        response, body = Response(flight.status), flight.arrived if request.method != "HEAD" else b""
        target, good = request.target, flight.status in _GOOD
        whole = code == OK and good
        if target is not None and good:
            response.received = received = min(len(body), target.size)
            response.overflow = code == WRITE_ERROR or len(body) > target.size
            whole = whole and (received == target.size or request.shorter) and not response.overflow
            if target.size <= _SMALL_BYTES:
                if received == target.size:
                    target.renew(memoryview(body)[:received])
                else:
                    target.fill(body[:received])
        elif target is not None:
            response.body = body[: max(_SMALL_BYTES, target.size)][:TEXT_BYTES]
        else:
            most_bytes = request.most_bytes if flight.status < _REFUSED else TEXT_BYTES
            response.overflow = len(body) > most_bytes and flight.status < _REFUSED
            response.body = b"" if response.overflow else body[:most_bytes]
        if request.wants is not None and whole:
            # The first of several with one name, as ``curl_easy_header`` is asked for.
            first = dict(reversed(flight.headers))
            response.headers = {name: first[name] for name in request.wants if name in first}
        else:
            response.headers = dict(flight.headers)
        return response

    def excessive(self) -> bool:
        request, flight = self.request, self.flight
        if request is None or flight is None or len(flight.arrived) <= TEXT_BYTES:
            return False
        return len(flight.arrived) > (request.most_bytes if flight.status < _REFUSED else TEXT_BYTES)

    def sent(self) -> bool:
        return self.flight is not None and self.flight.sent

    def first_byte_s(self) -> float:
        flight = self.flight
        return max(0.0, flight.first_at - flight.sent_at) if flight is not None and flight.first_at else 0.0

    def body_s(self) -> float:
        flight = self.flight
        return max(0.0, self.wire.clock.now - flight.first_at) if flight is not None and flight.first_at else 0.0

    def progress(self) -> tuple[float, float, int]:
        flight = self.flight
        if flight is None:
            return 0.0, 0.0, 0
        sent_s = flight.sent_at - flight.began if flight.sent else 0.0
        first_s = flight.first_at - flight.began if flight.first_at else 0.0
        return sent_s, first_s, len(flight.arrived)

    def went_inward(self) -> bool:
        return False

    def address(self) -> str:
        return "192.0.2.1"

    def explain(self, code: int) -> str:
        return f"simulated libcurl code {code}"

    def close(self) -> None:
        """Nothing is held."""


class SimulatedMulti:
    """Many transfers at once, as ``engine.transport.loop.Multi``."""

    def __init__(self, connections: int) -> None:
        del connections
        self.done: list[tuple[int, int]] = []

    def keep(self, connections: int) -> None:
        """Nothing is held."""

    def add(self, easy: SimulatedEasy) -> None:
        easy.multi = self
        easy.flight = Flight(SimulatedEasy.wire, easy, fresh=bool(easy.fresh))

    def remove(self, easy: SimulatedEasy, *, unfinished: bool = False) -> None:
        del unfinished
        if easy.flight is not None:
            easy.flight.cut()
        self.done = [each for each in self.done if each[0] != easy.pointer]

    def perform(self) -> bool:
        return True

    def wakeup(self) -> bool:
        return True

    def finished(self) -> list[tuple[int, int]]:
        ended, self.done = self.done, []
        return ended


class _OurDescriptors:
    """Descriptors that no other code closes, as ``engine.transport.loop.Token``."""

    def there(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing is held."""


class SimulatedLoop(loop._Loop):
    """The real loop; whoever waits runs its cycles.

    Attributes:
        until: When the loop would look again by itself.

    """

    until = 0.0
    _longer, _fired = 1.0, 0

    def _sleep(self) -> None:
        told = self.mailbox.told or self._connections.discarded or self._closing
        self.until = SimulatedEasy.wire.clock.now
        if not told and all(map(self._full, self._backlog.sessions)):
            next_at = self._backlog.next_at()
            # An idle loop has nothing to do: ten minutes without a request are one step.
            idle_s = loop._IDLE_S if self._busy or self._share < inf else inf
            self.until = min(self.until + idle_s, inf if next_at is None else next_at)
            if self._busy:
                self.until = min(self.until, SimulatedEasy.wire.clock.now + self._look_s())

    def busy(self) -> bool:
        """Return whether something was begun that has not ended."""
        return bool(self._busy) or self._backlog.next_at() is not None

    def _look_s(self) -> float:
        """Return how long to sleep before looking for late calls: ever longer while nothing happens, to be fast."""
        fired = SimulatedEasy.wire.fired
        self._longer = 1.0 if fired != self._fired else min(self._longer * 1.3, _LONGEST)
        self._fired = fired
        return self._lookout.every_s * self._longer

    def cycle(self) -> float:
        """Run one cycle; return when the next one is due."""
        self.until = SimulatedEasy.wire.clock.now
        self._cycle()
        return self.until


class _NoThread:
    def __init__(self, **_how: Any) -> None:
        """Stand for a thread that whoever waits replaces."""

    def start(self) -> None:
        """Nothing starts."""

    def join(self, _limit_s: float = 0.0) -> None:
        """Nothing runs."""


class _NoConnections:
    def close(self) -> None:
        """Nothing is held."""


@contextmanager
def connected(wire: Wire) -> Iterator[None]:
    """Have the I/O loop of this process use ``wire`` in place of libcurl and a thread."""
    threads = SimpleNamespace(Thread=_NoThread, Lock=loop.threading.Lock)
    ours = (
        *(
            (loop, name, value)
            for name, value in {
                "_Loop": SimulatedLoop,
                "_loop": None,
                "Multi": SimulatedMulti,
                "Token": _OurDescriptors,
                "threading": threads,
                "atexit": SimpleNamespace(register=lambda _call: None),
                "room": lambda: 1000,
            }.items()
        ),
        (session, "Easy", SimulatedEasy),
        (session, "ConnectionPool", _NoConnections),
        (session, "_draw", wire.store.dice("sampling").random),
        (late_calls.Addresses, "other", lambda *_: ""),
    )
    before = [(place, name, getattr(place, name)) for place, name, _ in ours]
    try:
        for place, name, value in ours:
            setattr(place, name, value)
        SimulatedEasy.wire = wire
        yield
    finally:
        for place, name, value in before:
            setattr(place, name, value)
