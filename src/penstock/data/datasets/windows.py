"""``WindowDataset``: the base class of map-style datasets whose samples are read in runs of neighbours."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, overload

import numpy as np
from torch.utils.data import Dataset

from penstock.data.datasets.batched import IndexedDataset
from penstock.data.order.orders import CatalogOrder
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from penstock.data.order.protocol import Order
    from penstock.data.reading.iteration import Iterations
    from penstock.data.reading.reading import Reads
    from penstock.values import Span

_REMEMBERED = 1 << 16  # runs


class WindowRuns(ABC):
    """The runs in which an order reads: some neighbouring samples each."""

    @abstractmethod
    def of(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of the run of each sample."""

    @abstractmethod
    def spans(self, run: int) -> list[Span]:
        """Return the byte ranges of a run."""

    @abstractmethod
    def __iter__(self) -> Iterator[Span]:
        """Yield the byte ranges of each run, in catalog order."""

    def used(self, batches: Iterable[list[int]]) -> Iterator[Span]:
        """Yield the bytes of each run that ``batches`` need, at its first use, and again after thousands of others."""
        seen: dict[int, None] = {}
        for batch in batches:
            for run in dict.fromkeys(self.of(np.array(batch, dtype=np.int64)).tolist()):
                if run not in seen:
                    seen[run] = None
                    yield from self.spans(run)
            while len(seen) > _REMEMBERED:
                del seen[next(iter(seen))]


class WindowDataset(IndexedDataset, Dataset[Any]):
    """Samples by number, slices of neighbours, and reading in any order."""

    _runs: Any = None  # of the order in which this is read; None: blocks in catalog order
    _place: Iterations | None = None

    @property
    @abstractmethod
    def contents(self) -> Any:  # noqa: ANN401  Contents, with a source and ``url_of``
        """The samples, whose digest is part of a state."""

    @abstractmethod
    def _select_part(self, first: int, stop: int) -> Self:
        """Return a copy with some neighbouring samples."""

    @abstractmethod
    def _runs_of(self, order: Order) -> WindowRuns:
        """Return the runs in which ``order`` reads."""

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
            instead = ": pass stride= to from_shards" if hasattr(self, "from_shards") else ""
            raise Unusable(f"slices of {type(self).__name__} must have step 1, got step {step}{instead}")
        part = self._select_part(first, max(first, stop))
        part._runs = None  # noqa: SLF001  itself
        return part

    def __iter__(self) -> Iterator[Any]:
        """Yield all samples in order, read ahead in requests of about 1 MiB."""
        return self.ordered(CatalogOrder()).samples(range(len(self)), 1)

    def ordered(self, order: Order, iterations: Iterations | None = None) -> Self:
        """Return this dataset, prepared to be read in ``order``: see ``IndexedDataset.ordered``."""
        dataset = copy(self)
        dataset._runs, dataset._place = self._runs_of(order), iterations  # noqa: SLF001  itself
        return dataset

    def url_of(self, index: int) -> str:
        """Return the URL of the first file of a sample."""
        found: str = self.contents.url_of(index)
        return found

    def reads(self, batches: Callable[[], Iterable[list[int]]] | None = None) -> Iterator[Reads]:
        """Yield the store with the spans of runs, each at its first use: see ``SampleDataset.reads``."""
        runs = self._in_runs()
        yield self.contents.source, iter(runs) if batches is None else runs.used(batches())

    def _in_runs(self) -> Any:  # noqa: ANN401  the runs of ``_runs_of``
        return self._runs or self._runs_of(CatalogOrder())
