"""Handover of listeners to child processes: hooks for a process's first engine, for its end, and for spawned processes.

A forked child inherits listeners; a spawned child (``spawn``, ``forkserver``) unpickles functions that subscribe them
again. Listeners that need a thread or a file make it when the child begins to fetch.
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

# The size that a loader reserves for its workers; W3C's traceparent has 55 bytes.
CONTEXT_BYTES: Final = 64

_carried: dict[int, Callable[[], Restore]] = {}
_starting: dict[int, Callable[[], None]] = {}
_ending: dict[int, Callable[[], None]] = {}
_entered: list[bytes] = []  # the latest context, in a worker
_contexts: dict[int, tuple[Callable[[], bytes], Callable[[bytes], None]]] = {}


def carry(make: Callable[[], Restore]) -> Callable[[], None]:
    """Pass the function that ``make()`` returns, which must be picklable, to processes that are spawned.

    The spawned process calls it when the first source arrives. Returns a function that removes this hook.
    """
    return _kept(_carried, make)


def carried() -> tuple[Restore, ...]:
    """Return the functions that the process being spawned must call; () while no process is being spawned."""
    if not _carried:
        return ()
    from multiprocessing.context import get_spawning_popen  # most programs carry nothing

    if get_spawning_popen() is None:
        return ()
    return (*(make() for make in [*_carried.values()]), partial(enter, context()))


def arrived(restores: tuple[Restore, ...], make: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Call the ``carried`` functions, then ``make``, to unpickle a source; ignore errors of ``carried`` functions."""
    for restore in restores:
        # A broken sink must not break storage (trap 14).
        with suppress(Exception):
            restore()
    return make(*args, **options)


def when_fetching(start: Callable[[], None]) -> Callable[[], None]:
    """Call ``start`` each time a process opens an engine, including the first engine after a fork.

    ``start`` must be quick. Returns a function that removes this hook.
    """
    return _kept(_starting, start)


def begin() -> None:
    """Call the hooks of ``when_fetching``, because this process opens an engine."""
    for start in [*_starting.values()] if _starting else ():
        with suppress(Exception):  # see arrived
            start()


def at_end(finish: Callable[[], None]) -> Callable[[], None]:
    """Call ``finish`` when the process ends, after the last event. Returns a function that removes this hook."""
    return _kept(_ending, finish)


def context_of(read: Callable[[], bytes], adopt: Callable[[bytes], None]) -> Callable[[], None]:
    """Let loaders pass the trace context ``read()`` to their workers, which call ``adopt`` with it.

    This happens when an iteration begins, with up to ``CONTEXT_BYTES``. ``adopt`` is called immediately if this process
    is a worker that has entered an iteration. Returns a function that removes this hook.
    """
    if _entered:
        adopt(_entered[0])
    return _kept(_contexts, (read, adopt))


def context() -> bytes:
    """Return the trace context for the workers of an iteration that begins here; b"" without a trace."""
    for read, _ in [*_contexts.values()]:
        with suppress(Exception):  # see arrived
            return read()[:CONTEXT_BYTES]
    return b""


def enter(context: bytes) -> None:
    """Adopt the trace context of a loader's process in one of its workers, until the next iteration."""
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


# Registered before the function of ``tracing``, so it runs after that one.
@atexit.register
def end() -> None:
    """Call the hooks of ``at_end``; a process that does not run ``atexit`` calls this function itself."""
    for finish in [*_ending.values()]:
        with suppress(Exception):
            finish()
