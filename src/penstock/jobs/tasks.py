"""Concurrent execution of many jobs in bounded memory: in this process and, for many jobs, also in workers.

The work on one object is a coroutine, without an event loop, that awaits steps: verbs of a store (``head``, ``read``,
``put``, ``copy``, ``delete``) and blocking functions (``run_blocking``).

``Tasks`` runs coroutines on one thread, which sends their requests to stores; a few more threads run blocking calls.
``Worker`` is a process, forked from this one, that runs jobs in the same way and sends the results back.
``run_jobs`` deals jobs out to both.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
import warnings
from collections import deque
from contextlib import suppress
from copy import copy as copy_shallow
from functools import partial
from operator import attrgetter, methodcaller
from pickle import UnpicklingError, dumps, load
from queue import SimpleQueue
from sys import maxsize
from threading import Event, Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, NoReturn, ParamSpec, TypeVar

from penstock.engine.budget import Budget
from penstock.engine.contracts.driver import Attributes
from penstock.engine.node.member import processors
from penstock.engine.waiting import LOOK_S, Awaited, Inbox
from penstock.errors import Bug, Cancelled, PenstockError, Transient
from penstock.events import Committed, Scope, emit, end, listening, operation
from penstock.values import ObjectMeta, Span, whole

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator, Mapping

    from penstock.source import Batch, Source

    Task = Coroutine["TaskStep[Any]", Any, "T"]

J = TypeVar("J")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_RESULT: Callable[[Any], Any] = methodcaller("result")


class TaskStep(Generic[T]):
    """Step of a task; awaiting it returns its result or raises its error.

    ``begin`` prepares the request to ``source`` and returns it, or calls a function if ``source`` is None; ``take``
    returns the result of the completed request or call.
    """

    __slots__ = ("begin", "source", "take")

    def __init__(self, source: Source | None, begin: Callable[..., Any], take: Callable[[Any], T]) -> None:
        self.source = source
        self.begin = begin
        self.take = take

    def __await__(self) -> Generator[TaskStep[T], T, T]:
        return (yield self)


def head(source: Source, key: str, etag: str = "", *, sums: bool = False) -> TaskStep[ObjectMeta]:
    """Describe an object, or the version ``etag``, with ``sums`` also its checksum if the store reports one."""
    return TaskStep(source, lambda calls: calls.head_summed(key) if sums else calls.head(key, etag), _RESULT)


def read(source: Source, span: Span) -> TaskStep[bytes]:
    """Read and verify a span: one request."""
    return TaskStep(source, lambda calls: calls.read(span), methodcaller("take"))


def delete(source: Source, key: str) -> TaskStep[None]:
    """Delete an object: one request; a missing object is not an error."""
    return TaskStep(source, lambda calls: calls.delete(key), _RESULT)


def copy(source: Source, meta: ObjectMeta, to: str) -> TaskStep[str]:
    """Copy an object within its bucket: one request, which some stores do not support (``Unsupported``)."""
    return TaskStep(source, lambda calls: calls.copy(meta, to), _RESULT)


async def put(source: Source, key: str, data: bytes, *, metadata: Mapping[str, str], content_type: str) -> str:
    """Write an object as ``Source.put`` does: one request; returns its ETag."""
    attributes = Attributes(content_type or source.options.write.content_type, metadata)
    etag: str = await TaskStep(source, lambda calls: calls.put(key, data, attributes), _RESULT)
    if listening():
        emit(Committed(source.url(key), len(data), etag))
    return etag


def run_blocking(function: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> Awaitable[T]:
    return TaskStep(None, partial(function, *args, **options), _RESULT)


_THREADS = 32  # for blocking calls
# Prepared requests that are sent without waiting for more: one wake-up of the engine serves several.
_BATCH = 16
# Time for cancelled requests and calls to stop; a store that answers takes milliseconds.
_CANCEL_S = 3.0


class Tasks(Generic[J, R]):
    """Running tasks of one thread. Once ``stop`` is set, no blocking call is started."""

    def __init__(self, stop: Event) -> None:
        self._stop = stop
        self._inbox = _Ended()
        self._threads = _Threads(self._inbox, stop)
        self._stores: dict[Source, _TaskStore] = {}
        self._prepared = 0  # unsent requests of all stores
        self._waiting: dict[Awaited, tuple[J, Task[R], TaskStep[Any]]] = {}  # by the item that a task waits for
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

    def _taken(self) -> list[Awaited]:
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
        until = monotonic() + _CANCEL_S
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

    def _begun(self, step: TaskStep[Any]) -> Awaited:
        if step.source is None:
            return self._threads.call(step.begin)
        store = self._stores.get(step.source)
        if store is None:
            store = self._stores[step.source] = _TaskStore(step.source, self._inbox)
        item: Awaited = step.begin(store.calls)
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
                        self._go_on(job, task, None, copy_shallow(error))


class _TaskStore:
    """Store that tasks use: its unsent requests, and the operation that all its requests belong to."""

    __slots__ = ("calls", "prepared", "scope", "source")

    def __init__(self, source: Source, inbox: Inbox) -> None:
        self.source = source
        self.scope: Scope = operation("bulk", source.url, "")
        self.calls: Batch = source.batch(inbox, self.scope)
        self.prepared: list[Awaited] = []


class _Ended(Inbox):
    """Inbox of items that complete on any thread, for the one thread that waits."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        super().__init__()
        self._items: deque[Awaited] = deque()

    def finished(self, item: Awaited) -> None:
        self._items.append(item)
        self._wakeup.set()

    def taken(self, limit_s: float) -> list[Awaited]:
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
        try:
            if stop.is_set():
                raise Cancelled("cancelled")
            self._value = self._function()
        except PenstockError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001  the caller receives any error
            self._error = _bug(error)
        self.complete = True

    def result(self) -> object:
        if self._error is not None:
            raise self._error
        return self._value


class _Threads:
    """Threads for blocking calls, started on demand. Daemons: an unreachable store must not keep the process alive."""

    def __init__(self, inbox: Inbox, stop: Event) -> None:
        self.under_way = 0  # calls not taken from the inbox yet; the taker decrements it
        self._inbox = inbox
        self._stop = stop
        self._todo: SimpleQueue[_Call | None] = SimpleQueue()
        self._workers = 0

    def call(self, function: Callable[[], object]) -> _Call:
        call = _Call(function)
        self._todo.put(call)
        self.under_way += 1
        if self._workers < min(_THREADS, self.under_way):
            Thread(target=self._work, daemon=True).start()
            self._workers += 1
        return call

    def end(self) -> None:
        for _ in range(self._workers):
            self._todo.put(None)

    def _work(self) -> None:
        for call in iter(self._todo.get, None):
            call.run(self._stop)
            self._inbox.finished(call)


def _outcome(item: Awaited, step: TaskStep[Any]) -> tuple[object, PenstockError | None]:
    try:
        return step.take(item), None
    except PenstockError as error:
        return None, error


def _bug(error: Exception) -> Bug:
    bug = Bug(f"unexpected {type(error).__name__}: {error}")
    bug.__cause__ = error
    return bug


# Maximum number of processes, including this one: a store answers 256 requests at once from each.
_MOST = 4
# Time for a worker to cancel its requests, which takes at most 3 s.
_GRACE_S = 10.0
# Number under which a worker receives jobs; jobs have other numbers.
_NEWS = 0


def suitable(processes: int | None, *sources: Source) -> int:
    """Return how many of ``processes``, including this one, can work on these stores.

    Default: as many as processors, at most 4. This process works alone if a fork is not a reliable copy (macOS; any
    system except Linux), and on stores that forks cannot share.
    """
    if processes is not None:
        processes = whole(processes, "processes", 1)
    if sys.platform != "linux" or not all(each.forks for each in sources):
        return 1
    return min(_MOST, processors()) if processes is None else processes


class Worker(Generic[J, R]):
    """Worker process as seen by its parent; used by one thread.

    The worker ends when its parent leaves it or has ended, and then cancels its requests, as its parent does. Only the
    parent handles Ctrl-C.
    """

    def __init__(self, work: Callable[[J], Task[R]], stop: Event, others: Iterable[Worker[Any, Any]]) -> None:
        """Fork the worker; ``others`` are the existing workers. Raises ``OSError`` if no process can be forked."""
        self.held = 0  # number of its jobs
        self._jobs: dict[int, tuple[J, int]] = {}
        self._count = _NEWS
        self._unsent: list[tuple[int, J]] = []
        self._pipe, theirs = socket.socketpair()
        try:
            with theirs:
                self._pid = _fork(partial(_live, theirs, work, stop, [self, *others]))
        except OSError:
            self._pipe.close()
            raise
        self._status: int | None = None
        self._incoming = self._pipe.makefile("rb")

    def start(self, job: J, size_bytes: int) -> None:
        """Add a job that takes ``size_bytes``; the next ``send`` sends it."""
        self._count += 1
        self.held += 1
        self._jobs[self._count] = job, size_bytes
        self._unsent.append((self._count, job))

    def send(self) -> None:
        if self._unsent:
            unsent, self._unsent = self._unsent, []
            _send(self._pipe, unsent)

    def receive(self) -> list[tuple[int, R | PenstockError]]:
        """Wait for job results, to pass to ``results``; call on a separate thread. Raises ``Cancelled`` at the end."""
        found: list[tuple[int, R | PenstockError]] = _receive(self._incoming)
        return found

    def results(self, found: list[tuple[int, R | PenstockError]] | PenstockError) -> Iterator[tuple[J, int, Any]]:
        """Yield each job, the bytes it takes and its result; an error as ``found`` fails all jobs of the worker."""
        if isinstance(found, PenstockError):
            self.leave()
            status = self.end()
            found = [(number, _make_exit_error(status)) for number in self._jobs]
        self.held -= len(found)
        for number, result in found:
            yield *self._jobs.pop(number), result

    def disown(self) -> None:
        """Close its pipe in a fork of the parent; otherwise the worker could not notice that the parent has ended."""
        os.close(self._pipe.detach())

    def leave(self) -> None:
        """Ask the worker to end, and return at once."""
        self._unsent = []
        with suppress(OSError):  # already ended
            self._pipe.shutdown(socket.SHUT_WR)

    def end(self) -> int:
        """Wait for the worker to exit; return its exit code as ``os.waitstatus_to_exitcode`` does."""
        if self._status is None:
            self._status = _await_exit(self._pid)
            self._incoming.close()
            self._pipe.close()
        return self._status


def _await_exit(pid: int) -> int:
    until, pause_s = monotonic() + _GRACE_S, 0.001
    while not (found := os.waitpid(pid, os.WNOHANG))[0]:
        if monotonic() > until:
            os.kill(pid, signal.SIGKILL)
        sleep(pause_s)
        pause_s = min(2 * pause_s, 0.1)
    return os.waitstatus_to_exitcode(found[1])


def _make_exit_error(status: int) -> PenstockError:
    if status < 0:
        name = signal.Signals(-status).name
        return Transient(f"the process that was at it was killed ({name}; memory may be short): repeat the command")
    return Bug(f"the process that was at it ended with status {status}")


def _fork(live: Callable[[], None]) -> int:
    """Fork a process that runs only ``live`` and none of this process's work; return its process id."""
    with warnings.catch_warnings():
        # Python 3.12 warns of forks with threads; state that our other threads hold is created anew in the fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            pid = os.fork()
            if not pid:
                _run(live, before)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def _run(live: Callable[[], None], mask: Iterable[int]) -> NoReturn:
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        live()
        # Event listeners write what they still hold; no other exit work of the parent is done.
        end()
        status = 0
    except BaseException:  # noqa: BLE001  the fork must not continue as its parent
        traceback.print_exc()
    finally:
        os._exit(status)


def _live(
    pipe: socket.socket, work: Callable[[Any], Task[Any]], stop: Event, workers: Iterable[Worker[Any, Any]]
) -> None:
    """Run the jobs that come through ``pipe`` until its other end closes; ``workers`` are the parent's workers."""
    for each in workers:
        each.disown()
    tasks = Tasks[int, Any](stop)
    tasks.follow(_NEWS, partial(_receive, pipe.makefile("rb")))
    while True:
        done = []
        for number, result in tasks.ended():
            if number:
                done.append((number, result))
            elif isinstance(result, PenstockError):
                tasks.close(result)
                return
            else:
                for each, job in result:
                    tasks.start(each, work(job))
        if done:
            _send(pipe, done)


def _send(pipe: socket.socket, news: list[tuple[int, Any]]) -> None:
    # If the reader has ended, that is noticed elsewhere.
    with suppress(ConnectionError):
        pipe.sendall(dumps(news))


def _receive(incoming: BinaryIO) -> Any:  # noqa: ANN401  any message of the other end
    try:
        return load(incoming)  # noqa: S301  from a process forked from this one, or from its parent
    except (EOFError, OSError, UnpicklingError) as error:
        raise Cancelled("the other process has ended") from error


# Initial and maximum number of tasks per process; an engine sends as many of their requests as it has connections.
_FIRST, _AT_ONCE = 64, 256
# Ended tasks per additional concurrent task: a full disk or a refusal shows before much was read in vain.
_GROWTH = 8
# Jobs to complete before processes are forked for more; a fork takes 10 ms.
_FEW = 256
# The cost of larger jobs is their bytes, which one process moves as fast as several.
_SMALL_BYTES = 1 << 20
# Jobs that one process gets in a row, so that one message carries several.
_IN_TURN = 16


def run_jobs(
    jobs: Iterable[J],
    work: Callable[[J], Task[R]],
    cost_bytes: Callable[[J], int],
    stop: Event,
    most_bytes: int = 384 << 20,
    processes: int = 1,
) -> Generator[tuple[J, R | PenstockError]]:
    """Yield each job and its result as jobs end; up to 64, later 256 at once, with ``most_bytes`` by ``cost_bytes``.

    A job that costs more runs alone.

    ``work(job)`` is a coroutine that awaits steps. The thread that consumes this generator also consumes ``jobs`` and
    runs the tasks. Leaving early, by an exception or ``close``, sets ``stop``, cancels requests, and waits up to 3 s
    for them and for blocking calls to stop.

    With ``processes`` above 1, workers are forked once this process has more small jobs than it can run at once. Each
    worker runs a share of the small jobs, as many at once as this process. Jobs and results are pickled, and ``work``
    must work after a fork.
    """
    pool = _Pool(work, cost_bytes, stop, Budget(most_bytes, maxsize), processes)
    try:
        for job in jobs:
            while not pool.took(job):
                yield from pool.ended()
        while pool.busy:
            yield from pool.ended()
    except BaseException as error:
        pool.close(error)
        raise
    pool.close()


class _Pool(Generic[J, R]):
    """This process and its workers."""

    def __init__(
        self, work: Callable[[J], Task[R]], cost_bytes: Callable[[J], int], stop: Event, budget: Budget, processes: int
    ) -> None:
        self._work, self._cost_bytes, self._stop, self._budget = work, cost_bytes, stop, budget
        self._tasks = Tasks[Any, Any](stop)
        self._own = _Own(self._tasks, work)
        self._workers: list[Worker[J, R]] = []
        self._missing = processes - 1  # workers that are still to be forked
        self._turn: _Own[J, R] | Worker[J, R] = self._own  # receiver of the next job
        self._left = 0  # jobs left in its turn
        self._count = 0
        self._most = _FIRST

    @property
    def busy(self) -> bool:
        return self._budget.items_held > 0

    def took(self, job: J) -> bool:
        """Start a job if there is room for it; return whether it was started."""
        size_bytes = self._cost_bytes(job)
        who = self._who(size_bytes) if self._workers else self._own
        if who.held >= self._most or not self._budget.admitted(size_bytes):
            return False
        self._left -= 1
        who.start(job, size_bytes)
        return True

    def _who(self, size_bytes: int) -> _Own[J, R] | Worker[J, R]:
        if size_bytes > _SMALL_BYTES:
            return self._own
        if self._left <= 0 or self._turn.held >= self._most:
            everybody: list[_Own[J, R] | Worker[J, R]] = [self._own, *self._workers]
            self._turn, self._left = min(everybody, key=attrgetter("held")), _IN_TURN
        return self._turn

    def ended(self) -> Iterator[tuple[J, R | PenstockError]]:
        if self._missing > 0 and self._count >= _FEW and self._own.held >= self._most:
            self._hire()
        for worker in self._workers:
            worker.send()
        for job, result in self._tasks.ended():
            if isinstance(job, Worker):
                yield from self._heard(job, result)
            else:
                self._own.held -= 1
                its, size_bytes = job
                yield self._end(its, size_bytes, result)

    def close(self, error: BaseException | None = None) -> None:
        """Cancel all running jobs, and wait a limited time for them to stop."""
        for worker in self._workers:
            worker.leave()
        self._tasks.close(error)
        for worker in self._workers:
            worker.end()

    def _hire(self) -> None:
        missing, self._missing = self._missing, 0
        # If no more processes can be forked, the existing ones do all the work.
        with suppress(OSError):
            for _ in range(missing):
                worker = Worker(self._work, self._stop, self._workers)
                self._workers.append(worker)
                self._tasks.follow(worker, worker.receive)

    def _heard(self, worker: Worker[J, R], found: Any) -> Iterator[tuple[J, R | PenstockError]]:  # noqa: ANN401
        if not isinstance(found, list):
            self._workers.remove(worker)
            self._left = 0
        for job, size_bytes, result in worker.results(found):
            yield self._end(job, size_bytes, result)

    def _end(self, job: J, size_bytes: int, result: R | PenstockError) -> tuple[J, R | PenstockError]:
        self._budget.release(size_bytes)
        self._count += 1
        if self._most < _AT_ONCE:
            self._most = _FIRST + self._count // _GROWTH
        return job, result


class _Own(Generic[J, R]):
    """Jobs that this process runs itself; ``held`` of them run."""

    __slots__ = ("_tasks", "_work", "held")

    def __init__(self, tasks: Tasks[Any, Any], work: Callable[[J], Task[R]]) -> None:
        self._tasks, self._work, self.held = tasks, work, 0

    def start(self, job: J, size_bytes: int) -> None:
        self.held += 1
        self._tasks.start((job, size_bytes), self._work(job))
