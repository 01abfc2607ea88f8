"""What everything that forms batches can do: name its state after so many of them, and go on from one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.datasets.agree import agree, grouped
from penstock.order.course import Cursor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.catalog.catalog import Catalog
    from penstock.datasets.standing import Standing
    from penstock.order.course import Course
    from penstock.values import Place

__all__ = ["Resumable"]


class Resumable:
    """Batches that are the same for every number of workers, and the same global batches for every number of ranks.

    A state is a dict of a few numbers (below 1 KB as JSON) that says what the training loop has received, and of which
    catalog, order and global batch. It is the same on every rank at the same batch; any rank's restores all.

    Attributes:
        course: What makes which batch.

    """

    def __init__(self, course: Course, catalog: Catalog | None, standing: Standing) -> None:
        """Follow ``course`` over ``catalog`` (None: nobody can tell whether it is the same one later)."""
        self.course = course
        self._catalog = catalog
        self._standing = standing
        self._agree()

    def __len__(self) -> int:
        """Return how many batches a whole epoch has for this rank, over all its workers; every rank has as many."""
        return len(self.course.batches(Cursor(), self._standing.rank()))

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration epoch ``epoch``, also in persistent workers; later iterations count on from it.

        Right after ``load_state_dict``, naming the state's own epoch changes nothing.
        """
        self._standing.rounds.set(epoch)

    def state_at(self, batches: int, *, epoch: int | None = None) -> dict[str, Any]:
        """Return the state after this rank's training loop has received ``batches`` batches of the latest iteration.

        No worker is asked, so it does not matter how far they have read ahead. With ``epoch``, of that epoch, counted
        from its start. The first call computes the catalog's digest, at about 0.1 µs per object.
        """
        return self.state(self._standing.rounds.latest() if epoch is None else Cursor(epoch), batches)

    def load_state_dict(self, state: Mapping[str, Any], *, allow_new_global_batch: bool = False) -> None:
        """Make the next iteration go on where ``state`` was taken: each remaining sample comes once. No request.

        Any number of ranks and workers may go on. Another global batch (batch size times ranks) is refused unless
        allowed: nothing is lost or repeated then either, but other samples share a batch.

        Raises:
            StateMismatch: The state is of another catalog, seed, version or global batch, or is none.

        """
        self._standing.rounds.resume(self._cursor(state, allow_new_global_batch))

    def coming(self) -> Cursor:
        """Return where the next iteration will begin."""
        return self._standing.rounds.next()

    def begin(self) -> tuple[Cursor, Place]:
        """Begin the next iteration: return where, and for whom, the process alone or one of a loader's workers."""
        self._agree()
        return self._standing.begin()

    def restart(self, state: Mapping[str, Any]) -> tuple[Cursor, Place]:
        """Begin an iteration over again where ``state`` was taken: the next one is the epoch after it.

        What a worker has saved already says which of its batches comes next: it takes them as the first of as many.

        Raises:
            StateMismatch: See ``load_state_dict``.

        """
        cursor = self._cursor(state)
        self._standing.rounds.restart(cursor)
        return cursor, replace(self._standing.place(), worker=0)

    def state(self, cursor: Cursor, batches: int = 0) -> dict[str, Any]:
        """Return the state ``batches`` batches after ``cursor``."""
        world = self._standing.rank().world
        return self.course.state(self.course.after(cursor, batches, world), world, self._digest())

    def _cursor(self, state: Mapping[str, Any], allow_new_global_batch: bool = False) -> Cursor:  # noqa: FBT001, FBT002
        world, digest = self._standing.rank().world, self._digest()
        return self.course.resume(state, world, digest, allow_new_global_batch=allow_new_global_batch)

    def _digest(self) -> str:
        return "" if self._catalog is None else self._catalog.digest

    def _agree(self) -> None:
        # Only in a group is a rank asked for: Lightning's make their loaders before it, and cannot say which they are.
        # And a dataset of one rank is nobody else's.
        if self._catalog is not None and grouped() and self._standing.rank().world > 1:
            agree(self._catalog)
