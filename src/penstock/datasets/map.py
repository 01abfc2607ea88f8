"""The map-style data set: a sample by index, a batch of them in one go."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from torch.utils.data import Dataset

from penstock.datasets.batched import Batched
from penstock.datasets.opening import Opening
from penstock.datasets.reading import singles
from penstock.datasets.standing import Standing
from penstock.order.course import Course
from penstock.order.partition import Repeat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch.distributed.device_mesh import DeviceMesh

    from penstock.order.partition import Tail
    from penstock.values import Place

__all__ = ["MapDataset"]


class MapDataset(Opening, Dataset[Any]):
    """``dataset[i]`` reads object ``i`` of the catalog; a DataLoader's batch is read at once, every object in flight.

    Negative indices count from the end; a slice is a data set over the same catalog. Engines are opened in whichever
    process reads, so it works under fork, forkserver and spawn, also after the parent has read from it.
    """

    def __len__(self) -> int:
        """Return the number of objects."""
        return len(self.catalog)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...  # noqa: ANN401  whatever the transform returns
    @overload
    def __getitem__(self, index: slice) -> MapDataset: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        """Read one object, or return a data set of some without reading."""
        if isinstance(index, slice):
            return type(self)(self.catalog[index], transform=self.transform, store=self._source.options)
        return self.__getitems__((index,))[0]

    def __iter__(self) -> Iterator[Any]:
        """Read all objects in order, reading ahead within ``options.read``'s budget."""
        return singles(self, range(len(self)), 1)

    def batched(
        self,
        batch_size: int,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        *,
        shuffle: bool = False,
        seed: int = 0,
        tail: Tail = "short",
        place: Place | DeviceMesh | None = None,
    ) -> Batched:
        """Return this data set as batches of ``batch_size`` per rank: see ``IterableDataset.batched``."""
        course = Course(total=len(self), batch=batch_size, shuffle=shuffle, seed=seed, tail=tail)
        return Batched(self, course, Standing(place), collate_fn)

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        """Read a batch, all requests in flight together; the transform runs on them in order."""
        rows = [index if isinstance(index, Repeat) else operator.index(index) for index in indices]
        spans = [self.catalog.span(row) for row in rows]
        return list(map(self._sample, rows, spans, self._source.read_many(spans)))
