"""``FrameDataset``: the base class of datasets whose samples are decoded from frames of videos."""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from itertools import chain
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, overload

from torch.utils.data import Dataset

from penstock.data.datasets.batched import IndexedDataset
from penstock.data.order.orders import CatalogOrder
from penstock.data.order.sampling import sample_number
from penstock.data.video.reading import ClipReading, ClipRuns, fit_order, hold_bytes
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.data.order.protocol import Order
    from penstock.data.reading.iteration import Iterations
    from penstock.data.reading.reading import Reads
    from penstock.data.video.reading import ClipContents, Held


class FrameDataset(IndexedDataset, Dataset[Any]):
    """Samples by number, slices of neighbours, and reading in any order, over ``ClipContents``."""

    _runs: ClipRuns | None = None  # of the order in which this is read; None: blocks in catalog order
    _place: Iterations | None = None

    @property
    @abstractmethod
    def contents(self) -> ClipContents:
        """The samples, whose digest is part of a state."""

    @abstractmethod
    def _select_part(self, first: int, stop: int) -> Self:
        """Return a copy with some neighbouring samples."""

    @abstractmethod
    def _make_sample(self, sample: int, held: Held) -> Any:  # noqa: ANN401  the transform decides the type
        """Return the yielded value of a sample, from the bytes of its files."""

    def __len__(self) -> int:
        return len(self.contents)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...  # noqa: ANN401  the transform decides the type
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        """Read a sample, in one request of each file; for a slice of neighbours, return a dataset without reading."""
        if not isinstance(index, slice):
            return self.__getitems__((index,))[0]
        first, stop, step = index.indices(len(self))
        if step != 1:
            raise Unusable(f"slices of {type(self).__name__} must have step 1, got step {step}")
        part = self._select_part(first, max(first, stop))
        part._runs = None  # noqa: SLF001  itself
        return part

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        """Read samples with all requests in flight at once."""
        samples = [sample_number(index, len(self)) for index in indices]
        spans = [self.contents.spans_of(sample, sample + 1) for sample in samples]
        bodies = iter(self.contents.source.read_many([*chain.from_iterable(spans)]))
        held = [hold_bytes(each, [next(bodies) for _ in each]) for each in spans]
        return [*map(self._make_sample, samples, held)]

    def __iter__(self) -> Iterator[Any]:
        """Yield all samples in order, read ahead in requests of about 1 MiB."""
        return self.ordered(CatalogOrder()).samples(range(len(self)), 1)

    def _fit_order(self, shuffle: object) -> Order:
        return fit_order(shuffle, self.contents)

    def ordered(self, order: Order, iterations: Iterations | None = None) -> Self:
        """Return this dataset, prepared to be read in ``order``: see ``IndexedDataset.ordered``."""
        dataset = copy(self)
        dataset._runs, dataset._place = ClipRuns(self.contents, order), iterations  # noqa: SLF001  itself
        return dataset

    def reading(self, batches: Iterable[list[int]], workers: int) -> ClipReading:
        """Return the samples of ``batches``, made from runs as these are read: see ``SampleDataset.reading``."""
        return ClipReading(self._in_runs(), batches, workers, self._make_sample, self._place)

    def url_of(self, index: int) -> str:
        """Return the URL of the first file of a sample."""
        return self.contents.url_of(index)

    def reads(self, batches: Callable[[], Iterable[list[int]]] | None = None) -> Iterator[Reads]:
        """Yield the store with the spans of runs, each at its first use: see ``SampleDataset.reads``."""
        runs = self._in_runs()
        yield self.contents.source, iter(runs) if batches is None else runs.used(batches())

    def _in_runs(self) -> ClipRuns:
        return self._runs or ClipRuns(self.contents, CatalogOrder())
