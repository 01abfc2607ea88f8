"""Saving while training continues: the state is copied, and a thread saves the copy."""

from __future__ import annotations

import atexit
import sys
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Self

from penstock.checkpoint.transfer.staging import Stage, staged_bytes
from penstock.errors import Unusable
from penstock.waiting import Inbox

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from penstock.checkpoint.run.arguments import Loader
    from penstock.checkpoint.run.steps import CheckpointManager

__all__ = ["AsyncCheckpointer", "Job"]

_untold: set[AsyncCheckpointer] = set()  # those with a failure that no caller has seen, kept alive by it


class AsyncCheckpointer:
    """Saves steps of a ``CheckpointManager`` in the background, one at a time; whole and compared like all others.

    ``save`` returns once the state is copied to CPU memory (page-locked where there is a GPU): training may change it
    then. It waits for the save before, and raises what went wrong with that. So do ``wait``, leaving the ``with``
    block, and the end of the process: no failure is lost. Memory: one copy of the state, kept for the next.
    """

    def __init__(self, manager: CheckpointManager, *, staging_bytes: int | None = None) -> None:
        """Save through ``manager``; a state of more than ``staging_bytes`` is refused (default: any size).

        ``Unusable`` for a manager across ranks: collectives in the background are the business of torch's own
        ``async_save``, with ``penstock.checkpoint.dcp.StorageWriter``.
        """
        if not hasattr(manager, "together"):
            raise Unusable(
                f"it saves through a manager, not a {type(manager).__name__}: AsyncCheckpointer(CheckpointManager(url))"
            )
        if manager.together:
            raise Unusable("across ranks: torch's async_save with penstock.checkpoint.dcp.StorageWriter saves behind")
        self._manager = manager
        self._most = staging_bytes
        self._stage = Stage()
        self._job: Job | None = None
        self._failure: BaseException | None = None

    def save(
        self,
        step: int,
        state: object,
        *,
        loader: Loader | None = None,
        metric: float | None = None,
        overwrite: bool = False,
        weights_only: bool = True,
    ) -> None:
        """Copy ``state`` and where data and generators stand now, and save them as ``step`` in the background.

        The rest is as ``CheckpointManager.save`` has it.

        Raises:
            Unusable: The state has more bytes than may be staged, or something in it is more than weights.
            PenstockError: The save before this one failed; this one was not begun.

        """
        self.wait()
        size = staged_bytes(state)
        if self._most is not None and size > self._most:
            raise Unusable(f"the state has {size:,} bytes and {self._most:,} may be staged")
        everything = self._manager.gathered(state, loader, weights_only=weights_only)
        everything["state"] = self._stage.copy(everything["state"])  # as it was encoded: a queue is a tuple by now
        self._job = Job(partial(self._save, partial(self._manager.put, step, everything, metric, overwrite=overwrite)))

    def wait(self) -> None:
        """Wait until nothing is under way; raise what went wrong with the last save, once."""
        if self._job is not None:
            self._job.wait()
            self._job = None
        failure, self._failure = self._failure, None
        _untold.discard(self)
        if failure is not None:
            raise failure

    def _save(self, put: Callable[[], None]) -> None:
        try:
            put()
        except BaseException as error:  # noqa: BLE001  the trainer's to hear
            self._failure = error
            _untold.add(self)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait; where the block failed, that is what is raised, and a failed save a note on it."""
        try:
            self.wait()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"and the checkpoint under way failed: {failure}")


class Job:
    """Work on a thread of its own; the interpreter ends only after it.

    Attributes:
        complete: Whether the work has ended, well or not.

    """

    def __init__(self, work: Callable[[], object], after: Job | None = None) -> None:
        """Begin ``work``, with ``after`` once that job has ended; where that failed, fail like it and do nothing."""
        self.complete = False
        self._work: Callable[[], object] | None = work
        self._after = after
        self._failure: BaseException | None = None
        self._inbox = Inbox()
        self._thread = Thread(target=self._run, name="penstock-checkpoint", daemon=False)
        self._thread.start()

    def look(self) -> None:
        """Do nothing while somebody waits."""

    def wait(self) -> None:
        """Block until the work has ended, and raise what it raised. Ctrl-C ends the wait, not the work.

        Python 3.11 counts a thread as ended once Ctrl-C has interrupted a ``join``: hence the inbox.
        """
        self._inbox.wait(self)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        work, after = self._work, self._after
        self._work = self._after = None  # what was saved is not kept in memory
        try:
            if after is not None:
                after._thread.join()  # noqa: SLF001  the same class; its inbox is for callers that wait
                self._failure = after._failure  # noqa: SLF001  the same
            if work is not None and self._failure is None:
                work()
        except BaseException as error:  # noqa: BLE001  raised in the thread that waits
            self._failure = error
        finally:
            self.complete = True
            self._inbox.finished(self)


def _tell_left() -> None:
    """Report at the end of the process, which waits for the threads, the failures that no caller has seen."""
    for each in list(_untold):
        try:
            each.wait()
        except BaseException:  # noqa: BLE001  there is no caller left: as an uncaught one is told, and then the next
            sys.excepthook(*sys.exc_info())


atexit.register(_tell_left)
