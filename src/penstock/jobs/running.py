"""Running tasks: one thread sends their requests to stores, a few more run blocking calls."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from copy import copy
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.engine.waiting import LOOK_S, Inbox
from penstock.errors import Bug, Cancelled, PenstockError
from penstock.events import operation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from threading import Event

    from penstock.engine.waiting import Item
    from penstock.events import Scope
    from penstock.jobs.steps import Step, Task
    from penstock.source import Calls, Source

__all__ = ["Tasks"]

J = TypeVar("J")
R = TypeVar("R")

_THREADS = 32  # for blocking calls
# Prepared requests that are sent without waiting for more: one wake-up of the engine serves several.
_BATCH = 16
# Time for cancelled requests and calls to stop; a store that answers takes milliseconds.
_GRACE_S = 3.0


class Tasks(Generic[J, R]):
    """Running tasks of one thread. Once ``stop`` is set, no blocking call is started."""

    def __init__(self, stop: Event) -> None:
        """Start without tasks."""
        self._stop = stop
        self._inbox = _Ended()
        self._threads = _Threads(self._inbox, stop)
        self._stores: dict[Source, _Store] = {}
        self._prepared = 0  # unsent requests of all stores
        self._waiting: dict[Item, tuple[J, Task[R], Step[Any]]] = {}  # by the item that a task waits for
        self._results: deque[tuple[J, R | PenstockError]] = deque()

    def start(self, job: J, task: Task[R]) -> None:
        """Start a task; its first request is sent together with requests of other tasks."""
        self._go_on(job, task, None, None)
        if self._prepared >= _BATCH:
            self._send()

    def follow(self, job: J, receive: Callable[[], R]) -> None:
        """Make ``ended`` yield ``job`` with each result of ``receive``, up to its first error.

        ``receive`` blocks; a separate thread calls it repeatedly. It must fail in the end, because ``close`` does not
        stop it.
        """

        def listen() -> None:
            news: _News[J, R]
            while True:
                try:
                    news = _News(job, receive())
                except PenstockError as error:
                    news = _News(job, error)
                except Exception as error:  # noqa: BLE001  the waiting thread must receive the end
                    news = _News(job, _bug(error))
                self._inbox.finished(news)
                if isinstance(news.result, PenstockError):
                    return

        Thread(target=listen, daemon=True).start()

    def ended(self) -> Iterator[tuple[J, R | PenstockError]]:
        """Run all tasks until one or more end, and yield those."""
        while not self._results:
            self._send()
            if self._results:  # a request could not be sent
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
        """Wait until an item completes, and return all completed ones; slow items are logged meanwhile."""
        while not (items := self._inbox.taken(LOOK_S)):
            for item in self._waiting:
                item.look()
        return items

    def close(self, error: BaseException | None = None) -> None:
        """Cancel all tasks, and wait up to 3 s for their requests and calls to stop."""
        self._stop.set()
        for store in self._stores.values():
            # An engine that no longer exists has already cancelled them.
            with suppress(PenstockError):
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
        """Resume a task with a result or an error, up to the next step that it has to wait for."""
        while True:
            try:
                step = task.send(result) if error is None else task.throw(error)
            except StopIteration as end:
                self._results.append((job, end.value))
                return
            except PenstockError as failure:
                self._results.append((job, failure))
                return
            except Exception as failure:  # noqa: BLE001  the caller receives any error
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
            result, error = _outcome(item, step)  # served from a cache

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
        """Send prepared requests; tasks whose requests cannot be sent (without credentials, say) receive the error."""
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
    """Store that tasks use: its unsent requests, and the operation that all its requests belong to."""

    __slots__ = ("calls", "prepared", "scope", "source")

    def __init__(self, source: Source, inbox: Inbox) -> None:
        self.source = source
        self.scope: Scope = operation("bulk", source.url, "")
        self.calls: Calls = source.calls(inbox, self.scope)
        self.prepared: list[Item] = []


class _Ended(Inbox):
    """Inbox of items that complete on any thread, for the one thread that waits."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        super().__init__()
        self._items: deque[Item] = deque()

    def finished(self, item: Item) -> None:
        """Record that ``item`` is complete."""
        self._items.append(item)
        self._wakeup.set()

    def taken(self, limit_s: float) -> list[Item]:
        """Return all completed items not taken before; wait for one at most ``limit_s`` seconds."""
        while not self._items and self._wakeup.wait(limit_s):
            # The wake-up was for items that are already taken, or a new item is here.
            pass
        return [self._items.popleft() for _ in range(len(self._items))]


class _News(Generic[J, R]):
    """Result that was received for a job."""

    __slots__ = ("complete", "job", "result")

    def __init__(self, job: J, result: R | PenstockError) -> None:
        self.job, self.result, self.complete = job, result, True

    def look(self) -> None:
        """Log nothing, because no task waits for this item."""


class _Call:
    """Function call on a separate thread."""

    __slots__ = ("_error", "_function", "_value", "complete")

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self._value: object = None
        self._error: PenstockError | None = None
        self.complete = False

    def look(self) -> None:
        """Log nothing, because requests of the function are logged where it waits for them."""

    def run(self, stop: Event) -> None:
        """Call the function, unless ``stop`` is set."""
        try:
            if stop.is_set():
                raise Cancelled("called off")
            self._value = self._function()
        except PenstockError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001  the caller receives any error
            self._error = _bug(error)
        self.complete = True

    def result(self) -> object:
        """Return the result of the function, or raise its error."""
        if self._error is not None:
            raise self._error
        return self._value


class _Threads:
    """Threads for blocking calls, started on demand. Daemons: an unreachable store must not keep the process alive.

    Attributes:
        under_way: Number of calls not taken from the inbox yet; the taker decrements it.

    """

    def __init__(self, inbox: Inbox, stop: Event) -> None:
        self.under_way = 0
        self._inbox = inbox
        self._stop = stop
        self._todo: SimpleQueue[_Call | None] = SimpleQueue()
        self._workers = 0

    def call(self, function: Callable[[], object]) -> _Call:
        """Call a function on a thread; the inbox receives the completed call."""
        call = _Call(function)
        self._todo.put(call)
        self.under_way += 1
        if self._workers < min(_THREADS, self.under_way):
            Thread(target=self._work, daemon=True).start()
            self._workers += 1
        return call

    def end(self) -> None:
        """Stop the threads once they have done all calls."""
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
