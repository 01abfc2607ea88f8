"""``dataflux_pytorch.dataflux_iterable_dataset`` over Penstock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from penstock.compat.dataflux_pytorch.listing import Config, Listed, data_format_default
from penstock.data.datasets.batched import Batched
from penstock.data.datasets.iterable import IterableDataset
from penstock.data.reading.objects import singles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.data.order.sampling import Tail

__all__ = ["Config", "DataFluxIterableDataset", "data_format_default"]


class DataFluxIterableDataset(Listed, IterableDataset):
    """Iterable dataset: yields ``data_format_fn(data)`` for the bytes of each object, in order, reading ahead.

    By default the bytes themselves are yielded. As in the original, each worker of a loader takes one run of the
    objects, and every rank yields all of them. To shard across ranks, assign ``objects``, or use
    ``penstock.IterableDataset``.

    The arguments are attributes; ``storage_client`` is None in workers, and ``project_name`` has no effect.
    """

    _reading: ClassVar[dict[str, Any]] = {"place": "unsharded"}

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # stateless: each worker reads its own run
        """Return an iterator over all objects; in a worker, over its run of them."""
        place, count = self._iterations.place(), len(self.catalog)
        run = -(-count // place.workers)
        rows = range(min(place.worker * run, count), min((place.worker + 1) * run, count))
        return singles(self, rows, place.workers)

    def batched(
        self, batch_size: int, collate_fn: Callable[[list[Any]], Any] | None = None, *, tail: Tail = "short"
    ) -> Batched:
        return Batched(self, self._plan(batch_size, tail), self._iterations.apart(), collate_fn)
