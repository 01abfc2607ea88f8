"""``ps.concat``: several datasets as one, in which each sample of each of them comes once."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Self, SupportsIndex

import numpy as np
from torch.utils.data import Dataset
from torch.utils.data import IterableDataset as TorchIterableDataset

from penstock.data.datasets.batched import BatchableDataset, Batched
from penstock.data.datasets.iterable import IterableDataset, ResumableSamples
from penstock.data.datasets.joined import JoinedDataset
from penstock.data.datasets.map import DatasetPart, MapDataset
from penstock.data.datasets.stateful import StatefulIterator
from penstock.data.order.blocks import BlockShuffle
from penstock.data.order.indices import sample_indices
from penstock.data.order.lanes import Lanes
from penstock.data.order.orders import CatalogOrder, order_of
from penstock.data.order.partition import sample_number
from penstock.data.order.sampling import SamplingPlan
from penstock.data.order.weighted import WeightedShuffle
from penstock.data.reading.iteration import Iterations
from penstock.data.reading.joint import shares
from penstock.data.reading.reading import in_lists
from penstock.data.reading.runs import block_sizes, classes_of, fitted_order
from penstock.display import counted
from penstock.errors import Unusable, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.data.order.partition import Tail
    from penstock.data.order.protocol import Order
    from penstock.data.order.sampling import Cursor
    from penstock.data.reading.iteration import PlaceLike
    from penstock.values import Place

    Listed = MapDataset | IterableDataset


class _Concat(JoinedDataset):
    """Datasets end to end."""

    # The datasets, in order; each keeps its transform and its store.
    parts: tuple[Any, ...]  # Listed; of datasets of another kind, their own
    # The names of the classes: the union of those of the parts, sorted. ``sample.label`` is a number in it.
    classes: tuple[str, ...] = ()
    _mixed = False

    def __init__(self, parts: Sequence[Listed]) -> None:
        self.classes, named = unify_labels(parts)
        self.join(named, [len(each.catalog) for each in named])

    def portions(self) -> list[int]:
        return shares(self._lengths) if self._mixed else super().portions()

    def with_parts(self, classes: tuple[str, ...], parts: Sequence[BatchableDataset]) -> Self:
        """Return this dataset of the same ``parts`` with labels that are numbers in ``classes``."""
        dataset = copy(self)
        dataset.classes = classes
        dataset.join(parts, self._lengths)
        return dataset

    def ordered(self, order: Order, iterations: Iterations | None = None) -> Self:
        dataset = copy(self)
        bounds = self._bounds
        dataset.parts = tuple(
            part.ordered(_within(order, bounds[number], bounds[number + 1], bounds[-1]), iterations)
            for number, part in enumerate(self.parts)
        )
        dataset._mixed = not isinstance(order, CatalogOrder)  # noqa: SLF001  itself
        return dataset

    def fitted(self, shuffle: object) -> Order:
        """Return the order for ``shuffle=``, with blocks cut by bytes within the parts."""
        order = order_of(shuffle)
        # Refuses orders that would decode a unit again and again.
        limits = [fitted_order(order, part.catalog) for part in self.parts if part.catalog.units is not None]
        if isinstance(order, WeightedShuffle) and order.needs_classes:
            return order.fitted(*classes_of([part.catalog for part in self.parts], order.by))
        if not isinstance(order, (BlockShuffle, Lanes)):
            return order
        fitted = order.fitted(self._block_sizes)
        windows = [each.window_blocks or 1 for each in limits if isinstance(each, (BlockShuffle, Lanes))]
        return replace(fitted, window_blocks=min(windows)) if windows and order.block_bytes else fitted

    def _block_sizes(self, block_bytes: int) -> NDArray[np.int64]:
        found = [block_sizes(part.catalog, block_bytes) for part in self.parts]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def _size(self) -> int:
        return self._bounds[-1]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {counted(self._size(), 'sample')} in {counted(len(self.parts), 'part')}>"


def _within(order: Order, start: int, stop: int, total: int) -> Order:
    """Return the order of the part that has the samples from ``start`` to ``stop``: with the blocks that lie in it."""
    if not isinstance(order, (BlockShuffle, Lanes)) or order.block_samples is None:
        return order
    sizes = order.block_samples
    borders = np.arange(0, total, sizes) if isinstance(sizes, int) else np.cumsum(np.asarray(sizes, dtype=np.int64))
    inner = borders[(borders > start) & (borders < stop)]
    return replace(order, block_samples=np.diff(np.concatenate(([start], inner, [stop]))))


class ConcatMap(_Concat, Dataset[Any]):
    """Map-style datasets end to end, as ``ps.concat`` makes them.

    ``dataset[i]`` is a sample of one of the parts, as that part reads it; slices, loaders, samplers, resume and
    ``on_error`` work as with a ``MapDataset``.

    Attributes:
        parts: The datasets, in order; each keeps its transform and its store.
        classes: The names of the classes: the union of those of the parts, sorted.

    """

    takes_order = True

    def __len__(self) -> int:
        return self._size()

    def __getitem__(self, index: SupportsIndex | slice) -> Any:  # noqa: ANN401  the transform decides the type
        """Read one sample; for a slice, return a dataset without reading.

        Raises:
            IndexError: There is no such sample.

        """
        if isinstance(index, slice):
            return self._sliced(range(len(self))[index])
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        """Read a batch with all its requests in flight at once; each part transforms its samples."""
        batch = [sample_number(index, len(self)) for index in indices]
        return [sample for made in in_lists(self.reading([batch], 1)) for sample in made] if batch else []

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self.parts)

    def _sliced(self, rows: range) -> Self:
        found, step = list[Any](), rows.step
        for part, start, stop in zip(self.parts, self._bounds, self._bounds[1:], strict=False):
            low = -(-(start - rows.start) // step) if step > 0 else -(-(stop - 1 - rows.start) // step)
            high = -(-(stop - rows.start) // step) if step > 0 else (start - rows.start) // step + 1
            mine = rows[max(low, 0) : max(high, 0)]
            if len(mine):
                last = mine.stop - start
                found.append(part[mine.start - start : None if last < 0 else last : step])
        return type(self)(found[:: 1 if step > 0 else -1] or [self.parts[0][:0]])

    def batched(
        self,
        batch_size: int,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        *,
        shuffle: bool | Order = False,
        seed: int = 0,
        tail: Tail = "short",
        place: PlaceLike = None,
    ) -> Batched:
        """Return this dataset as batches, for ``DataLoader(batch_size=None)``: see ``MapDataset.batched``.

        Args:
            batch_size: Samples per batch and rank.
            collate_fn: Function from a list of samples to a batch: see ``IterableDataset.batched``.
            shuffle: Permute all samples anew each epoch; or an order, such as ``ps.order.BlockShuffle(…)``.
            seed: Seed of the order.
            tail: Controls the incomplete last batch: see ``IterableDataset.batched``.
            place: This process's rank, as for ``IterableDataset``.

        """
        order, iterations = self.fitted(shuffle), Iterations(place)
        plan = SamplingPlan(samples=len(self), batch=batch_size, order=order, seed=seed, tail=tail)
        dataset, collate_fn = self.collated(plan.batch) if collate_fn is None else (self, collate_fn)
        return Batched(dataset.ordered(order, iterations), plan, iterations, collate_fn)


class ConcatIterable(_Concat, TorchIterableDataset[Any]):
    """Datasets end to end, of which at least one is iterable, as ``ps.concat`` makes them: see ``IterableDataset``.

    Attributes:
        parts: The datasets, in order; each keeps its transform and its store.
        classes: The names of the classes: the union of those of the parts, sorted.

    """

    def __init__(
        self,
        parts: Sequence[Listed],
        *,
        shuffle: bool | Order = False,
        seed: int = 0,
        place: PlaceLike = None,
    ) -> None:
        super().__init__(parts)
        self._order, self._seed, self._iterations = self.fitted(shuffle), seed, Iterations(place)
        # Refuses an order that does not fit.
        self._plan(1)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration: see ``IterableDataset.set_epoch``.

        Args:
            epoch: Number of the epoch, from 0.

        """
        self._iterations.set_epoch(epoch)

    def batched(
        self, batch_size: int, collate_fn: Callable[[list[Any]], Any] | None = None, *, tail: Tail = "short"
    ) -> Batched:
        """Return batches, for ``DataLoader(batch_size=None)``: see ``IterableDataset.batched``.

        Args:
            batch_size: Samples per batch and rank.
            collate_fn: Function from a list of samples to a batch: see ``IterableDataset.batched``.
            tail: Controls the incomplete last batch: see ``IterableDataset.batched``.

        """
        iterations = self._iterations.apart()
        dataset = self.ordered(self._order, iterations)
        return Batched(dataset, self._plan(batch_size, tail), iterations, collate_fn)

    def __iter__(self) -> StatefulIterator:
        plan, dataset = self._plan(1), self.ordered(self._order, self._iterations)

        def samples(cursor: Cursor, place: Place) -> Iterator[Any]:
            indices = sample_indices(plan, cursor, place)
            return (each for [each] in in_lists(dataset.reading(([index] for index in indices), place.workers)))

        iterator = StatefulIterator(ResumableSamples(plan, self.contents, self._iterations), samples)
        iterator.begin()
        return iterator

    def _plan(self, batch_size: int, tail: Tail = "short") -> SamplingPlan:
        return SamplingPlan(samples=self._size(), batch=batch_size, order=self._order, seed=self._seed, tail=tail)


def concat(
    *datasets: BatchableDataset,
    shuffle: bool | Order = False,
    seed: int = 0,
    place: PlaceLike = None,
) -> ConcatMap | ConcatIterable:
    """Return one dataset of all samples of several: other prefixes, buckets, stores, credentials, formats.

    Each dataset keeps its store and its transform; order, ranks, workers, resume and ``on_error`` go over all samples.
    Blocks that are cut by bytes (``ps.order.Lanes()``) end where a dataset ends. Makes no request.

    If datasets have classes, those of the result are their union, sorted by name, and labels are numbers in it. Samples
    of datasets without classes keep the labels that they have.

    Token datasets join token datasets: of several stores, of several types of tokens, of slices. Arrays of several
    stores are joined by ``ps.ZarrDataset(…, along="time")``.

    Args:
        *datasets: The datasets, in the order of their samples: ``MapDataset``, ``IterableDataset`` and what ``concat``
            returns; or ``TokenDataset`` and what it returns.
        shuffle: Order of all samples, if one of the datasets is an ``IterableDataset``, which then has no ``shuffle``
            of its own. Map-style datasets alone are ordered by the loader: ``ps.DataLoader(dataset, …, shuffle=True)``.
        seed: Seed of the order, as for ``IterableDataset``.
        place: This process's rank, as for ``IterableDataset``.

    Returns:
        A map-style dataset if all of them are map-style (it has a length, indices and slices), or else an iterable one.

    Raises:
        Unusable: There is no dataset, one is of another type, or an argument is invalid.

    Example:
        >>> objects = ps.MapDataset.from_prefix("s3://bucket/train/", transform=lambda sample: sample.size)
        >>> shards = ps.MapDataset.from_shards("s3://bucket/shards/", transform=lambda sample: sample["png"].size)
        >>> both = ps.concat(objects, shards)
        >>> len(both), both[0] > 0, sum(map(len, ps.DataLoader(both, 100, shuffle=True)))
        (1200, True, 1200)

    """
    parts: list[Any] = []
    for each in datasets:
        given: Any = each
        parts += given.parts if isinstance(given, _Concat) else [given]
    kinds = (each.end_to_end for each in parts if isinstance(each, BatchableDataset))
    kind: Callable[[Sequence[Any]], Any] | None = next(filter(None, kinds), None)
    if kind is None:
        _check_datasets(parts)
        kind = ConcatMap if all(isinstance(part, MapDataset) for part in parts) else None
    if kind is not None:
        if shuffle is not False or seed or place is not None:
            raise Unusable("shuffle, seed and place of map-style datasets are the loader's: ps.DataLoader(dataset, …)")
        joined: ConcatMap = kind(parts)
        return joined
    for number, each in enumerate(datasets):
        if not isinstance(each, (IterableDataset, ConcatIterable)):
            continue
        if not isinstance(each._order, CatalogOrder):  # noqa: SLF001
            raise Unusable("the order is one over all samples: ps.concat(…, shuffle=True), and datasets without one")
        each._iterations.check_replaced(place, f"dataset {number}", "pass it to concat: ps.concat(…, place=…)")  # noqa: SLF001
    return ConcatIterable(parts, shuffle=shuffle, seed=seed, place=place)


_SINGLY = ": give its datasets one by one, ps.concat(*datasets)"
_INSTEAD = {
    "ZarrDataset": ': arrays of several stores are joined by ps.ZarrDataset([…], along="time")',
    "Mix": ": give its sources to one ps.Mix",
    "list": _SINGLY,
    "tuple": _SINGLY,
}


def _check_datasets(parts: Sequence[Any]) -> None:
    """Refuse what is not a dataset of a catalog, one sample for each of its entries."""
    if not parts:
        raise Unusable("concat takes datasets: ps.concat(first, second)")
    for part in parts:
        if not isinstance(part, (MapDataset, IterableDataset)):
            raise Unusable(
                f"concat takes MapDataset and IterableDataset, or TokenDataset, got {kind_of(part)}"
                f"{_INSTEAD.get(type(part).__name__, '')}"
            )
        kind = MapDataset if isinstance(part, MapDataset) else IterableDataset
        for name in ("__len__", "__iter__"):
            if getattr(type(part), name, None) is not getattr(kind, name, None) and not isinstance(part, DatasetPart):
                raise Unusable(f"cannot concatenate {kind_of(part)}: it overrides {name}")


def unify_labels(parts: Sequence[Listed]) -> tuple[tuple[str, ...], tuple[Listed, ...]]:
    """Return the union of the classes of all parts, and the parts with labels that are numbers in it."""
    known = {each.classes for each in parts} - {()}
    if len(known) <= 1:
        return next(iter(known), ()), tuple(parts)
    classes = tuple(sorted(set().union(*known)))
    found: list[Listed] = []
    for part in parts:
        if part.classes in ((), classes):
            found.append(part)
            continue
        if isinstance(part, DatasetPart):
            raise Unusable(
                "the datasets have different classes, and a slice of a subclass that reads its samples itself keeps "
                "its own: give all catalogs the same with_labels(…, classes=…)"
            )
        names = np.array(part.classes)[part.catalog.labels].tolist()
        other = copy(part)
        other.catalog = part.catalog.with_labels(names, classes=classes)
        found.append(other)
    return classes, tuple(found)
