"""``ps.concat``: several datasets as one, in which each sample of each of them comes once.

The samples of the first dataset have the first numbers, then come those of the second, and so on.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, cast

import numpy as np
from torch.utils.data import Dataset

from penstock.data.datasets.batched import BatchableDataset, IndexedDataset
from penstock.data.datasets.dataset import CatalogDataset
from penstock.data.datasets.iterable import IterableDataset, OrderedIterable
from penstock.data.datasets.map import DatasetPart, MapDataset
from penstock.data.order.block_permutation import BlockShuffle
from penstock.data.order.lanes import Lanes
from penstock.data.order.orders import CatalogOrder, order_of
from penstock.data.order.sampling import Repeat, sample_number
from penstock.data.order.weighted import WeightedShuffle
from penstock.data.reading.iteration import Iterations
from penstock.data.reading.joint import JointMember, JointReading, shares
from penstock.data.reading.objects import MergedReading
from penstock.data.reading.reading import in_lists
from penstock.data.reading.runs import block_sizes, classes_of, fitted_order
from penstock.display import counted
from penstock.errors import Unusable, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.data.order.protocol import Order
    from penstock.data.reading.iteration import Contents, PlaceLike
    from penstock.data.reading.joint import Noted
    from penstock.data.reading.reading import Reading, Reads
    from penstock.source import Source

    Listed = MapDataset | IterableDataset


class JointContents:
    """The identity of the data of several datasets, at the URL of the first."""

    def __init__(self, parts: Sequence[Contents]) -> None:
        self.root, self.base = parts[0].root, parts[0].base
        self._parts = tuple(parts)

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of the digests of all parts, in order."""
        described = [[len(each), each.digest] for each in self._parts]
        return hashlib.sha256(f"penstock concat 1\n{json.dumps(described)}".encode()).hexdigest()


class JoinedDataset(BatchableDataset):
    """Base class of datasets that join the samples of several datasets, which read them."""

    parts: Sequence[BatchableDataset]  # the datasets, in order
    _portions: Sequence[int]  # the ``JointMember.share`` of each
    _lenient: frozenset[int] = frozenset()  # numbers of those whose samples are left out where they fail
    _noted: Noted | None = None

    def join(self, parts: Sequence[BatchableDataset], lengths: Sequence[int]) -> None:
        self.parts = tuple(parts)
        self._lengths, self._portions = lengths, [1] * len(lengths)
        self._bounds = [*accumulate(lengths, initial=0)]
        self._joint = JointContents([each.contents for each in parts if each.contents is not None])

    @property
    def contents(self) -> JointContents | None:
        return self._joint

    @property
    def decodes(self) -> bool:
        return any(each.decodes for each in self.parts)

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset().union(*(each.kinds for each in self.parts))

    def collated(self, batch: int) -> tuple[Self, Callable[[list[Any]], Any] | None]:
        """Return this dataset in the form to collate, and the collate function; torch's if parts differ."""
        if len(self.kinds) > 1:
            raise Unusable(
                f"a batch is one array, but the datasets have {' and '.join(sorted(self.kinds))}: pass the same "
                "length= and output= to all, or pass collate_fn="
            )
        found = [each.collated(batch) for each in self.parts]
        collate_fn = found[0][1]
        if any(other != collate_fn for _, other in found):
            return self, None
        dataset = copy(self)
        dataset.parts = tuple(part for part, _ in found)
        return dataset, collate_fn

    @property
    def skips(self) -> bool:
        return bool(self._lenient)

    def reading(self, batches: Iterable[list[int]], workers: int) -> Reading:
        return JointReading(self.members(), batches, self.split, workers, self._noted)

    def members(self) -> list[JointMember]:
        """Return the members of a joint reading: parts whose samples are objects of one store are read together."""
        groups: list[list[int]] = []
        stores: list[tuple[Source, list[int]]] = []
        for number, part in enumerate(self.parts):
            source = None if number in self._lenient else _find_store(part)
            group = next((group for store, group in stores if source is not None and store.shares(source)), None)
            if group is None:
                groups.append(group := [])
                stores += [] if source is None else [(source, group)]
            group.append(number)
        members = list[JointMember]()
        for group in groups:
            read = self.parts[group[0]].reading
            if len(group) > 1:
                read = partial(MergedReading, {number: cast("CatalogDataset", self.parts[number]) for number in group})
            share = max(1, round(1 / sum(1 / self._portions[number] for number in group)))
            members.append(JointMember(read, share, tuple(group), group[0] in self._lenient))
        return members

    @property
    def transforms(self) -> dict[str, Callable[[Any], Any] | None]:
        named = enumerate(self.parts)
        return {f"{name} of dataset {number}": each for number, part in named for name, each in part.transforms.items()}

    def split(self, batch: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the part number of each sample, and its number in the part."""
        bounds = self._bounds
        # Not by numpy, which lets go of the interpreter's lock: getting it back may take 0.1 ms.
        numbers = [bisect_right(bounds, index) - 1 for index in batch]
        indices = [index - bounds[number] for index, number in zip(batch, numbers, strict=True)]
        if Repeat in map(type, batch):
            indices = [
                Repeat(index) if type(given) is Repeat else index for index, given in zip(indices, batch, strict=True)
            ]
        return numbers, indices

    def url_of(self, index: int) -> str:
        [number], [inner] = self.split([index])
        return self.parts[number].url_of(inner)

    def reads(self, batches: Callable[[], Iterable[list[int]]] | None = None) -> Iterator[Reads]:
        for number, part in enumerate(self.parts):
            yield from part.reads(None if batches is None else partial(self._inner, batches, number))

    def _inner(self, batches: Callable[[], Iterable[list[int]]], part: int) -> Iterator[list[int]]:
        for numbers, indices in map(self.split, batches()):
            yield [index for number, index in zip(numbers, indices, strict=True) if number == part]


def _find_store(part: BatchableDataset) -> Source | None:
    """Return the store of a dataset that reads each sample in one request; None for others."""
    if not isinstance(part, CatalogDataset) or part.overrides or part.catalog.fields:
        return None
    return None if part._together() is not None else part._source  # noqa: SLF001  it has no other user


class _Concat(JoinedDataset):
    """Concatenated datasets."""

    # The datasets, in order; each keeps its transform and its store.
    parts: tuple[Any, ...]  # Listed; of datasets of another kind, their own
    # The names of the classes: the union of those of the parts, sorted. ``sample.label`` is a number in it.
    classes: tuple[str, ...] = ()

    def __init__(self, parts: Sequence[Listed]) -> None:
        self.classes, named = unify_labels(parts)
        self.join(named, [len(each.catalog) for each in named])

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
        if not isinstance(order, CatalogOrder):
            # In catalog order, one part reads at a time.
            dataset._portions = shares(self._lengths)  # noqa: SLF001  itself
        return dataset

    def _fit_order(self, shuffle: object) -> Order:
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

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {counted(self._bounds[-1], 'sample')} in {counted(len(self.parts), 'part')}>"


def _within(order: Order, start: int, stop: int, total: int) -> Order:
    """Return the order of the part that has the samples from ``start`` to ``stop``: with the blocks in it."""
    if not isinstance(order, (BlockShuffle, Lanes)) or order.block_samples is None:
        return order
    sizes = order.block_samples
    borders = np.arange(0, total, sizes) if isinstance(sizes, int) else np.cumsum(np.asarray(sizes, dtype=np.int64))
    inner = borders[(borders > start) & (borders < stop)]
    return replace(order, block_samples=np.diff(np.concatenate(([start], inner, [stop]))))


class ConcatMap(_Concat, IndexedDataset, Dataset[Any]):
    """Concatenated map-style datasets, as ``ps.concat`` makes them.

    ``dataset[i]`` is a sample of one of the parts, as that part reads it; slices, loaders, samplers, resume and
    ``on_error`` work as with a ``MapDataset``.

    Attributes:
        parts: The datasets, in order; each keeps its transform and its store.
        classes: The names of the classes: the union of those of the parts, sorted.
    """

    def __len__(self) -> int:
        return self._bounds[-1]

    def __getitem__(self, index: SupportsIndex | slice) -> Any:  # noqa: ANN401  the transform decides the type
        """Read one sample; for a slice, return a dataset without reading."""
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


class ConcatIterable(_Concat, OrderedIterable):
    """Concatenated datasets, at least one of them iterable: see ``ConcatMap`` and ``IterableDataset``."""

    def __init__(
        self, parts: Sequence[Listed], *, shuffle: bool | Order = False, seed: int = 0, place: PlaceLike = None
    ) -> None:
        super().__init__(parts)
        self._order, self._seed, self._iterations = self._fit_order(shuffle), seed, Iterations(place)
        # Refuses an order that does not fit.
        self._plan(1)


def concat(
    *datasets: BatchableDataset, shuffle: bool | Order = False, seed: int = 0, place: PlaceLike = None
) -> ConcatMap | ConcatIterable:
    """Return one dataset of all samples of several: other prefixes, buckets, stores, credentials, formats.

    The result is map-style if all of them are (with a length, indices and slices), or else iterable.

    Each dataset keeps its store and its transform; order, ranks, workers, resume and ``on_error`` go over all samples.
    Blocks that are cut by bytes (``ps.order.Lanes()``) end where a dataset ends. Makes no request.

    If datasets have classes, those of the result are their union, sorted by name, and labels are numbers in it. Samples
    of datasets without classes keep the labels that they have.

    Token datasets join token datasets: of several stores, of several types of tokens, of slices. Arrays of several
    stores are joined by ``ps.ZarrDataset(…, along="time")``.

    Args:
        *datasets: The datasets, in the order of their samples: ``MapDataset``, ``IterableDataset`` and results of
            ``concat``; or ``TokenDataset`` and its results.
        shuffle: Order of all samples, if one of the datasets is an ``IterableDataset``, which then has no ``shuffle``
            of its own. Map-style datasets alone are ordered by the loader: ``ps.DataLoader(dataset, …, shuffle=True)``.
        seed: Seed of the order, as for ``IterableDataset``.
        place: This process's rank, as for ``IterableDataset``.

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
        if not isinstance(each, OrderedIterable):
            continue
        if not isinstance(each._order, CatalogOrder):  # noqa: SLF001
            raise Unusable("the parts of ps.concat must have no order: call ps.concat(…, shuffle=True) instead")
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
    """Refuse all but datasets of a catalog, with one sample for each entry."""
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
    """Return the union of all parts' classes, and the parts with labels numbered by it."""
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
