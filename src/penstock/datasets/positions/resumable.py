"""State and resume of everything that forms batches."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch.distributed

from penstock.datasets.positions.consistency import check_same_catalog, check_same_order, grouped
from penstock.order.sampling import Cursor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.datasets.positions.consistency import Contents
    from penstock.datasets.positions.iteration import Iterations
    from penstock.order.sampling import SamplingPlan
    from penstock.values import Place

__all__ = ["Resumable"]


class Resumable:
    """Batches that are the same for every number of workers, and the same global batches for every number of ranks.

    A state is a dict of a few numbers (below 1 KB as JSON) that says what the training loop has received, and of which
    catalog, order and global batch. It is the same on every rank at the same batch; any rank's restores all.

    Attributes:
        plan: What makes which batch.

    """

    def __init__(self, plan: SamplingPlan, catalog: Contents | None, iterations: Iterations) -> None:
        """Follow ``plan`` over ``catalog`` (None: a state cannot tell whether it is the same one later)."""
        self.plan = plan
        self._catalog = catalog
        self._iterations = iterations
        self._check_ranks()

    def __len__(self) -> int:
        """Return how many batches a whole epoch has for this rank, over all its workers; every rank has as many."""
        return len(self.plan.batches(Cursor(), self._iterations.rank()))

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration epoch ``epoch``, also in persistent workers; later iterations count on from it.

        Right after ``load_state_dict``, naming the state's own epoch changes nothing.
        """
        self._iterations.epochs.set(epoch)

    def state_at(self, batches: int, *, epoch: int | None = None) -> dict[str, Any]:
        """Return the state after this rank's training loop has received ``batches`` batches of the latest iteration.

        No worker is asked, so it does not matter how far they have read ahead. With ``epoch``, of that epoch, counted
        from its start. The first call computes the catalog's digest, at about 0.1 µs per object.
        """
        latest = self._iterations.epochs.latest()
        return self.state(latest if epoch is None else Cursor(epoch, lanes=latest.lanes), batches)

    def load_state_dict(
        self, state: Mapping[str, Any], *, allow_new_global_batch: bool = False, allow_rereads: bool = False
    ) -> None:
        """Make the next iteration resume where ``state`` was taken: each remaining sample comes once.

        Any number of ranks and workers may resume. Another global batch (batch size times ranks) is refused unless
        allowed: nothing is lost or repeated then either, but other samples share a batch. So is a number of ranks that
        cannot share the lanes of an epoch under way (``penstock.Lanes``), unless rereads are allowed: until that epoch
        ends, several ranks read the same blocks then, and a warning says so.

        Raises:
            StateMismatch: The state is of another catalog, order, version or global batch, or of lanes that the ranks
                cannot share, or is none; or another rank has another catalog or order.

        """
        allowed = {"allow_new_global_batch": allow_new_global_batch, "allow_rereads": allow_rereads}
        cursor = self._cursor(state, **allowed)
        if why := self.plan.rereads(cursor, self._iterations.rank().world):
            warnings.warn(why, stacklevel=2)
        self._iterations.epochs.resume(cursor)

    def coming(self) -> Cursor:
        """Return where the next iteration will begin."""
        return self._iterations.epochs.next()

    def begin(self) -> tuple[Cursor, Place]:
        """Begin the next iteration: return its cursor and place, which may be a loader's worker's."""
        self._check_ranks()
        cursor, place = self._iterations.begin()
        self.plan.check_lanes(cursor, place.world)
        return cursor, place

    def restart(self, state: Mapping[str, Any]) -> tuple[Cursor, Place]:
        """Begin an iteration again where ``state`` was taken: the next one is the epoch after it.

        What a worker has saved already says which of its batches comes next: it takes them as the first of as many.

        Raises:
            StateMismatch: See ``load_state_dict``.

        """
        cursor = self._cursor(state)
        self._iterations.epochs.restart(cursor)
        return cursor, replace(self._iterations.place(), worker=0)

    def state(self, cursor: Cursor, batches: int = 0) -> dict[str, Any]:
        """Return the state ``batches`` batches after ``cursor``."""
        world = self._iterations.rank().world
        return self.plan.state(self.plan.after(cursor, batches, world), world, self._digest())

    def _cursor(self, state: Mapping[str, Any], **allowed: bool) -> Cursor:
        cursor = self.plan.resume(state, self._iterations.rank().world, self._digest(), **allowed)
        self._check_ranks()
        return cursor

    def _digest(self) -> str:
        return "" if self._catalog is None else self._catalog.digest

    def _check_ranks(self) -> None:
        # Only in a group is a rank asked for: Lightning's make their loaders before it, and cannot say which they are.
        # And a dataset of one rank concerns no other.
        if not grouped():
            return
        world = self._iterations.rank().world
        if self._catalog is not None and world > 1:
            check_same_catalog(self._catalog)
        if world == torch.distributed.get_world_size():  # else sets of ranks, which may have orders of their own
            check_same_order(self._digest() or f"{self.plan.samples} samples", self.plan.arguments())
