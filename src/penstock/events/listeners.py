"""Delivery of records to listeners, at no cost without a listener, and handover of listeners to child processes.

A forked child inherits listeners; a spawned child (``spawn``, ``forkserver``) unpickles functions that subscribe them
again (``carry``). Listeners that need a thread or a file make it when the child begins to fetch (``when_fetching``)
and close it when the process ends (``at_end``).
"""

from __future__ import annotations

import atexit
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.events.records import Event

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
    "emit",
    "end",
    "enter",
    "listening",
    "subscribe",
    "when_fetching",
]

_listeners: tuple[Callable[[Event], None], ...] = ()


def listening() -> bool:
    """Return whether there is a listener; check this before building a record on a hot path."""
    return bool(_listeners)


def emit(event: Event) -> None:
    """Pass the record to every listener, on the emitting thread; remove a listener that raises, and continue."""
    for listener in _listeners:
        try:
            listener(event)
        except Exception:  # noqa: BLE001  a broken sink must not break storage (trap 14)
            _drop(listener)


def subscribe(listener: Callable[[Event], None]) -> Callable[[], None]:
    """Call a function for every event of this process.

    Listeners run on the thread where the event happens, mostly an I/O thread: they must be quick and must not call
    Penstock. Requests and operations that began before ``subscribe`` may report only their end: ignore an unknown
    ``id``. A forked process inherits the listeners, but no request or operation; a spawned process begins without
    listeners.

    Args:
        listener: Function that takes the event.

    Returns:
        A function without arguments that ends the subscription.

    Raises:
        Unusable: ``listener`` is not callable.

    Example:
        >>> from penstock.events import Committed, subscribe
        >>> written = []
        >>> stop = subscribe(lambda event: isinstance(event, Committed) and written.append(event.url))
        >>> ps.save({"step": 1}, "s3://bucket/model.pt")
        >>> stop()
        >>> written
        ['s3://bucket/model.pt']

    """
    if not callable(listener):
        raise Unusable(f"a listener is a function that takes an event, not {listener!r}")
    global _listeners  # noqa: PLW0603  one per process; replaced as a whole, so emitters need no lock
    _listeners = (*_listeners, listener)
    return lambda: _drop(listener)


def _drop(listener: Callable[[Event], None]) -> None:
    global _listeners  # noqa: PLW0603  see subscribe
    _listeners = tuple(each for each in _listeners if each is not listener)


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
