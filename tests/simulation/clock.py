"""Virtual time and seeded randomness for the code of this process: nothing sleeps, and a seed repeats a run."""

from __future__ import annotations

import datetime as dt
import os
import pkgutil
import random
import secrets
import sys
import time
import uuid
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib import import_module
from random import Random
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Of a run that begins at this time; any time far from 0.
START_S = 10_000.0
EPOCH_S = 1_800_000_000.0


class Clock:
    """The time of one run: it moves only while something waits.

    Attributes:
        now: Seconds of ``time.monotonic``.
        jumped_s: Seconds by which the wall clock was set forward, or back.

    """

    def __init__(self, advance: Callable[[float], None]) -> None:
        """Begin; ``advance`` moves ``now`` until the given time, and carries out what happens meanwhile."""
        self.now = START_S
        self.jumped_s = 0.0
        self._advance = advance

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return EPOCH_S + self.now - START_S + self.jumped_s

    def wall_ns(self) -> int:
        return int(self.wall() * 1e9)

    def sleep(self, seconds: float) -> None:
        self._advance(self.now + max(0.0, seconds))


def _dates(clock: Clock) -> type[dt.datetime]:
    """Return the class of dates whose ``now`` is that of ``clock``."""

    class Date(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Date:
            return cls.fromtimestamp(clock.wall(), tz)

    return Date


class Dice(Random):
    """Random numbers that stand for those of the operating system."""

    def entropy(self, count: int) -> bytes:
        return self.randbytes(count)


def _load_all() -> None:
    """Import the modules that runs use: one that is imported in a run would keep that run's clock as a default."""
    import penstock

    for found in pkgutil.walk_packages(penstock.__path__, "penstock."):
        if found.name.split(".")[1] in {"engine", "stores", "source", "verbs", "data", "checkpoint", "jobs", "testing"}:
            with suppress(ImportError):
                import_module(found.name)


_load_all()


class _Place(NamedTuple):
    """Where code holds a function of the system: a name of a module, or the defaults of a function's arguments."""

    names: dict[str, Any]
    name: str
    real: str


class _Cell(NamedTuple):
    """A variable of a function's closure, such as the factory of a dataclass's default."""

    cell: Any
    given: Any


class _Defaults(NamedTuple):
    """A function with a clock as a default argument."""

    function: Any
    given: tuple[Any, ...]


def _modules() -> list[Any]:
    return [module for name, module in list(sys.modules.items()) if name.startswith("penstock.")]


@cache
def _places(count: int) -> tuple[list[_Place], list[_Defaults], list[_Cell]]:
    """Return the places in Penstock's modules, of a process with ``count`` modules."""
    del count
    held = {id(value): real for real, value in _REAL.items()}
    places = [
        _Place(vars(module), name, held[id(value)])
        for module in _modules()
        for name, value in list(vars(module).items())
        if id(value) in held
    ]
    functions = [
        each
        for module in _modules()
        for value in list(vars(module).values())
        for each in (value, *(vars(value).values() if isinstance(value, type) else ()))
        if isinstance(each, FunctionType) and getattr(value, "__module__", "").startswith("penstock.")
    ]
    defaults = [
        _Defaults(each, each.__defaults__)
        for each in functions
        if any(id(one) in held for one in each.__defaults__ or ())
    ]
    cells = [
        _Cell(cell, cell.cell_contents)
        for each in functions
        for cell in each.__closure__ or ()
        if _filled(cell) and id(getattr(cell.cell_contents, "func", cell.cell_contents)) in held
    ]
    return places, defaults, cells


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


_MODULES = {"time": time, "os": os, "random": random, "secrets": secrets, "uuid": uuid, "datetime": dt}
_NAMES = ("time.monotonic", "time.perf_counter", "time.time", "time.time_ns", "time.sleep", "os.urandom")
_NAMES += ("time.process_time", "time.thread_time", "os.times")
_NAMES += ("random.Random", "secrets.token_hex", "secrets.randbits", "uuid.uuid4", "os.getpid", "datetime.datetime")
_REAL: dict[str, Any] = {each: getattr(_MODULES[each.partition(".")[0]], each.partition(".")[2]) for each in _NAMES}


@contextmanager
def replaced(clock: Clock, dice: Dice, pid: Callable[[], int]) -> Iterator[None]:
    """Put the arguments in the place of the system's functions, wherever Penstock's modules hold or find them."""

    def seeded(seed: object = None) -> Random:
        return Random(dice.getrandbits(64) if seed is None else seed)  # type: ignore[arg-type]

    ours: dict[str, Any] = {
        "time.monotonic": clock.monotonic,
        "time.perf_counter": clock.monotonic,
        "time.time": clock.wall,
        "time.time_ns": clock.wall_ns,
        "time.sleep": clock.sleep,
        "time.process_time": lambda: 0.0,
        "time.thread_time": lambda: 0.0,
        "os.urandom": dice.entropy,
        "random.Random": seeded,
        "secrets.token_hex": lambda count=32: dice.entropy(count).hex(),
        "secrets.randbits": dice.getrandbits,
        "uuid.uuid4": lambda: uuid.UUID(bytes=dice.entropy(16), version=4),
        "os.times": lambda: (0.0,) * 5,
        "os.getpid": pid,
        "datetime.datetime": _dates(clock),
    }
    _set(ours, *_places(len(sys.modules)))
    for real, value in ours.items():
        setattr(_MODULES[real.partition(".")[0]], real.partition(".")[2], value)
    before = len(sys.modules)
    try:
        yield
    finally:
        for real, value in _REAL.items():
            setattr(_MODULES[real.partition(".")[0]], real.partition(".")[2], value)
        _set(_REAL, *_places(before))


def _set(values: dict[str, Any], places: list[_Place], defaults: list[_Defaults], cells: list[_Cell]) -> None:
    held = {id(value): real for real, value in _REAL.items()}
    for place in places:
        place.names[place.name] = values[place.real]
    for function, given in defaults:
        function.__defaults__ = tuple([values[held[id(each)]] if id(each) in held else each for each in given])
    for cell, factory in cells:
        if isinstance(factory, partial):
            cell.cell_contents = partial(values[held[id(factory.func)]], *factory.args)
        else:
            cell.cell_contents = values[held[id(factory)]]
