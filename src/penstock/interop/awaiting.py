"""Coroutines around a source: requests go their way on the engine's thread, and the caller's event loop is told.

Reads and looks cost a wake-up of the loop and no thread; ``call`` has everything else carried out by threads. They may
be awaited on any loop, on several at once, and after a fork on a loop of the child's own. A task that is cancelled
calls its requests off.
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
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from penstock.events import operation
from penstock.waiting import LOOK_S, Inbox

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.errors import PenstockError
    from penstock.protocols.fetching import Fetching, PendingRead
    from penstock.source import Operation, Source
    from penstock.values import ObjectMeta, Span
    from penstock.waiting import Item

__all__ = ["call", "read", "read_each", "read_many", "stat", "stat_each"]

P = ParamSpec("P")
T = TypeVar("T")

_THREADS = 32  # calls at once in a process, each a request that is waited for


async def read(source: Source, span: Span) -> bytes:
    """Read one span as ``Source.read`` does."""
    return (await _reads(source, (span,)))[0].take()


async def read_many(source: Source, spans: Sequence[Span]) -> list[bytes]:
    """Read spans all at once; their bytes in order. The first error, in order, is raised, once all have ended."""
    return [each.take() for each in await _reads(source, spans)]


async def read_each(source: Source, spans: Sequence[Span]) -> list[bytes | PenstockError]:
    """Read spans all at once; the bytes of each, or why there are none, in order."""
    return [each.error or each.take() for each in await _reads(source, spans)]


async def stat(source: Source, key: str) -> ObjectMeta:
    """Describe one object as ``Source.head`` does: one request."""
    return (await _looks(source, (key,)))[0].result()


async def stat_each(source: Source, keys: Sequence[str]) -> list[ObjectMeta | PenstockError]:
    """Describe objects, one request each, all at once; the description of each, or why there is none, in order."""
    return [each.error or each.result() for each in await _looks(source, keys)]


async def call(function: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> T:
    """Call a function that blocks, on one of 32 threads of this module's.

    Where the task is cancelled a call that has begun goes on to its end; its result is dropped.
    """
    work = partial(copy_context().run, function, *args, **options)
    return await asyncio.get_running_loop().run_in_executor(_pool.threads(), work)


async def _looks(source: Source, keys: Sequence[str]) -> list[Operation[ObjectMeta]]:
    """Look at objects; all looks are complete, in order."""
    with operation("stat", source.url, keys[0] if len(keys) == 1 else ""):
        arrivals = _Arrivals(_loop())
        if source.waits():
            await call(_prepared, source, (), arrivals)  # engine and credentials are there afterwards
        calls = source.calls(arrivals)
        heads = [calls.head(key) for key in keys]
        try:
            arrivals.expect(len(keys))
            calls.send()
            await arrivals.all(heads)
        except BaseException:
            calls.call_off(heads)
            raise
        return heads


async def _reads(source: Source, spans: Sequence[Span]) -> list[PendingRead]:
    """Read spans all at once; all are complete, in order."""
    with operation("read", source.url, spans[0].key if len(spans) == 1 else ""):
        arrivals = _Arrivals(_loop())
        if source.waits(spans):
            fetching, reads = await call(_prepared, source, spans, arrivals)
        else:
            fetching, reads = _prepared(source, spans, arrivals)
        pending = [each for each in reads if not each.complete]
        try:
            arrivals.expect(len(pending))
            fetching.send_reads(pending)
            await arrivals.all(pending)
        except BaseException:
            fetching.cancel_reads(pending)
            raise
        return reads


def _prepared(source: Source, spans: Sequence[Span], arrivals: _Arrivals) -> tuple[Fetching, list[PendingRead]]:
    fetching = source.fetching()
    return fetching, fetching.prepare_reads([(span, None) for span in spans], arrivals)


class _Loop:
    """An event loop as coroutines wait on it: one wake-up and one timer serve all of them.

    Attributes:
        loop: The event loop.

    """

    __slots__ = ("_ended", "_looking", "_waiting", "_woken", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ended: deque[_Arrivals] = deque()
        self._woken = False
        self._waiting: dict[_Arrivals, Sequence[Item]] = {}
        self._looking = False

    def wake(self, arrivals: _Arrivals) -> None:
        """Have the loop resume a coroutine; on any thread."""
        self._ended.append(arrivals)
        if not self._woken:  # what is appended after this is set is resumed, too: the loop clears it first
            self._woken = True
            with suppress(RuntimeError):  # the loop was closed meanwhile: no coroutine waits
                self.loop.call_soon_threadsafe(self._resume)

    async def wait(self, arrivals: _Arrivals, items: Sequence[Item]) -> None:
        """Wait until all have ended; what takes long is logged, as threads that wait do it."""
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
    """Wakes one coroutine when all that it waits for has ended: once, however much that is.

    Attributes:
        future: Is done then.

    """

    __slots__ = ("_expected", "_loop", "_told", "future")

    def __init__(self, loop: _Loop) -> None:
        super().__init__()
        self._loop = loop
        self._told = count(1)  # counts in one step: a transport may have several threads
        self._expected = 0
        self.future = loop.loop.create_future()

    def expect(self, number: int) -> None:
        """Wake the coroutine when so many have ended; before they are sent."""
        self._expected = number
        if not number:
            self.future.set_result(None)

    def finished(self, item: Item) -> None:  # noqa: ARG002  the last one is as good as any
        """Take note, on the transport's thread, that one is complete."""
        if next(self._told) == self._expected:
            self._loop.wake(self)

    async def all(self, items: Sequence[Item]) -> None:
        """Wait until all have ended."""
        await self._loop.wait(self, items)


def _loop() -> _Loop:
    """Return the running event loop: the same object as long as its thread runs no other."""
    running = asyncio.get_running_loop()
    here: _Loop | None = getattr(_threads, "loop", None)
    if here is None or here.loop is not running:
        here = _threads.loop = _Loop(running)
    return here


class _Pool:
    """Threads for calls that block; made when first needed, and anew in a forked child."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None

    def threads(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="penstock-await")
        return self._threads

    def forget(self) -> None:
        """Leave the threads to the parent: they are not here."""
        self._threads = None


_threads = threading.local()
_pool = _Pool()
os.register_at_fork(after_in_child=_pool.forget)
