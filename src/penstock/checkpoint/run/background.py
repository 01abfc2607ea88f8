"""Saves during training: the state is copied, and a thread saves the copy."""

from __future__ import annotations

import atexit
import sys
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Self

from penstock.checkpoint.run.steps import CheckpointManager, Loader, checked_metric, is_across_ranks
from penstock.checkpoint.run.store import checked_step
from penstock.checkpoint.staging import Stage, staged_bytes
from penstock.engine.waiting import Inbox
from penstock.errors import Unusable, kind_of
from penstock.values import switch, whole

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


# Checkpointers with a failure that was not yet raised; the set keeps them alive.
_untold: set[AsyncCheckpointer] = set()


class AsyncCheckpointer:
    """Background saves of a ``CheckpointManager``'s steps, one at a time; atomic and verified like all others.

    ``save`` returns after the state is copied to CPU memory (page-locked with a GPU), so training may change it then.
    It waits for the previous save, and raises that save's error. ``wait``, leaving the ``with`` block, and the end of
    the process do the same: no error is lost. Memory: one copy of the state, reused by the next save.

    Args:
        manager: The manager that saves. One across ranks is refused: for collectives in the background use torch's
            own ``async_save`` with ``penstock.checkpoint.dcp.StorageWriter``.
        staging_bytes: Largest state that is copied; a larger one is refused. Default: no limit.

    Raises:
        Unusable: ``manager`` is not a manager, or saves across ranks; or ``staging_bytes`` is not a number of bytes.

    Example:
        >>> run = ps.CheckpointManager("s3://bucket/background/")
        >>> with ps.AsyncCheckpointer(run) as background:
        ...     background.save(1, {"weight": torch.ones(3)})
        >>> run.steps()
        [1]
    """

    def __init__(self, manager: CheckpointManager, *, staging_bytes: int | None = None) -> None:
        if not isinstance(manager, CheckpointManager):
            raise Unusable(
                f"manager must be a CheckpointManager, got {kind_of(manager)}; "
                "write AsyncCheckpointer(CheckpointManager(url))"
            )
        if is_across_ranks(manager):
            raise Unusable(
                "cannot save across ranks: use torch's async_save with penstock.checkpoint.dcp.StorageWriter"
            )
        self._manager = manager
        self._most = None if staging_bytes is None else whole(staging_bytes, "staging_bytes", 0)
        self._stage = Stage()
        self._job: BackgroundJob | None = None
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
        """Copy ``state``, the data's position and the generators' states, and save them as ``step`` in the background.

        Args:
            step: Number of the step.
            state: Anything that ``CheckpointManager.save`` accepts.
            loader: As for ``CheckpointManager.save``, like the following arguments.
            metric: Number that ``keep_best`` compares.
            overwrite: Replace an existing step.
            weights_only: Refuse values that only code can make; default: True.

        Raises:
            Unusable: The state has more bytes than ``staging_bytes``, or contains more than weights; or the step or
                the metric is not a number.
            PenstockError: The previous save failed; this one was not started.
        """
        switch(overwrite, "overwrite")
        self.wait()
        # Now, as the training may change a metric that is a tensor, and would hear of a wrong one at the next save.
        step, metric = checked_step(step), checked_metric(metric)
        # First: of a tensor that cannot be saved, torch may not know the size.
        everything = self._manager._gather(state, loader, weights_only=weights_only)  # noqa: SLF001  its room
        size = staged_bytes(state)
        if self._most is not None and size > self._most:
            raise Unusable(f"the state has {size:,} bytes, but staging_bytes allows {self._most:,}")
        everything = self._stage.copy(everything)
        put = partial(self._manager._save, step, everything, metric, overwrite=overwrite)  # noqa: SLF001  its room
        self._job = BackgroundJob(partial(self._save, put))

    def wait(self) -> None:
        """Wait until no save is in progress; raise the last save's error, once."""
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
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the save; if the block raised, add a failed save as a note to its error instead of raising."""
        try:
            self.wait()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"and the running save failed: {failure}")


class BackgroundJob:
    """Work on a separate, non-daemon thread; the interpreter waits for it at exit."""

    def __init__(self, work: Callable[[], object], after: BackgroundJob | None = None) -> None:
        """Start ``work``, or start it after the job ``after``; if that failed, fail with its error without work."""
        self.complete = False
        self._work: Callable[[], object] | None = work
        self._after = after
        self._failure: BaseException | None = None
        self._inbox = Inbox()
        self._thread = Thread(target=self._run, name="penstock-checkpoint", daemon=False)
        self._thread.start()

    def look(self) -> None:
        """Do nothing; ``Inbox`` calls this repeatedly during a wait."""

    def wait(self) -> None:
        """Block until the work has ended, and raise its error.

        Ctrl-C ends the wait, not the work. Uses an inbox: Python 3.11 considers a thread ended once Ctrl-C has
        interrupted ``join``.
        """
        self._inbox.wait(self)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        work, after = self._work, self._after
        self._work = self._after = None  # do not keep the saved state in memory
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
    """Report failures that no caller has seen, at the end of the process, after its threads have ended."""
    for each in list(_untold):
        try:
            each.wait()
        except BaseException:  # noqa: BLE001  there is no caller left: as an uncaught one is told, and then the next
            sys.excepthook(*sys.exc_info())


atexit.register(_tell_left)
