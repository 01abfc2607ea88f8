"""What takes listeners from a process to the next: hooks at its first engine, at its end, and for those it spawns.

A forked child inherits listeners; a spawned one (``spawn``, ``forkserver``) unpickles functions that subscribe them
again. Listeners that need a thread or a file of their own make them when the child begins to fetch.
"""

from __future__ import annotations

import atexit
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    Restore = Callable[[], object]

__all__ = [
    "CONTEXT_BYTES",
    "arrived",
    "at_end",
    "begin",
    "carried",
    "carry",
    "context",
    "context_of",
    "end",
    "enter",
    "when_fetching",
]

P = ParamSpec("P")
T = TypeVar("T")

CONTEXT_BYTES: Final = 64  # as much as a loader keeps for its workers; W3C's traceparent has 55

_carried: dict[int, Callable[[], Restore]] = {}
_starting: dict[int, Callable[[], None]] = {}
_ending: dict[int, Callable[[], None]] = {}
_entered: list[bytes] = []  # the latest context, in a worker
_contexts: dict[int, tuple[Callable[[], bytes], Callable[[bytes], None]]] = {}


def carry(make: Callable[[], Restore]) -> Callable[[], None]:
    """Hand the function that ``make()`` returns, which has to be picklable, to processes that are spawned.

    It is called there when the first source arrives. Returns a function that ends this.
    """
    return _kept(_carried, make)


def carried() -> tuple[Restore, ...]:
    """Return what a process that is being spawned right now has to call; () while nothing is being spawned."""
    if not _carried:
        return ()
    from multiprocessing.context import get_spawning_popen  # most programs carry nothing

    if get_spawning_popen() is None:
        return ()
    return (*(make() for make in [*_carried.values()]), partial(enter, context()))


def arrived(restores: tuple[Restore, ...], make: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Call what was ``carried``, then ``make``: what a pickled source is on arrival. A restore that fails is left."""
    for restore in restores:
        with suppress(Exception):  # a broken sink must not break storage (trap 14)
            restore()
    return make(*args, **options)


def when_fetching(start: Callable[[], None]) -> Callable[[], None]:
    """Call ``start`` each time a process opens an engine, the first one after a fork included; must be quick.

    Returns a function that ends this.
    """
    return _kept(_starting, start)


def begin() -> None:
    """Take note that an engine is being opened in this process."""
    for start in [*_starting.values()] if _starting else ():
        with suppress(Exception):  # see arrived
            start()


def at_end(finish: Callable[[], None]) -> Callable[[], None]:
    """Call ``finish`` when the process ends, after the last event. Returns a function that ends this."""
    return _kept(_ending, finish)


def context_of(read: Callable[[], bytes], adopt: Callable[[bytes], None]) -> Callable[[], None]:
    """Let loaders pass ``read()``, up to ``CONTEXT_BYTES``, to their workers as an iteration begins, for ``adopt``.

    ``adopt`` is called at once where this process is a worker that has entered an iteration. Returns a function that
    ends this.
    """
    if _entered:
        adopt(_entered[0])
    return _kept(_contexts, (read, adopt))


def context() -> bytes:
    """Return what workers of an iteration that begins here should know of its trace; b"" without one."""
    for read, _ in [*_contexts.values()]:
        with suppress(Exception):  # see arrived
            return read()[:CONTEXT_BYTES]
    return b""


def enter(context: bytes) -> None:
    """Belong to the trace that a loader's process was in, in one of its workers, until the next iteration."""
    _entered[:] = [context]
    for _, adopt in [*_contexts.values()]:
        with suppress(Exception):  # see arrived
            adopt(context)


def _kept(where: dict[int, T], thing: T) -> Callable[[], None]:
    key = id(thing)
    where[key] = thing

    def remove() -> None:
        where.pop(key, None)

    return remove


@atexit.register  # before tracing's, which is registered later: so it runs after it
def end() -> None:
    """Take note that this process ends; for one that runs no ``atexit``."""
    for finish in [*_ending.values()]:
        with suppress(Exception):
            finish()
