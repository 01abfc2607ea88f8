"""Worker processes: forked of this one, each carries jobs out as this one does, and tells it what came of them."""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
import warnings
from contextlib import suppress
from functools import partial
from pickle import UnpicklingError, dumps, load
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, NoReturn, TypeVar

from penstock.bulk.tasks.running import Tasks
from penstock.errors import Bug, Cancelled, PenstockError, Transient
from penstock.events import end
from penstock.node.processors import processors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from threading import Event

    from penstock.bulk.tasks.steps import Task
    from penstock.source import Source

__all__ = ["Worker", "suitable"]

J = TypeVar("J")
R = TypeVar("R")

_MOST = 4  # processes with this one: a store answers 256 requests at once from each
_GRACE_S = 10.0  # for one to cancel what is under way, which takes 3 s at most
_NEWS = 0  # the number under which a worker hears of jobs; jobs have others


def suitable(processes: int | None, *sources: Source) -> int:
    """Return how many of ``processes``, this one among them, can work on these stores.

    By default they are as many as processors, but no more than 4. This one works alone where a fork is no copy that can
    be relied on (macOS), and on stores that forks do not share.
    """
    if sys.platform != "linux" or not all(each.forks for each in sources):
        return 1
    return min(_MOST, processors()) if processes is None else processes


class Worker(Generic[J, R]):
    """A worker, as its parent sees it; one thread uses it.

    It ends when its parent leaves it or is gone, and cancels its requests then, as its parent does.
    Ctrl-C is its parent's to hear.

    Attributes:
        held: How many jobs it has.

    """

    def __init__(self, work: Callable[[J], Task[R]], stop: Event, others: Iterable[Worker[Any, Any]]) -> None:
        """Fork it. ``others`` are this process's other workers. Raises ``OSError`` where there can be no more."""
        self.held = 0
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
        """Give it a job that takes ``size_bytes``; it goes with the next ``send``."""
        self._count += 1
        self.held += 1
        self._jobs[self._count] = job, size_bytes
        self._unsent.append((self._count, job))

    def send(self) -> None:
        """Send what it was given."""
        if self._unsent:
            unsent, self._unsent = self._unsent, []
            _send(self._pipe, unsent)

    def receive(self) -> list[tuple[int, R | PenstockError]]:
        """Wait for what comes of jobs, for ``results``, on a thread of its own; ``Cancelled`` at its end."""
        found: list[tuple[int, R | PenstockError]] = _receive(self._incoming)
        return found

    def results(self, found: list[tuple[int, R | PenstockError]] | PenstockError) -> Iterator[tuple[J, int, Any]]:
        """Yield jobs, the bytes that each takes, and what came of it; where there is an error, it failed with all."""
        if isinstance(found, PenstockError):
            self.leave()
            status = self.end()
            found = [(number, _lost(status)) for number in self._jobs]
        self.held -= len(found)
        for number, result in found:
            yield *self._jobs.pop(number), result

    def disown(self) -> None:
        """Let go of it, in a fork of its parent: it could not hear that the parent is gone."""
        os.close(self._pipe.detach())

    def leave(self) -> None:
        """Have it end; returns at once."""
        self._unsent = []
        with suppress(OSError):  # it has
            self._pipe.shutdown(socket.SHUT_WR)

    def end(self) -> int:
        """Wait until it has ended, as it was told to; return its status as ``os.waitstatus_to_exitcode`` does."""
        if self._status is None:
            self._status = _waited(self._pid)
            self._incoming.close()
            self._pipe.close()
        return self._status


def _waited(pid: int) -> int:
    """Return the status of a process that is about to end, and is killed where it does not."""
    until, pause_s = monotonic() + _GRACE_S, 0.001
    while not (found := os.waitpid(pid, os.WNOHANG))[0]:
        if monotonic() > until:
            os.kill(pid, signal.SIGKILL)
        sleep(pause_s)
        pause_s = min(2 * pause_s, 0.1)
    return os.waitstatus_to_exitcode(found[1])


def _lost(status: int) -> PenstockError:
    if status < 0:
        name = signal.Signals(-status).name
        return Transient(f"the process that was at it was killed ({name}; memory may be short): repeat the command")
    return Bug(f"the process that was at it ended with status {status}")


def _fork(live: Callable[[], None]) -> int:
    """Fork a process that does this alone, and nothing of what this one is at; return its number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12's: what our other threads hold is made anew
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
        end()  # what listens here writes the rest; nothing else that the parent has to do at its end is done
        status = 0
    except BaseException:  # noqa: BLE001  it must not go on as its parent
        traceback.print_exc()
    finally:
        os._exit(status)


def _live(
    pipe: socket.socket, work: Callable[[Any], Task[Any]], stop: Event, workers: Iterable[Worker[Any, Any]]
) -> None:
    """Carry out what comes through ``pipe``, until its other end closes; ``workers`` are the parent's."""
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
    with suppress(ConnectionError):  # who would read it has ended, which is heard of elsewhere
        pipe.sendall(dumps(news))


def _receive(incoming: BinaryIO) -> Any:  # noqa: ANN401  what the other end sent
    try:
        return load(incoming)  # noqa: S301  from a process forked of this one, or its parent
    except (EOFError, OSError, UnpicklingError) as error:
        raise Cancelled("the other process has ended") from error
