"""Carrier of processes of this machine: each does one part after the other, and one that dies is replaced.

They are spawned, for a fork would copy the locks of other threads. Each holds one end of a pipe: parts come through
it, and records go back. At the end of the pipe, because the parent was killed, the work of the process is ended, too.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections import deque
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import wait
from pickle import PicklingError
from queue import SimpleQueue
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.engine.node.member import processors
from penstock.errors import Bug, PenstockError, Unusable
from penstock.events import context, enter
from penstock.jobs.parts.attempts import PartAttempt
from penstock.jobs.parts.operation import Ended, JobPart, Means, Operation, done
from penstock.jobs.parts.records import Records

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from multiprocessing.connection import Connection

# Repeats of a part whose worker died.
_RETRIES = 2
# For an interrupted worker to end its requests, which takes at most 3 s.
_END_S = 5.0


class LocalProcesses:
    """Carrier: ``count`` processes; None: as many as processors."""

    def __init__(self, count: int | None) -> None:
        self._count = processors() if count is None else count

    def carried(self, operation: Operation, parts: Iterator[JobPart], means: Means) -> Generator[Ended]:
        again, coming = deque[PartAttempt](), map(PartAttempt, parts)
        with _ending_workers() as workers:
            attempt = next(coming, None)
            while attempt is not None or any(each.attempt for each in workers):
                idle = [each for each in workers if each.attempt is None]
                while attempt is not None and (idle or len(workers) < self._count):
                    if not idle:
                        workers.append(_PartWorker(operation, means.records))
                        idle.append(workers[-1])
                    idle.pop().give(attempt)
                    attempt = again.popleft() if again else next(coming, None)
                for worker in _wait_for_any(workers):
                    answer = worker.take()
                    if isinstance(answer, Ended):
                        yield answer
                    elif answer:
                        workers.remove(worker)
                        if (died := worker.attempt) is None:
                            continue
                        if (retried := died.again(_RETRIES)) is not None:
                            again.append(retried)
                        else:
                            yield died.set_aside(answer, means)
                if attempt is None and again:
                    attempt = again.popleft()


class _PartWorker:
    """Worker process as its parent sees it, with the attempt that it is at."""

    def __init__(self, operation: Operation, records: Records) -> None:
        spawn = get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self.attempt: PartAttempt | None = None
        self._ready = False
        where = records.url, records.run
        self.process = spawn.Process(target=_live, args=(theirs, operation, where, context()), name="penstock-part")
        # Ctrl-C reaches all processes of a terminal: the parent ends its workers.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process.start()
        except (AttributeError, TypeError, PicklingError) as error:
            raise refuse_unsendable(error) from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()

    def give(self, attempt: PartAttempt) -> None:
        self.attempt = attempt
        # If the worker has died, ``take`` finds out.
        with suppress(OSError):
            self._pipe.send((attempt.part, attempt.deaths > 0))

    @property
    def pipe(self) -> Connection[Any, Any]:
        return self._pipe

    def take(self) -> Ended | str:
        """Return a part that has ended, or how the process died; empty for its beginning. Raises what a part raised."""
        answer: Ended | PenstockError | str | None = None
        with suppress(EOFError, OSError):
            answer = self._pipe.recv()
        if answer is None:
            self.process.join()
            return self._cause_of_death()
        if isinstance(answer, PenstockError):
            raise answer
        if isinstance(answer, str):
            self._ready = True
        else:
            self.attempt = None
        return answer

    def _cause_of_death(self) -> str:
        status = self.process.exitcode or 0
        if status < 0:
            return f"killed by {signal.Signals(-status).name}"
        if not self._ready:
            raise Unusable(
                f"cannot start processes: one ended with status {status} (its error is above); processes import the "
                'script again: write what it does below if __name__ == "__main__":, or pass processes=1'
            )
        return f"it ended with status {status}"

    def leave(self) -> None:
        """Ask the process to end once it has done its part."""
        with suppress(OSError):
            self._pipe.send(None)

    def end(self, limit_s: float) -> None:
        self.process.join(max(0.0, limit_s))
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self._pipe.close()


def refuse_unsendable(error: Exception) -> Unusable:
    return Unusable(
        f"cannot send the work to other processes: {error}; define functions at the top of a module, or install "
        "cloudpickle, which sends their code"
    )


def _wait_for_any(workers: list[_PartWorker]) -> list[_PartWorker]:
    ready = {*wait([each.pipe for each in workers])}
    return [each for each in workers if each.pipe in ready]


@contextmanager
def _ending_workers() -> Iterator[list[_PartWorker]]:
    """Yield a list of workers; at the end none of them runs any more: after an error, their parts are cancelled."""
    workers: list[_PartWorker] = []
    try:
        yield workers
        for each in workers:
            each.leave()
    except BaseException:
        for each in workers:
            each.process.terminate()
        raise
    finally:
        until = monotonic() + _END_S
        for each in workers:
            each.end(until - monotonic())


def _live(pipe: Connection[Any, Any], operation: Operation, where: tuple[str, str], trace: bytes) -> None:
    """Do the parts that come through ``pipe`` in a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end_by_signal)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    enter(trace)
    todo = SimpleQueue[tuple[JobPart, bool] | None]()
    threading.Thread(target=_listen, args=(pipe, todo), daemon=True).start()
    means = Means(Records(where[0], operation.store, where[1]))
    pipe.send("")
    for part, retried in iter(todo.get, None):
        pipe.send(_answer(operation, part, means, retried=retried))


def _answer(operation: Operation, part: JobPart, means: Means, *, retried: bool) -> Ended | PenstockError:
    try:
        # The worker of an earlier attempt may have died after its record.
        if retried and (record := means.records.record(part.number)) is not None:
            return Ended(record, None)
        return done(operation, part, means)
    except PenstockError as error:
        return error
    except Exception as error:  # noqa: BLE001  the parent receives any error
        # Not all errors can be pickled.
        traceback.print_exc()
        return Bug(f"unexpected {type(error).__name__}: {error}")


def _listen(pipe: Connection[Any, Any], todo: SimpleQueue[tuple[JobPart, bool] | None]) -> None:
    with suppress(EOFError, OSError):
        while True:
            todo.put(given := pipe.recv())
            if given is None:
                return
    # The parent was killed: cancel the part as after Ctrl-C, and end in any case.
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
    sleep(_END_S)
    os._exit(1)


def _end_by_signal(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)
