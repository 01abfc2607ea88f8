"""The map-style dataset: reads a sample by index, or a batch with its requests in parallel.

Conversion of a torch Subset of a map-style dataset (``random_split``) to a dataset over a part of the catalog.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, overload

import numpy as np
from torch.utils.data import Dataset, Subset

from penstock.data.catalog.rows import pick_rows, positions
from penstock.data.datasets.batched import BatchableDataset, IndexedDataset
from penstock.data.datasets.dataset import CatalogDataset
from penstock.data.order.orders import CatalogOrder
from penstock.data.order.sampling import Repeat, sample_number
from penstock.data.reading.objects import read_groups
from penstock.data.reading.runs import fitted_order, merged_spans, read_units
from penstock.errors import Unusable, add_article

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from penstock.data.catalog.catalog import Catalog
    from penstock.data.catalog.rows import Picked
    from penstock.data.order.protocol import Order
    from penstock.data.reading.reading import Reading, Reads
    from penstock.engine.contracts.fetching import ReadCounts


class _OneByOne:
    """The ``__getitems__`` of a class that overrides only ``__getitem__``: calls ``__getitem__`` for each index."""

    def __init__(self, read: Callable[..., Any]) -> None:
        self._read = read

    def __get__(self, dataset: MapDataset | None, kind: type) -> Any:  # noqa: ANN401  itself, or a bound method
        return self if dataset is None else partial(self._batch, dataset)

    def _batch(self, dataset: MapDataset, indices: Sequence[SupportsIndex]) -> list[Any]:
        return [self._read(dataset, index) for index in indices]


class MapDataset(CatalogDataset, IndexedDataset, Dataset[Any]):
    """A map-style dataset: ``dataset[i]`` reads object ``i`` of the catalog.

    A DataLoader's batch is read with all its requests in flight at once. Negative indices count from the end. A slice
    is a dataset over the same catalog: ``dataset[a:b][i]`` is ``dataset[a + i]``. Engines are opened in the process
    that reads, so the dataset works under fork, forkserver and spawn, also after the parent has read from it.

    A subclass may override ``__getitem__`` (every loader then calls it for each sample, with one object in flight per
    thread or worker) or ``__getitems__`` (called for each batch). Prefer a ``transform``, which keeps many objects in
    flight. The ``__getitem__`` and ``__getitems__`` of this class always read and never call an override, so either may
    be overridden in terms of the other. A slice of such a subclass, or torch's ``Subset`` of it, is a ``DatasetPart``:
    the whole dataset still reads, at its own indices, so that data it keeps by index (captions of images) stay with
    their samples. A slice of a subclass that overrides ``__len__`` or ``__iter__`` raises ``Unusable``.

    Args:
        catalog: The objects: ``dataset[i]`` is object ``i``.
        transform: Function from a ``Sample`` to the value of ``dataset[i]``; default: the ``Sample`` itself.
        store: Options, or the name of a profile; default: environment and profile. For samples of several objects in
            different stores, also a mapping from fields to the options of each.

    Example:
        >>> dataset = ps.MapDataset.from_prefix("s3://bucket/train/", transform=lambda sample: sample.read()[1:4])
        >>> dataset[0], len(dataset[:100])
        (b'PNG', 100)
    """

    def __init_subclass__(cls, **options: Any) -> None:  # noqa: ANN401  of other base classes
        """Make ``__getitems__``, which loaders prefer, call ``__getitem__`` if only the latter is overridden."""
        super().__init_subclass__(**options)
        batch = cls.__getitems__
        if cls.__getitem__ is not MapDataset.__getitem__ and (
            batch is MapDataset.__getitems__ or isinstance(batch, _OneByOne)
        ):
            cls.__getitems__ = _OneByOne(cls.__getitem__)  # type: ignore[method-assign,assignment]

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse a second dataset of another length, if this subclass reads: samples could not be paired by index."""
        if isinstance(value, MapDataset) and "catalog" in vars(self) and self.overrides and len(value) != len(self):
            raise Unusable(
                f"cannot pair the {len(value)} samples of {name} with the {len(self)} of this {type(self).__name__} by "
                "index: pair them by name, as one sample of several objects (Catalog.join); if they are not paired by "
                f"index, keep the dataset in a tuple: self.{name} = (dataset,)"
            )
        super().__setattr__(name, value)

    def __len__(self) -> int:
        return len(self.catalog)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...  # noqa: ANN401  the transform decides the type
    @overload
    def __getitem__(self, index: slice) -> MapDataset: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        """Read one object; for a slice, return a dataset without reading.

        A sample in a unit (a Parquet row, a line of a compressed shard) costs the whole unit, read and decoded.
        """
        return part_of(self, index) if isinstance(index, slice) else self._read((index,))[0]

    def __iter__(self) -> Iterator[Any]:
        """Yield all samples in order, read ahead within the budget of ``options.read`` unless a subclass reads them."""
        indices = range(len(self))
        if not self.overrides:
            return self.ordered(CatalogOrder()).samples(indices, 1)
        if type(self).__getitem__ is MapDataset.__getitem__:
            return (self.__getitems__([index])[0] for index in indices)
        return (self[index] for index in indices)

    @property
    def overrides(self) -> str:
        """The name of the method that a subclass overrides to read: "__getitems__", "__getitem__" or ""."""
        kind = type(self)
        if kind.__getitems__ is not MapDataset.__getitems__ and not isinstance(kind.__getitems__, _OneByOne):
            return "__getitems__"
        return "" if kind.__getitem__ is MapDataset.__getitem__ else "__getitem__"

    # Public here: the reference lists what a class has itself.
    batched = IndexedDataset.batched

    def _fit_order(self, shuffle: object) -> Order:
        return fitted_order(shuffle, self.catalog)

    def subset(self, indices: NDArray[np.int64]) -> MapDataset:
        """Return a dataset of some of the samples, which torch's ``Subset`` and ``random_split`` choose; reads nothing.

        Args:
            indices: Numbers of the samples, in the wanted order: int64.

        Example:
            >>> dataset = ps.MapDataset.from_prefix("s3://bucket/train/3/")
            >>> dataset.subset(np.array([5, 3]))[0].key
            'train/3/0005.png'
        """
        return part_of(self, indices)

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        """Read a batch with all its requests in flight at once; transform the samples in order.

        Samples in units (Parquet rows, lines of compressed shards): each unit of the batch is read and decoded once.
        """
        return self._read(indices)

    def _read(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        rows = [sample_number(index, len(self.catalog)) for index in indices]
        if self.catalog.parts:
            return read_groups(self, rows)
        if self.catalog.units is not None:
            return read_units(self.catalog, self._source, self._sample, rows)
        spans = [*self.catalog.spans(rows)]
        if self.catalog.extents(range(0)) is None:
            return list(map(self._sample, rows, spans, self._source.read_many(spans)))
        merged, places = merged_spans(spans)
        bodies = [memoryview(body) for body in self._source.read_many(merged)]
        cut = (bodies[number][start:stop] for number, start, stop in places)
        return list(map(self._sample, rows, spans, cut))


class DatasetPart(MapDataset):
    """A part of a dataset that overrides reading: the whole dataset reads the samples, by its own indices.

    Attributes:
        whole: The dataset that reads.
        rows: The index in ``whole`` of each sample.
    """

    def __init__(self, whole: MapDataset, rows: range | Picked, catalog: Catalog) -> None:
        self.whole = whole
        self.rows = rows
        self.catalog = catalog
        self.transform = whole.transform
        self._source = whole._source  # noqa: SLF001  of the same class
        if catalog.fields:
            self._homes = whole._homes  # noqa: SLF001

    @property
    def overrides(self) -> str:
        return self.whole.overrides

    @property
    def decodes(self) -> bool:
        return self.whole.decodes

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  always raises
        """Raise an error that points to ``whole``, in whose order a subclass keeps data by index."""
        raise AttributeError(
            f"a slice or subset has no attribute {name!r}: those of a subclass are at .whole, whose indices are .rows"
        )

    def __getitem__(self, index: SupportsIndex | slice) -> Any:  # noqa: ANN401  the whole dataset decides
        return part_of(self, index) if isinstance(index, slice) else self.whole[self._row(index)]

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        return self.whole.__getitems__([self._row(index) for index in indices])

    def __iter__(self) -> Iterator[Any]:
        batches, _ = self.lists(([index] for index in range(len(self))), 1)
        return (sample for batch in batches for sample in batch)

    def reading(self, batches: Iterable[list[int]], workers: int) -> Reading:
        return self.whole.reading(self._rows(batches), workers)

    def lists(self, batches: Iterable[list[int]], workers: int) -> tuple[Iterator[list[Any]], ReadCounts]:
        return self.whole.lists(self._rows(batches), workers)

    def url_of(self, index: int) -> str:
        return self.whole.url_of(self._row(index))

    def reads(self, batches: Callable[[], Iterable[list[int]]] | None = None) -> Iterator[Reads]:
        every = [[*range(len(self))]]
        return self.whole.reads(lambda: self._rows(every if batches is None else batches()))

    def _rows(self, batches: Iterable[list[int]]) -> Iterator[list[int]]:
        return ([self._row(index) for index in batch] for batch in batches)

    def _row(self, index: SupportsIndex) -> int:
        row = self.rows[sample_number(index, len(self.rows))]
        return Repeat(row) if isinstance(index, Repeat) else row


def part_of(dataset: MapDataset, rows: slice | Sequence[int] | ArrayLike) -> MapDataset:
    """Return a dataset of the samples at ``rows``, a slice or a sequence of indices, in this order; reads nothing."""
    if isinstance(dataset, DatasetPart):
        return DatasetPart(dataset.whole, _pick_rows(dataset.rows, rows), dataset.catalog[rows])
    kind = type(dataset)
    for name in ("__len__", "__iter__"):
        if getattr(kind, name) is not getattr(MapDataset, name):
            raise Unusable(
                f"cannot take a part of {add_article(kind.__name__)}: it overrides {name}, so its samples are not one "
                "for "
                "each object of the catalog; give torch's DataLoader a Subset of it with "
                "batch_sampler=ps.BatchSampler(subset, …)"
            )
    if dataset.overrides:
        return DatasetPart(dataset, _pick_rows(range(len(dataset)), rows), dataset.catalog[rows])
    part = copy(dataset)
    part.catalog = dataset.catalog[rows]
    return part


def _pick_rows(known: range | Picked, rows: slice | Sequence[int] | ArrayLike) -> range | Picked:
    if isinstance(rows, slice):
        return known[rows]
    return pick_rows(known if isinstance(known, range) else known.values, positions(rows, len(known)))


T = TypeVar("T")


def without_subsets(dataset: T) -> T | BatchableDataset:
    """Return the part of a dataset that a torch ``Subset`` selects; other values, also its subclasses, unchanged."""
    whole: Any = dataset
    indices: NDArray[np.int64] | None = None
    while type(whole) is Subset:
        own = np.asarray(whole.indices)
        # A Subset of a Subset counts in the order of that one's indices, which a dataset of arrays does not keep.
        indices = own if indices is None else own[positions(indices, len(own))]
        whole = whole.dataset
    found = whole.subset(indices) if indices is not None and isinstance(whole, BatchableDataset) else None
    return dataset if found is None else found
