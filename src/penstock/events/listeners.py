"""Delivery of records to listeners, at no cost without a listener; beginnings and ends of operations and requests.

Each operation and request that begins has exactly one end, on every exit path. A forked child inherits listeners; a
spawned child (``spawn``, ``forkserver``) unpickles functions that subscribe them again (``carry``). Listeners that need
a thread or a file make it when the child begins to fetch (``when_fetching``) and close it when the process ends
(``at_end``).
"""

from __future__ import annotations

import atexit
import os
from contextlib import suppress
from contextvars import ContextVar
from copy import copy
from functools import partial
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar, cast
from weakref import WeakSet

from penstock.errors import Cancelled, PenstockError, Unusable, public_url
from penstock.events.records import OperationEnded, OperationStarted, RequestEnded, RequestStarted
from penstock.events.timings import host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import TracebackType

    from penstock.events.records import Event, Outcome
    from penstock.events.timings import MeasuredAnswer

    Restore = Callable[[], object]

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
        raise Unusable(f"a listener must be a function that takes an event, got {listener!r}")
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
    return _register_thing(_carried, make)


def list_restores() -> tuple[Restore, ...]:
    """Return the functions that the process being spawned must call; () while no process is being spawned."""
    if not _carried:
        return ()
    from multiprocessing.context import get_spawning_popen  # most programs carry nothing

    if get_spawning_popen() is None:
        return ()
    return (*(make() for make in [*_carried.values()]), partial(enter, context()))


def restore_and_make(restores: tuple[Restore, ...], make: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Call the ``list_restores`` functions, whose errors are ignored, then ``make``, to unpickle a source."""
    for restore in restores:
        # A broken sink must not break storage (trap 14).
        with suppress(Exception):
            restore()
    return make(*args, **options)


def when_fetching(start: Callable[[], None]) -> Callable[[], None]:
    """Call ``start`` each time a process opens an engine, including the first engine after a fork.

    ``start`` must be quick. Returns a function that removes this hook.
    """
    return _register_thing(_starting, start)


def begin() -> None:
    for start in [*_starting.values()] if _starting else ():
        with suppress(Exception):  # see arrived
            start()


def at_end(finish: Callable[[], None]) -> Callable[[], None]:
    """Call ``finish`` when the process ends, after the last event. Returns a function that removes this hook."""
    return _register_thing(_ending, finish)


def context_of(read: Callable[[], bytes], adopt: Callable[[bytes], None]) -> Callable[[], None]:
    """Let loaders pass the trace context ``read()`` to their workers, which call ``adopt`` with it.

    This happens when an iteration begins, with up to ``CONTEXT_BYTES``. ``adopt`` is called immediately if this process
    is a worker that has entered an iteration. Returns a function that removes this hook.
    """
    if _entered:
        adopt(_entered[0])
    return _register_thing(_contexts, (read, adopt))


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


def _register_thing(where: dict[int, T], thing: T) -> Callable[[], None]:
    key = id(thing)
    where[key] = thing

    def remove() -> None:
        where.pop(key, None)

    return remove


# Registered before ``_end_all``, so it runs after that one.
@atexit.register
def end() -> None:
    """Call the hooks of ``at_end``; a process that does not run ``atexit`` calls this function itself."""
    for finish in [*_ending.values()]:
        with suppress(Exception):
            finish()


K = TypeVar("K")

_END: Final = object()
_ids: Final = count(1)
_current: Final[ContextVar[int]] = ContextVar("penstock-operation", default=0)


def operation(kind: str, url: Callable[[K], str], key: K) -> Scope:
    """Begin an operation on ``url(key)``: use it in a ``with`` block, or call its ``run`` and then its ``end``.

    Without a listener at this moment, nothing is recorded, now or later, and ``url`` is not called.
    """
    return _Heard(kind, public_url(url(key))) if listening() else _UNHEARD


def follow_items(kind: str, url: Callable[[str], str], key: str, items: Generator[T]) -> Generator[T]:
    """Yield the items of a generator, whose steps belong to an operation that begins with the first step."""
    scope = operation(kind, url, key)
    try:
        while (item := scope.run(next, items, _END)) is not _END:
            yield cast("T", item)
    except BaseException as error:
        items.close()
        scope.end(error)
        raise
    scope.end()


class Scope:
    """An operation without a listener, which records nothing; base class of operations with one.

    Attributes:
        id: As in ``OperationStarted``; 0 without a listener.
    """

    __slots__ = ()
    id: int = 0

    def run(self, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Call ``function``; requests that it makes on this thread belong to the operation."""
        return function(*args, **options)

    def end(self, error: BaseException | None = None) -> None:
        """Record the end; a second call does nothing."""

    def __enter__(self) -> Self:
        """Make requests and operations that begin in the block, on this thread, belong to the operation."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


_UNHEARD: Final = Scope()
_open: Final[WeakSet[_Heard]] = WeakSet()


class _Heard(Scope):
    """An operation with a listener; cancelled if it is dropped, or still open when the interpreter exits."""

    __slots__ = ("__weakref__", "_began", "_outer", "_pid", "id", "kind", "parent", "url")

    def __init__(self, kind: str, url: str) -> None:
        self.id, self.parent = next(_ids), _current.get()
        self.kind, self.url = kind, url
        self._outer: Any = None
        self._pid = os.getpid()
        self._began = monotonic()
        _open.add(self)
        emit(OperationStarted(url, self.id, self.parent, kind))

    def run(self, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        outer = _current.set(self.id)
        try:
            return function(*args, **options)
        finally:
            _current.reset(outer)

    def end(self, error: BaseException | None = None) -> None:
        pid, self._pid = self._pid, 0
        if pid != os.getpid():
            # The operation has ended, or it began in the parent, before the fork.
            return
        _open.discard(self)
        elapsed_s = monotonic() - self._began
        emit(
            OperationEnded(self.url, self.id, self.parent, self.kind, _outcome(error), elapsed_s, describe_error(error))
        )

    def __enter__(self) -> Self:
        self._outer = _current.set(self.id)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.reset(self._outer)
        self.end(error)

    def __del__(self) -> None:
        if self._pid:
            self.end(Cancelled("dropped before its end"))


class RequestTrace:
    """Recorder of the attempts of one request; made on the requesting thread, used on the transport's thread.

    An operation made without a listener has no trace, so that the hot path checks only an attribute.
    """

    def __init__(self, verb: str, url: str) -> None:
        self._id, self._parent = next(_ids), _current.get()
        self._verb, self._url, self._host = verb, url, ""
        self._attempt = self._sent_bytes = 0
        self._began = self._elapsed_s = 0.0
        self._answer = 0, 0, 0, 0.0

    def beside(self) -> RequestTrace:
        """Return a trace of another request with the same verb and URL, in the same operation."""
        other = copy(self)
        other._id, other._attempt = next(_ids), 0  # noqa: SLF001  of this class
        return other

    def start(self, attempt: int, request: object) -> None:
        """Record that an attempt is being sent."""
        # A store that does not use HTTP has no requests.
        body = getattr(request, "body", None)
        self._host = host_of(getattr(request, "url", ""))
        self._attempt, self._sent_bytes, self._began = attempt, len(body) if body else 0, monotonic()
        emit(RequestStarted(self._url, self._id, self._parent, self._verb, attempt))

    def answer(self, response: MeasuredAnswer) -> None:
        """Keep the values of the response for ``end``, which follows."""
        self._elapsed_s, body = monotonic() - self._began, response.body
        received_bytes = response.received or (len(body) if isinstance(body, bytes) else 0)
        self._answer = response.status, self._sent_bytes, received_bytes, response.first_byte_s

    def end(self, error: PenstockError | None) -> None:
        """Record the end of the attempt that was started last; do nothing if it has ended or none was started."""
        attempt, self._attempt = self._attempt, 0
        if attempt:
            begun = self._url, self._id, self._parent, self._verb, attempt, _outcome(error)
            emit(RequestEnded(*begun, *self._answer, self._elapsed_s, describe_error(error), self._host))


def _outcome(error: BaseException | None) -> Outcome:
    if error is None:
        return "done"
    failed = isinstance(error, Exception) and not isinstance(error, Cancelled)  # else Ctrl-C, or a generator's end
    return "failed" if failed else "cancelled"


def describe_error(error: BaseException | None) -> str:
    """Return the class of an error, and its text if the error is Penstock's: other texts may hold secrets."""
    if error is None:
        return ""
    name = type(error).__name__
    return f"{name}: {error}" if isinstance(error, PenstockError) else name


# Runs after the I/O thread and its requests have ended, because transports register later.
@atexit.register
def _end_all() -> None:
    for scope in list(_open):
        scope.end(Cancelled("the interpreter exits"))
