"""The batch sampler: a map-style dataset's batches as indices, for torch's own DataLoader and torchdata's."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Self

from torch.utils.data import IterableDataset as TorchIterableDataset
from torch.utils.data import Sampler

from penstock.datasets.batched import BatchableDataset
from penstock.datasets.positions.conflicts import check_sharding
from penstock.datasets.positions.iteration import Iterations
from penstock.datasets.positions.resumable import Resumable
from penstock.datasets.positions.stateful import StatefulIterator
from penstock.errors import Unusable
from penstock.order.indices import batch_indices
from penstock.order.orders import order_of
from penstock.order.sampling import SamplingPlan

if TYPE_CHECKING:
    from collections.abc import Sized

    from penstock.datasets.positions.consistency import Contents
    from penstock.datasets.positions.place import PlaceLike
    from penstock.order.partition import Tail
    from penstock.order.sampling import Cursor
    from penstock.protocols.order import Order
    from penstock.values import Place

__all__ = ["BatchSampler"]


class BatchSampler(Resumable, Sampler[list[int]]):
    """Yields each batch of this rank as a list of indices; goes where torch's DataLoader takes a ``batch_sampler``.

    The order (``shuffle``: True, False or an order such as ``ps.BlockShuffle``) and the global batches are those of
    ``penstock.DataLoader``. Indices that fill up a last batch are
    ``Repeat``. Under torch's DataLoader, which draws batches ahead, the state is ``state_at(batches received)``. Under
    torchdata's StatefulDataLoader its own state resumes with as many workers; ``elastic_state`` makes of that one a
    state that any layout loads. Forms batches in the parent, whatever the number of workers.

    Attributes:
        batch_size: Samples per batch and rank. (There is no ``drop_last``: a sampler with both Lightning would take for
            torch's own, and make anew by its signature.)

    """

    def __init__(
        self,
        data_source: Sized,
        batch_size: int,
        *,
        shuffle: bool | Order = False,
        seed: int = 0,
        tail: Tail = "short",
        place: PlaceLike = None,
    ) -> None:
        """Order ``data_source``, any dataset with a length; one of ours also lends its catalog's digest to the state.

        ``tail`` and ``place`` as in ``IterableDataset``.
        """
        if isinstance(data_source, (Sampler, TorchIterableDataset)) or not hasattr(data_source, "__len__"):
            raise Unusable(
                f"a {type(data_source).__name__} has no samples by index: give the BatchSampler the dataset itself, "
                "which it orders and shares out over ranks; batches of an IterableDataset are formed by batched(…)"
            )
        plan = SamplingPlan(samples=len(data_source), batch=batch_size, order=order_of(shuffle), seed=seed, tail=tail)
        super().__init__(plan, _contents(data_source), Iterations(place))
        self.batch_size = plan.batch

    @property
    def sampler(self) -> Self:
        """Itself: what has ``set_epoch``, where Lightning and others look for it."""
        return self

    def __iter__(self) -> StatefulIterator:
        """Return the next epoch's batches; it begins with the first of them, for DataLoader asks for two iterators."""
        return StatefulIterator(self, partial(batch_indices, self.plan))

    def begin(self) -> tuple[Cursor, Place]:
        """Begin the next epoch: return where, and for which rank; workers form no batches."""
        self._check_ranks()
        check_sharding(self._iterations.rank())
        cursor, place = self._iterations.epochs.begin(), self._iterations.rank()
        self.plan.check_lanes(cursor, place.world)
        return cursor, place


def _contents(data_source: object) -> Contents | None:
    return data_source.contents if isinstance(data_source, BatchableDataset) else getattr(data_source, "catalog", None)
