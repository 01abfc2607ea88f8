"""Coroutines for a source: the engine's thread runs the requests and notifies the caller's event loop.

Reads and stats cost one wake-up of the loop and need no thread; ``call`` runs all other functions on threads. The
coroutines may be awaited on any loop, on several loops in parallel, and after a fork on a new loop of the child. A
cancelled task cancels its requests.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from penstock.engine.waiting import LOOK_S, Inbox
from penstock.errors import PenstockError
from penstock.events import operation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.engine.contracts.fetching import Fetching, ReadOperation
    from penstock.engine.waiting import Awaited
    from penstock.source import Source, VerbOperation
    from penstock.values import ObjectMeta, Span

P = ParamSpec("P")
T = TypeVar("T")
W = TypeVar("W", bound="Awaited")

_THREADS = 32  # parallel calls of a process, each waiting for a request


async def read(source: Source, span: Span) -> bytes:
    return (await _reads(source, (span,)))[0].take()


async def read_version(source: Source, span: Span) -> tuple[bytes, str]:
    (found,) = await _reads(source, (span,))
    return found.take(), found.version


async def read_many(source: Source, spans: Sequence[Span]) -> list[bytes]:
    """Read spans in parallel and return their bytes, in order; when all have ended, raise the first error in order."""
    found = await read_each(source, spans)
    for each in found:
        if isinstance(each, PenstockError):
            raise each
    return cast("list[bytes]", found)


async def read_each(source: Source, spans: Sequence[Span]) -> list[bytes | PenstockError]:
    """Read spans in parallel and return the bytes or the error of each, in order: ``Changed`` for several versions."""
    reads = await _reads(source, spans)
    changed = source.find_changes(reads)
    return [each.error or changed.get(each.span.key) or each.take() for each in reads]


async def stat(source: Source, key: str) -> ObjectMeta:
    return (await _looks(source, (key,)))[0].result()


async def stat_each(source: Source, keys: Sequence[str]) -> list[ObjectMeta | PenstockError]:
    """Return the metadata or the error of each object, in order: one request each, in parallel."""
    return [each.error or each.result() for each in await _looks(source, keys)]


async def call(function: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> T:
    """Call a blocking function on one of this module's 32 threads.

    If the task is cancelled, a call that has begun still runs to its end, and its result is dropped.
    """
    work = partial(copy_context().run, function, *args, **options)
    return await asyncio.get_running_loop().run_in_executor(_pool.threads(), work)


async def _looks(source: Source, keys: Sequence[str]) -> list[VerbOperation[ObjectMeta]]:
    with operation("stat", source.url, keys[0] if len(keys) == 1 else ""):
        arrivals = _Arrivals(_loop())
        if source.waits():
            # Opens the engine and obtains credentials, so that nothing below has to wait.
            await call(_prepare_reads, source, (), arrivals)
        calls = source.batch(arrivals)
        heads = [calls.head(key) for key in keys]
        await arrivals.all(heads, calls.send, calls.call_off)
        return heads


async def _reads(source: Source, spans: Sequence[Span]) -> list[ReadOperation]:
    with operation("read", source.url, spans[0].key if len(spans) == 1 else ""):
        arrivals = _Arrivals(_loop())
        if source.waits(spans):
            fetching, reads = await call(_prepare_reads, source, spans, arrivals)
        else:
            fetching, reads = _prepare_reads(source, spans, arrivals)
        pending = [each for each in reads if not each.complete]
        await arrivals.all(pending, partial(fetching.send_reads, pending), fetching.cancel_reads)
        return reads


def _prepare_reads(source: Source, spans: Sequence[Span], arrivals: _Arrivals) -> tuple[Fetching, list[ReadOperation]]:
    fetching = source.fetching()
    return fetching, fetching.prepare_reads([(span, None) for span in spans], arrivals)


class _Loop:
    """An event loop with its waiting coroutines: one wake-up and one timer serve all of them."""

    __slots__ = ("_ended", "_looking", "_waiting", "_woken", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ended: deque[_Arrivals] = deque()
        self._woken = False
        self._waiting: dict[_Arrivals, Sequence[Awaited]] = {}
        self._looking = False

    def wake(self, arrivals: _Arrivals) -> None:
        """Make the loop resume a coroutine; may be called from any thread."""
        self._ended.append(arrivals)
        # Entries appended while the flag is set are resumed, too: _resume clears the flag before it reads the queue.
        if not self._woken:
            self._woken = True
            # The loop may have been closed meanwhile: then no coroutine waits.
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._resume)

    async def wait(self, arrivals: _Arrivals, items: Sequence[Awaited]) -> None:
        """Wait until all items have ended; slow items are logged, as when a thread waits for them."""
        self._waiting[arrivals] = items
        if not self._looking:
            self._looking = True
            self.loop.call_later(LOOK_S, self._look)
        try:
            await arrivals.future
        finally:
            del self._waiting[arrivals]

    def _resume(self) -> None:
        self._woken = False
        while self._ended:
            future = self._ended.popleft().future
            if not future.done():  # its task may have been cancelled
                future.set_result(None)

    def _look(self) -> None:
        for items in self._waiting.values():
            for item in items:
                item.look()
        self._looking = bool(self._waiting)
        if self._looking:
            self.loop.call_later(LOOK_S, self._look)


class _Arrivals(Inbox):
    """An inbox that wakes one coroutine, once, by ``future``, when all items that it waits for have ended."""

    __slots__ = ("_expected", "_loop", "_told", "future")

    def __init__(self, loop: _Loop) -> None:
        super().__init__()
        self._loop = loop
        # Counts in one atomic step: a transport may have several threads.
        self._told = count(1)
        self._expected = 0
        self.future = loop.loop.create_future()

    def finished(self, item: Awaited) -> None:
        """Count one completed item; called on the transport's thread."""
        if next(self._told) == self._expected:
            self._loop.wake(self)

    async def all(
        self, items: Sequence[W], send: Callable[[], object], call_off: Callable[[Sequence[W]], object]
    ) -> None:
        """Send items, and wait until all have ended; cancel them if that fails, or if the task is cancelled."""
        try:
            self._expected = len(items)
            if not items:
                self.future.set_result(None)
            send()
            await self._loop.wait(self, items)
        except BaseException:
            call_off(items)
            raise


def _loop() -> _Loop:
    """Return the ``_Loop`` of the running event loop: the same object until its thread runs a different loop."""
    running = asyncio.get_running_loop()
    here: _Loop | None = getattr(_threads, "loop", None)
    if here is None or here.loop is not running:
        here = _threads.loop = _Loop(running)
    return here


class _CallPool:
    """Threads for blocking calls; created when first needed, and again in a forked child."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None

    def threads(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="penstock-await")
        return self._threads

    def forget(self) -> None:
        """Drop the parent's threads, which do not exist in a forked child."""
        self._threads = None


_threads = threading.local()
_pool = _CallPool()
os.register_at_fork(after_in_child=_pool.forget)
