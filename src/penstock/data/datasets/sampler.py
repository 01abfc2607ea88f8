"""The batch sampler: a map-style dataset's batches as indices, for the DataLoaders of torch and torchdata."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Self

from torch.utils.data import IterableDataset as TorchIterableDataset
from torch.utils.data import Sampler

from penstock.data.datasets.batched import BatchableDataset
from penstock.data.datasets.consistency import check_sharding
from penstock.data.datasets.iteration import Iterations
from penstock.data.datasets.resumable import Resumable
from penstock.data.datasets.stateful import StatefulIterator
from penstock.data.order.indices import batch_indices
from penstock.data.order.orders import order_of
from penstock.data.order.sampling import SamplingPlan
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Sized

    from penstock.data.datasets.consistency import Contents
    from penstock.data.datasets.iteration import PlaceLike
    from penstock.data.order.partition import Tail
    from penstock.data.order.protocol import Order
    from penstock.data.order.sampling import Cursor
    from penstock.values import Place

__all__ = ["BatchSampler"]


class BatchSampler(Resumable, Sampler[list[int]]):
    """A ``batch_sampler`` for torch's DataLoader, which yields each batch of this rank as a list of indices.

    The order and the global batches are those of ``penstock.DataLoader``. Indices that fill up the last batch are
    ``Repeat``. Under torch's DataLoader, which draws batches ahead, use the state ``state_at(batches received)``. The
    state of torchdata's StatefulDataLoader resumes with the same number of workers; ``elastic_state`` converts it for
    any number of workers. Batches are formed in the parent, for any number of workers.

    Args:
        data_source: Any dataset with a length. A Penstock dataset also adds its catalog's digest to the state.
        batch_size: Samples per batch and rank.
        shuffle: True, False or an order such as ``ps.BlockShuffle``.
        seed: Seed of the order.
        tail: Controls the incomplete last batch, as for ``penstock.DataLoader``.
        place: This process's rank, as for ``IterableDataset``.

    Attributes:
        batch_size: Samples per batch and rank. (``drop_last`` is missing on purpose: Lightning would take a sampler
            with both attributes for torch's own, and construct a new one by its signature.)

    Raises:
        Unusable: An argument is invalid.

    Example:
        >>> dataset = ps.MapDataset.from_prefix("s3://bucket/train/3/")
        >>> sampler = ps.BatchSampler(dataset, batch_size=8, shuffle=True)
        >>> loader = torch.utils.data.DataLoader(dataset, batch_sampler=sampler, collate_fn=list)
        >>> len(next(iter(loader))), len(loader)
        (8, 8)

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
        """Check the arguments; read nothing."""
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
        """This object: Lightning and others look for ``set_epoch`` on the attribute ``sampler``."""
        return self

    def __iter__(self) -> StatefulIterator:
        """Return an iterator over the next epoch's batches.

        The epoch begins with the first batch, because DataLoader asks for two iterators.
        """
        return StatefulIterator(self, partial(batch_indices, self.plan))

    def begin(self) -> tuple[Cursor, Place]:
        """Begin the next epoch.

        Returns:
            The epoch's cursor, and the rank's place, since workers form no batches.

        """
        self._check_ranks()
        check_sharding(self._iterations.rank())
        cursor, place = self._iterations.epochs.begin(), self._iterations.rank()
        self.plan.check_lanes(cursor, place.world)
        return cursor, place


def _contents(data_source: object) -> Contents | None:
    return data_source.contents if isinstance(data_source, BatchableDataset) else getattr(data_source, "catalog", None)
