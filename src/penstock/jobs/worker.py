"""Worker processes, forked from this one: each runs jobs as this process does, and sends the results back."""

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

from penstock.engine.node.member import processors
from penstock.errors import Bug, Cancelled, PenstockError, Transient
from penstock.events import end
from penstock.jobs.running import Tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from threading import Event

    from penstock.jobs.steps import Task
    from penstock.source import Source

__all__ = ["Worker", "suitable"]

J = TypeVar("J")
R = TypeVar("R")

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
    if sys.platform != "linux" or not all(each.forks for each in sources):
        return 1
    return min(_MOST, processors()) if processes is None else processes


class Worker(Generic[J, R]):
    """Worker process as seen by its parent; used by one thread.

    The worker ends when its parent leaves it or has ended, and then cancels its requests, as its parent does.
    Only the parent handles Ctrl-C.

    Attributes:
        held: Number of its jobs.

    """

    def __init__(self, work: Callable[[J], Task[R]], stop: Event, others: Iterable[Worker[Any, Any]]) -> None:
        """Fork the worker; ``others`` are the existing workers. Raises ``OSError`` if no process can be forked."""
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
        """Add a job that takes ``size_bytes``; the next ``send`` sends it."""
        self._count += 1
        self.held += 1
        self._jobs[self._count] = job, size_bytes
        self._unsent.append((self._count, job))

    def send(self) -> None:
        """Send the added jobs."""
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
            found = [(number, _lost(status)) for number in self._jobs]
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
            self._status = _waited(self._pid)
            self._incoming.close()
            self._pipe.close()
        return self._status


def _waited(pid: int) -> int:
    """Wait for a process to exit and return its exit code; kill it after 10 s."""
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
