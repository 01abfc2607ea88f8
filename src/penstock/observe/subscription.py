"""Opens sinks in this process, and again in those that are forked or spawned from it."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from functools import cached_property, partial
from logging import getLogger
from time import monotonic
from typing import TYPE_CHECKING, Final, Self

from penstock.errors import Unusable
from penstock.events import at_end, carry, named, subscribe, when_fetching
from penstock.observe.pump import Pump

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.events import Event
    from penstock.observe.sink import Sink

__all__ = ["Subscription", "has", "receive", "to"]

_LOG = getLogger("penstock")
_CLOSE_S: Final = 5.0  # how long leaving waits for a sink; it is abandoned after that
_WORKER_S: Final = 2.0  # the same in a worker: torch kills those that take 5 s to end

_open: dict[str, Subscription] = {}  # of this process, by a name that is the same in those that it starts


def to(*sinks: Sink) -> Subscription:
    """Send what happens in this process to ``sinks``, and in the processes that it forks or spawns from now on.

    A forked child has them at once. A child that is spawned (``spawn``, ``forkserver``) has them when it unpickles
    something that reads from a store: a dataset, a loader. Sinks write on a thread of their own, so that one that is
    slow, full or broken holds no request up: records beyond 65,536 that wait are dropped, and counted.

    Returns:
        A context manager; closing it, or the interpreter's exit, writes what is left.

    Raises:
        Unusable: No sink, or something that is none.
        MissingExtra: The sink's library is not installed.
        OSError: The sink's file cannot be opened, or its port not be listened to.

    """
    if not sinks:
        raise Unusable("penstock.observe.to takes one sink or more: JsonLines(path), say")
    for sink in sinks:
        if not callable(getattr(sink, "open", None)) or isinstance(sink, type):
            raise Unusable(f"a sink is a value such as penstock.observe.JsonLines(path), not {sink!r}")
    return Subscription(secrets.token_hex(8), sinks, first=True)


class Subscription:
    """Sinks that were opened: close it, or use it in a ``with`` block. See ``to``."""

    def __init__(self, name: str, sinks: tuple[Sink, ...], *, first: bool) -> None:
        """Open ``sinks``; ``first`` in the process that asks for them, and not in those that are started from it."""
        self._name, self._sinks = name, sinks
        self._pid = os.getpid()
        self._arrived_pid = 0  # of the process that has begun to fetch
        self._closed = False
        self._pumps: list[Pump] = []
        self._stops: list[Callable[[], None]] = []
        try:
            self._begin(first=first)
        except BaseException:
            self.close()
            raise
        self._kept = [carry(self._carried), at_end(self._at_end), when_fetching(self._arrive)]
        _open[name] = self

    def _begin(self, *, first: bool) -> None:
        for sink in self._sinks:
            pump = Pump(sink.open(first=first), f"the sink {sink!r}")
            self._pumps.append(pump)
            if sink.events:
                self._stops.append(subscribe(pump.hear))

    @property
    def written(self) -> int:
        """Records that were written by this process, over all sinks; those of its children are not counted."""
        return sum(pump.written for pump in self._pumps)

    @property
    def dropped(self) -> int:
        """Records that this process left out because a sink was too slow, or failed on."""
        return sum(pump.dropped + pump.lost for pump in self._pumps)

    def flush(self, limit_s: float = _CLOSE_S) -> bool:
        """Wait until what happened so far has been written; returns False where ``limit_s`` was not enough.

        Once it was closed, nothing is waited for: see what ``close`` returned.
        """
        if self._closed:
            return True
        until = monotonic() + limit_s
        whole = True
        for pump in self._pumps:
            whole &= pump.flush(max(0.0, until - monotonic()))
        return whole

    def close(self, limit_s: float = _CLOSE_S) -> bool:
        """Write what is left, at most ``limit_s`` long, and close the sinks; twice does nothing.

        Returns False where a sink was abandoned. Processes that were started meanwhile keep theirs.
        """
        if self._closed:
            return True
        self._closed = True
        if _open.get(self._name) is self:
            del _open[self._name]
        for stop in (*self._stops, *getattr(self, "_kept", ())):
            stop()
        until = monotonic() + limit_s
        whole = True
        for pump in self._pumps:
            whole &= pump.close(max(0.0, until - monotonic()))
        return whole

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _at_end(self) -> None:
        if self._pid == os.getpid():
            self.close()

    def _carried(self) -> Callable[[], object]:
        return partial(receive, self._name, self._picklable)

    @cached_property
    def _picklable(self) -> tuple[Sink, ...]:
        """The sinks that a process can be handed that is being spawned: asked for the first time as one is."""
        return tuple(sink for sink in self._sinks if _can_be_pickled(sink))

    def _forked(self) -> None:
        """Leave the parent's threads and files behind, in its child: the sinks open when something happens here."""
        for stop in self._stops:
            stop()
        for pump in self._pumps:
            pump.leave()
        self._pumps = []
        self._stops = [subscribe(self._hear_first)] if any(sink.events for sink in self._sinks) else []

    def _hear_first(self, event: Event) -> None:
        self._arrive()
        for sink, pump in zip(self._sinks, self._pumps, strict=False):
            if sink.events:
                pump.hear(event)

    def _arrive(self) -> None:
        """Open the sinks, in a forked child that begins to fetch; what fails is logged."""
        if self._closed or self._arrived_pid == os.getpid():
            return
        self._arrived_pid = os.getpid()
        if self._pid != self._arrived_pid:
            self._pid = self._arrived_pid
            for stop in self._stops:
                stop()
            self._stops = []
            try:
                self._begin(first=False)
            except Exception as error:  # noqa: BLE001  see receive
                _refused(error)
        _close_with_worker(self)


def _can_be_pickled(sink: Sink) -> bool:
    from multiprocessing.reduction import ForkingPickler  # most programs spawn nothing

    try:
        ForkingPickler.dumps(sink)
    except Exception as error:  # noqa: BLE001  see receive
        _LOG.warning(
            "%s records nothing in processes that are spawned, because it cannot be pickled (%s): use functions and "
            "classes of a module for it, no lambda", type(sink).__name__, type(error).__name__,
        )  # fmt: skip
        return False
    return True


def has(sink: Sink) -> bool:
    """Say whether an equal sink is open in this process, or was in the one that it was forked from."""
    return any(sink in each._sinks for each in _open.values())  # noqa: SLF001  the other half of this file


def receive(name: str, sinks: tuple[Sink, ...], *, first: bool = False) -> None:
    """Open sinks in a process that was spawned, unless it has them; what fails is logged."""
    if name in _open or not sinks:
        return
    try:
        Subscription(name, sinks, first=first)
    except Exception as error:  # noqa: BLE001  a broken sink must not break storage (trap 14)
        _refused(error)


def _refused(error: Exception) -> None:
    text = error if isinstance(error, OSError) else named(error)
    _LOG.warning("a sink could not be opened in process %d: %s", os.getpid(), text)


def _close_with_worker(subscription: Subscription) -> None:
    """Write what is left when a process of ``multiprocessing`` ends: it runs no ``atexit``, unless it was spawned.

    Called once it fetches: what is registered while such a process unpickles its work is forgotten before it begins.
    """
    from multiprocessing import parent_process, util

    if parent_process() is not None:
        util.Finalize(subscription, subscription.close, args=(_WORKER_S,), exitpriority=0)


def _forget() -> None:
    for subscription in _open.values():
        with suppress(Exception):
            subscription._forked()  # noqa: SLF001  the other half of this file


os.register_at_fork(after_in_child=_forget)
