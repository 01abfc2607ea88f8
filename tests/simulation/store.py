"""The store of the simulation: a dialect of the fault server, other writers, and a record of every version."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any

from penstock.testing.faults import dialect
from penstock.testing.faults.dialect import Dialect, Stored, find_words
from penstock.testing.faults.message import Refused
from penstock.testing.faults.script import FAULTS, Script, Settings, _can
from penstock.testing.faults.server import _BODYLESS, _shift_range, apply_fault, refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.testing.faults.message import Answer, Request
    from penstock.testing.faults.script import Fault
    from tests.simulation.access import Tokens
    from tests.simulation.clock import Clock

BUCKET = "bucket"
# Beyond all patience; a client gives up at once, or the run takes too long.
_LATER = replace(FAULTS["503-after"], name="503-later", headers=(("Retry-After", "600"),))
_CONDITIONS = ("if-match", "if-generation-match")


@dataclass(frozen=True, slots=True)
class Version:
    """What a key held from a time on; None while no object was there."""

    since: float
    stored: Stored | None


@dataclass(slots=True)
class Weather:
    """The network of one run.

    Attributes:
        usual_s: Seconds of most ways.
        tail: Share of the ways that take 3 to 300 times as long.
        bytes_per_s: Rate of bodies.
        unconnected: Share of new connections that fail.
        faulty: Share of the requests with a fault.
        faults: Names of the faults that may happen.
        late: Share of the requests whose sender has gone that reach the store.
        halves: Break bodies off half-way, as the fault server does, and not at any byte.

    """

    usual_s: float = 0.01
    tail: float = 0.0
    bytes_per_s: float = 50e6
    unconnected: float = 0.0
    faulty: float = 0.0
    faults: tuple[str, ...] = ()
    late: float = 0.0
    halves: bool = False

    def delay_s(self, dice: Random) -> float:
        """Return the seconds of one way."""
        factor = 10 ** dice.uniform(0.5, 2.5) if self.tail and dice.random() < self.tail else dice.uniform(0.8, 1.3)
        return self.usual_s * factor


@dataclass(slots=True)
class Outcome:
    """An answer on its way, and how it is broken off."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    words: str
    cut: str = ""
    how: str = ""
    bytes_per_s: int = 0
    unsized: bool = False
    promised: int = 0


class _Recorded(dict[str, Stored]):
    """The objects of a bucket; every change is kept with its time."""

    def __init__(self, note: Callable[[str, Stored | None], None]) -> None:
        super().__init__()
        self._note = note

    def __setitem__(self, key: str, stored: Stored) -> None:
        super().__setitem__(key, stored)
        self._note(key, stored)

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self._note(key, None)

    def pop(self, key: str, *default: Any) -> Any:
        there = key in self
        found = super().pop(key, *default)
        if there:
            self._note(key, None)
        return found


def _split_line(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.lower(), value.strip()


class SimulatedStore:
    """A bucket in this process, in one dialect.

    Attributes:
        history: Versions of each key, the oldest first.
        weather: The network to it.
        step: Number of the operation of the scenario that runs: it decides the dice.

    """

    def __init__(self, clock: Clock, seed: object, settings: Settings, weather: Weather) -> None:
        self.clock, self.settings, self.weather = clock, settings, weather
        self.step = 0
        self._seed, self._drawn = seed, count()
        self.words = find_words(settings.dialect)
        dialect._generations = count(10**15)
        self.dialect = Dialect(settings, self.words)
        self.dialect.make(BUCKET)
        self.history: dict[str, list[Version]] = {}
        self.objects = self.dialect.buckets[BUCKET].objects = _Recorded(self._note)
        self.requests = 0
        # Faults of the operation under way, and of all so far: a cache keeps what a wrong answer said.
        self.happened, self.ever = set[str](), set[str]()
        # Whether reads are answered with any version, whatever their condition.
        self.deaf = False
        # Of temporary credentials; None if keys are valid for ever.
        self.tokens: Tokens | None = None
        # Faults for certain requests, as the fault server's.
        self.script = Script()
        # Until then, every request is answered with 503.
        self.down_until = 0.0

    def begin(self, step: int) -> None:
        """Begin an operation of the scenario: its dice do not depend on those of others."""
        self.step, self._drawn = step, count()

    def dice(self, of: str = "") -> Random:
        """Return dice for the next request, or another purpose, of this step."""
        return Random(f"{self._seed}/{self.step}/{of or next(self._drawn)}")

    def put(self, key: str, data: bytes) -> Stored:
        """Store an object without a request, as another writer does."""
        stored = self.objects[key] = Stored.of(data, {"content-type": "application/octet-stream"})
        return stored

    def version(self, stored: Stored) -> str:
        """Return the version as Penstock names it."""
        return self.words.named(stored)

    def alive(self, key: str, since: float, until: float) -> list[Stored | None]:
        """Return what a key held at any moment of a time: None for no object."""
        versions = self.history.get(key, [])
        found: list[Stored | None] = [] if versions and versions[0].since <= since else [None]
        for at, version in enumerate(versions):
            ends = versions[at + 1].since if at + 1 < len(versions) else inf
            if version.since <= until and ends >= since:
                found.append(version.stored)
        return found

    def carry_out(self, request: Request, *, reused: bool, dice: Random) -> Outcome:
        """Carry out a request, in one moment, and return its answer."""
        self.requests += 1
        self.words.locate(request)
        fault = self._fault(request, dice, reused=reused)
        answer = self._answered(request, fault)
        headers = {**answer.headers, "Server": "simulation", "x-amz-request-id": "0123456789ABCDEF"}
        body = b"" if request.method == "HEAD" else answer.body
        unsized = answer.unsized or (fault is not None and fault.unsized)
        promised = len(answer.body) + (fault.longer if fault is not None else 0)
        if not unsized and answer.status not in _BODYLESS:
            headers["Content-Length"] = str(promised)
        span = request.headers.get("range", "")
        query = f"?{request.query}" if request.query and request.verb not in ("get", "head", "put") else ""
        words = f"{request.verb or request.method} {request.key}{query} {span}".strip()
        words += f" -> {answer.status}" + (f" with {fault.name}" if fault is not None else "")
        lines = "\r\n".join(f"{name}: {value}" for name, value in headers.items()).split("\r\n")
        outcome = Outcome(answer.status, [_split_line(line) for line in lines], body, words)
        outcome.unsized, outcome.promised = unsized, promised if request.method != "HEAD" else 0
        if promised < len(body) and not unsized:
            outcome.body = body[:promised]
        if fault is not None:
            self.happened.add(fault.name)
            self.ever.add(fault.name)
            outcome.cut, outcome.how, outcome.bytes_per_s = fault.cut, fault.how, fault.bytes_per_s
        return outcome

    def _fault(self, request: Request, dice: Random, *, reused: bool) -> Fault | None:
        weather, scripted = self.weather, self.script.play(request, reused=reused)
        if scripted is not None:
            return scripted
        if self.clock.now < self.down_until:
            return self.words.faults.get("503", FAULTS["503"])
        if not weather.faults or dice.random() >= weather.faulty:
            return None
        name = dice.choice(weather.faults)
        fault = _LATER if name == _LATER.name else self.words.faults.get(name, FAULTS[name])
        return fault if _can(fault, request, reused=reused) else None

    def _answered(self, request: Request, fault: Fault | None) -> Answer:
        from penstock.testing.faults.message import Answer

        if fault is not None and fault.status:
            return refusal(fault)
        if fault is not None and fault.undone:
            return Answer(503)
        if fault is not None and fault.change == "corrupt" and request.body:
            request.body[len(request.body) // 2] ^= 1
        if self.tokens is not None:
            self.dialect.access.tokens = self.tokens.accepted(self.clock.now)
        try:
            self.dialect.check(request, self.script.regions(request.bucket))
            if self.deaf and request.verb == "get":
                kept = {name: value for name, value in request.headers.items() if not name.endswith(_CONDITIONS)}
                request = replace(request, headers=kept)
            answer = self.dialect.answer(_shift_range(request, fault.change if fault is not None else ""))
            return apply_fault(answer, fault, self.words.version) if fault is not None else answer
        except Refused as error:
            return self.words.refused(error, request)

    def _note(self, key: str, stored: Stored | None) -> None:
        self.history.setdefault(key, []).append(Version(self.clock.now, stored))
