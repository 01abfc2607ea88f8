"""Tasks under way: one thread sends what they ask of stores, a few more run what blocks."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from copy import copy
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.errors import Bug, Cancelled, PenstockError
from penstock.events import operation
from penstock.waiting import LOOK_S, Inbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from threading import Event

    from penstock.bulk.tasks.steps import Step, Task
    from penstock.events import Scope
    from penstock.source import Calls, Source
    from penstock.waiting import Item

__all__ = ["Tasks"]

J = TypeVar("J")
R = TypeVar("R")

_THREADS = 32  # for what blocks
_BATCH = 16  # prepared requests that do not wait for more: one wake-up of the engine for several
_GRACE_S = 3.0  # for what is under way to notice; a store that answers takes milliseconds


class Tasks(Generic[J, R]):
    """Tasks under way, on one thread. Once ``stop`` is set nothing that blocks is begun."""

    def __init__(self, stop: Event) -> None:
        """Begin with none."""
        self._stop = stop
        self._inbox = _Ended()
        self._threads = _Threads(self._inbox, stop)
        self._stores: dict[Source, _Store] = {}
        self._prepared = 0  # requests of all stores that were not sent yet
        self._waiting: dict[Item, tuple[J, Task[R], Step[Any]]] = {}  # by what a task waits for
        self._results: deque[tuple[J, R | PenstockError]] = deque()

    def start(self, job: J, task: Task[R]) -> None:
        """Begin a task; what it asks for first is sent with what others ask for."""
        self._go_on(job, task, None, None)
        if self._prepared >= _BATCH:
            self._send()

    def follow(self, job: J, receive: Callable[[], R]) -> None:
        """Have ``ended`` yield ``job`` with all that ``receive``, which blocks, returns, up to its first error.

        It is called on a thread of its own, again and again, and has to fail at the end: ``close`` does not end it.
        """

        def listen() -> None:
            news: _News[J, R]
            while True:
                try:
                    news = _News(job, receive())
                except PenstockError as error:
                    news = _News(job, error)
                except Exception as error:  # noqa: BLE001  who waits for it must hear of its end
                    news = _News(job, _bug(error))
                self._inbox.finished(news)
                if isinstance(news.result, PenstockError):
                    return

        Thread(target=listen, daemon=True).start()

    def ended(self) -> Iterator[tuple[J, R | PenstockError]]:
        """Go on with all tasks until one or more have ended, which it yields."""
        while not self._results:
            self._send()
            if self._results:  # it could not be sent
                break
            for item in self._taken():
                if isinstance(item, _News):
                    self._results.append((item.job, item.result))
                    continue
                job, task, step = self._waiting.pop(item)
                self._threads.under_way -= step.source is None
                self._go_on(job, task, *_outcome(item, step))
        while self._results:
            yield self._results.popleft()

    def _taken(self) -> list[Item]:
        """Wait until something has ended, and return all that has; what takes long is logged meanwhile."""
        while not (items := self._inbox.taken(LOOK_S)):
            for item in self._waiting:
                item.look()
        return items

    def close(self, error: BaseException | None = None) -> None:
        """Cancel what is under way, and wait a while until it has stopped."""
        self._stop.set()
        for store in self._stores.values():
            with suppress(PenstockError):  # an engine that is gone has called them off
                store.calls.call_off(item for item, (*_, step) in self._waiting.items() if step.source is store.source)
        unsent = {item for store in self._stores.values() for item in store.prepared}
        awaited = {item for item in self._waiting if item not in unsent and not item.complete}
        until = monotonic() + _GRACE_S
        while awaited and (left_s := until - monotonic()) > 0:
            awaited.difference_update(self._inbox.taken(left_s))
        for _, task, _ in self._waiting.values():
            task.close()
        self._threads.end()
        for store in self._stores.values():
            store.scope.end(error)

    def _go_on(self, job: J, task: Task[R], result: object, error: PenstockError | None) -> None:
        """Hand a task what it waited for, up to the next thing that it has to wait for."""
        while True:
            try:
                step = task.send(result) if error is None else task.throw(error)
            except StopIteration as end:
                self._results.append((job, end.value))
                return
            except PenstockError as failure:
                self._results.append((job, failure))
                return
            except Exception as failure:  # noqa: BLE001  the caller's to hear, whatever it is
                self._results.append((job, _bug(failure)))
                return
            try:
                item = self._begun(step)
            except PenstockError as refusal:
                result, error = None, refusal
                continue
            if not item.complete or step.source is None:
                self._waiting[item] = job, task, step
                return
            result, error = _outcome(item, step)  # it was in a cache

    def _begun(self, step: Step[Any]) -> Item:
        if step.source is None:
            return self._threads.call(step.begin)
        store = self._stores.get(step.source)
        if store is None:
            store = self._stores[step.source] = _Store(step.source, self._inbox)
        item: Item = step.begin(store.calls)
        if not item.complete:
            store.prepared.append(item)
            self._prepared += 1
        return item

    def _send(self) -> None:
        """Send what is prepared; tasks whose requests cannot be sent (for credentials, say) are told so."""
        for store in [*self._stores.values()]:
            while store.prepared:
                items, store.prepared = store.prepared, []
                self._prepared -= len(items)
                try:
                    store.calls.send()
                except PenstockError as error:
                    for item in items:
                        job, task, _ = self._waiting.pop(item)
                        self._go_on(job, task, None, copy(error))


class _Store:
    """A store that tasks ask: the requests that were not sent yet, and the operation that all belong to."""

    __slots__ = ("calls", "prepared", "scope", "source")

    def __init__(self, source: Source, inbox: Inbox) -> None:
        self.source = source
        self.scope: Scope = operation("bulk", source.url, "")
        self.calls: Calls = source.calls(inbox, self.scope)
        self.prepared: list[Item] = []


class _Ended(Inbox):
    """Collects what has ended, on any thread, for the one thread that waits."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        super().__init__()
        self._items: deque[Item] = deque()

    def finished(self, item: Item) -> None:
        """Take note that ``item`` is complete."""
        self._items.append(item)
        self._wakeup.set()

    def taken(self, limit_s: float) -> list[Item]:
        """Return all that has ended and was not taken before; wait for it, at most ``limit_s``."""
        while not self._items and self._wakeup.wait(limit_s):
            pass  # it was set for what has been taken, or something is here now
        return [self._items.popleft() for _ in range(len(self._items))]


class _News(Generic[J, R]):
    """What was received for a job."""

    __slots__ = ("complete", "job", "result")

    def __init__(self, job: J, result: R | PenstockError) -> None:
        self.job, self.result, self.complete = job, result, True

    def look(self) -> None:
        """Say nothing: nothing waits for this one."""


class _Call:
    """A function that is called on a thread."""

    __slots__ = ("_error", "_function", "_value", "complete")

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self._value: object = None
        self._error: PenstockError | None = None
        self.complete = False

    def look(self) -> None:
        """Say nothing: what it asks of a store is looked at where it waits."""

    def run(self, stop: Event) -> None:
        """Call it, unless it is too late."""
        try:
            if stop.is_set():
                raise Cancelled("called off")
            self._value = self._function()
        except PenstockError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001  the caller's to hear, whatever it is
            self._error = _bug(error)
        self.complete = True

    def result(self) -> object:
        """Return what it returned, or raise what went wrong."""
        if self._error is not None:
            raise self._error
        return self._value


class _Threads:
    """Threads for what blocks, as they are needed. Daemons: a store that is gone must not keep the process alive.

    Attributes:
        under_way: Calls whose end was not taken yet; who takes it counts down.

    """

    def __init__(self, inbox: Inbox, stop: Event) -> None:
        self.under_way = 0
        self._inbox = inbox
        self._stop = stop
        self._todo: SimpleQueue[_Call | None] = SimpleQueue()
        self._workers = 0

    def call(self, function: Callable[[], object]) -> _Call:
        """Have a function called; the inbox is told of its end."""
        call = _Call(function)
        self._todo.put(call)
        self.under_way += 1
        if self._workers < min(_THREADS, self.under_way):
            Thread(target=self._work, daemon=True).start()
            self._workers += 1
        return call

    def end(self) -> None:
        """Have the threads end, once they are done."""
        for _ in range(self._workers):
            self._todo.put(None)

    def _work(self) -> None:
        for call in iter(self._todo.get, None):
            call.run(self._stop)
            self._inbox.finished(call)


def _outcome(item: Item, step: Step[Any]) -> tuple[object, PenstockError | None]:
    try:
        return step.take(item), None
    except PenstockError as error:
        return None, error


def _bug(error: Exception) -> Bug:
    bug = Bug(f"unexpected {type(error).__name__}: {error}")
    bug.__cause__ = error
    return bug
