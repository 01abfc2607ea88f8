"""State and resume, common to all classes that form batches."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch.distributed

from penstock.data.catalog.catalog import Catalog
from penstock.data.datasets.iteration import check_same_catalog, check_same_order, grouped
from penstock.data.order.sampling import Cursor
from penstock.errors import StateMismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.data.datasets.iteration import Contents, Iterations
    from penstock.data.order.sampling import SamplingPlan
    from penstock.values import Place


__all__ = ["Resumable"]


class Resumable:
    """Resumable batches: the same for any number of workers, and the same global batches for any number of ranks.

    A state is a dict of a few numbers (below 1 KB as JSON). It records the samples that the training loop has received,
    and the catalog, the order and the global batch. At the same batch every rank has the same state, and any of them
    restores all ranks.

    Attributes:
        plan: The sampling plan, which assigns samples to batches.

    """

    def __init__(self, plan: SamplingPlan, catalog: Contents | None, iterations: Iterations) -> None:
        """Follow ``plan`` over ``catalog``; None: a state cannot detect a different catalog."""
        self.plan = plan
        self._catalog = catalog
        self._iterations = iterations
        self._check_ranks()

    def __len__(self) -> int:
        """Return this rank's number of batches in a whole epoch, over all its workers; it is equal on all ranks."""
        return len(self.plan.batches(Cursor(), self._iterations.rank()))

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, also in persistent workers; later iterations continue from it.

        Directly after ``load_state_dict``, setting the epoch of the state changes nothing.
        """
        self._iterations.epochs.set(epoch)

    def state_at(self, batches: int, *, epoch: int | None = None) -> dict[str, Any]:
        """Return the state after this rank's training loop has received ``batches`` batches of the latest iteration.

        Asks no worker, so their read-ahead does not matter. With ``epoch``, ``batches`` are counted from the start of
        that epoch. The first call computes the catalog's digest, at about 0.1 µs per object.
        """
        latest = self._iterations.epochs.latest()
        return self.state(latest if epoch is None else Cursor(epoch, lanes=latest.lanes), batches)

    def load_state_dict(
        self, state: Mapping[str, Any], *, allow_new_global_batch: bool = False, allow_rereads: bool = False
    ) -> None:
        """Make the next iteration resume where ``state`` was taken: each remaining sample comes once.

        Any number of ranks and workers may resume. A different global batch (batch size times ranks) requires
        ``allow_new_global_batch``: still no sample is lost or repeated, but batches combine other samples. A number of
        ranks that cannot share the lanes of the current epoch (``penstock.Lanes``) requires ``allow_rereads``: several
        ranks then read the same blocks until that epoch ends, and a warning reports it.

        Raises:
            StateMismatch: The state belongs to another catalog, order, version or global batch, has lanes that the
                ranks cannot share, or is not a state; or another rank has a different catalog or order.

        """
        allowed = {"allow_new_global_batch": allow_new_global_batch, "allow_rereads": allow_rereads}
        cursor = self._cursor(state, **allowed)
        if why := self.plan.rereads(cursor, self._iterations.rank().world):
            warnings.warn(why, stacklevel=2)
        self._iterations.epochs.resume(cursor)

    def coming(self) -> Cursor:
        """Return the cursor at which the next iteration will begin."""
        return self._iterations.epochs.next()

    def begin(self) -> tuple[Cursor, Place]:
        """Begin the next iteration; return its cursor and its place, which in a loader's worker is the worker's."""
        self._check_ranks()
        cursor, place = self._iterations.begin()
        self.plan.check_lanes(cursor, place.world)
        return cursor, place

    def restart(self, state: Mapping[str, Any]) -> tuple[Cursor, Place]:
        """Restart an iteration where ``state`` was taken; the next iteration is the epoch after it.

        The state of a worker already points to the next batch of this worker, so the returned place is worker 0.

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
        digest = self._digest()
        try:
            cursor = self.plan.resume(state, self._iterations.rank().world, digest, **allowed)
        except StateMismatch as error:
            if not (isinstance(self._catalog, Catalog) and error.message.startswith("the catalog")):
                raise
            raise StateMismatch(
                f"{error.message}; objects were added, removed or replaced since, or the prefix, filter or split "
                "differs: save the catalog once (dataset.catalog.save(url)), and open it in every run "
                "(MapDataset.from_catalog(url))"
            ) from None
        self._check_ranks()
        return cursor

    def _digest(self) -> str:
        return "" if self._catalog is None else self._catalog.digest

    def _check_ranks(self) -> None:
        # Look up the rank only in a process group: ranks of Lightning make their loaders before the group exists, and
        # do not know their number then. A dataset for a single rank is not compared.
        if not grouped():
            return
        world = self._iterations.rank().world
        if self._catalog is not None and world > 1:
            check_same_catalog(self._catalog)
        # Otherwise the ranks form several sets, whose orders may differ.
        if world == torch.distributed.get_world_size():
            check_same_order(self._digest() or f"{self.plan.samples} samples", self.plan.arguments())
