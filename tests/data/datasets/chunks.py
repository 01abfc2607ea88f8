"""A dataset that reads chunks of samples: its readings have items that prepare."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.utils.data import Dataset

from penstock.data.datasets.batched import BatchableDataset, Batched
from penstock.data.order.orders import order_of
from penstock.data.order.sampling import SamplingPlan
from penstock.data.reading.iteration import Iterations
from penstock.data.reading.reading import Item, Prepared, Reading
from penstock.engine.contracts.fetching import ReadCounts
from penstock.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.data.order.protocol import Order
    from penstock.data.order.sampling import Tail
    from penstock.data.reading.iteration import PlaceLike


@dataclass(frozen=True)
class Numbers:
    """The contents of a dataset of numbers."""

    count: int
    digest: str = "of numbers"
    root: str = "memory://numbers/"
    base: str = ""

    def __len__(self) -> int:
        return self.count


class Chunked(BatchableDataset, Dataset[Any]):
    """Samples are their own numbers, cut from chunks of ``per``; the chunks in ``broken`` cannot be decoded."""

    def __init__(
        self,
        count: int,
        per: int = 4,
        *,
        broken: Iterable[int] = (),
        shuffle: bool | Order = False,
        place: PlaceLike = None,
    ) -> None:
        self.contents_of = Numbers(count)
        self.per = per
        self.broken = set(broken)
        self.decode: Callable[[int], list[int]] = self._decoded  # a test's own may take longer
        self._order, self._iterations = order_of(shuffle), Iterations(place)

    @property
    def contents(self) -> Numbers:
        return self.contents_of

    @property
    def decodes(self) -> bool:
        return True

    def reading(self, batches: Iterable[list[int]], workers: int) -> ChunkReading:  # noqa: ARG002  nothing is fetched
        return ChunkReading(self, batches)

    def batched(
        self, batch_size: int, collate_fn: Callable[[list[Any]], Any] | None = None, *, tail: Tail = "short"
    ) -> Batched:
        count = len(self.contents_of)
        plan = SamplingPlan(samples=count, batch=batch_size, order=self._order, seed=3, tail=tail)
        return Batched(self, plan, self._iterations, collate_fn)

    def _decoded(self, chunk: int) -> list[int]:
        if chunk in self.broken:
            raise Damaged(f"chunk {chunk} is damaged")
        return list(range(chunk * self.per, (chunk + 1) * self.per))


class ChunkReading(Reading):
    """Each chunk of a reading is prepared once, by an item before the first sample of it."""

    def __init__(self, dataset: Chunked, batches: Iterable[list[int]]) -> None:
        self._chunks: dict[int, Prepared[list[int]]] = {}
        self._items = self._drawn(dataset, batches)
        self._counts = ReadCounts()
        self.closed = 0
        self.lock = threading.Lock()

    def _drawn(self, dataset: Chunked, batches: Iterable[list[int]]) -> Iterator[Item]:
        chunks = self._chunks

        def sample(index: int) -> int:
            return chunks[index // dataset.per].get()[index % dataset.per]

        for number, batch in enumerate(batches):
            for chunk in dict.fromkeys(index // dataset.per for index in batch):
                if chunk not in chunks:
                    chunks[chunk] = Prepared(lambda chunk=chunk: dataset.decode(chunk))
                    self._counts.requests += 1
                    yield Item(number, 0, 0, f"chunk {chunk}", chunks[chunk].prepare)
            for slot, index in enumerate(batch):
                yield Item(number, slot, len(batch), f"sample {index}", lambda index=index: sample(index))

    @property
    def counts(self) -> ReadCounts:
        return self._counts

    def __next__(self) -> Item:
        if self.closed:
            raise StopIteration
        return next(self._items)

    def close(self) -> None:
        self.closed += 1
        for each in [*self._chunks.values()]:
            each.abandon()
