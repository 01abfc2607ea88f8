"""``ZarrDataset``: samples cut from n-dimensional arrays, each chunk read and decoded once."""

from __future__ import annotations

import warnings
from copy import copy
from typing import TYPE_CHECKING, Any, Literal, Never, TypeAlias

import numpy as np
import torch
from torch.utils.data import IterableDataset as TorchIterableDataset

from penstock.datasets.batched import BatchableDataset, Batched
from penstock.datasets.iterable import ResumableSamples
from penstock.datasets.planning.measure import plan_of
from penstock.datasets.planning.plan import Setting
from penstock.datasets.policy import in_lists
from penstock.datasets.positions.iteration import Iterations
from penstock.datasets.positions.stateful import StatefulIterator
from penstock.datasets.zarr.arguments import check_values, check_words, refuse_unknown
from penstock.datasets.zarr.contents import ZarrContents
from penstock.datasets.zarr.map import ZarrMap
from penstock.datasets.zarr.memory import blocks_of_lanes, limits_of, with_blocks
from penstock.datasets.zarr.objects.coordinates import aligned
from penstock.datasets.zarr.opening import opened
from penstock.datasets.zarr.pool import MemoryPool
from penstock.datasets.zarr.reading import ZarrReading
from penstock.datasets.zarr.samples.arguments import shape_of
from penstock.datasets.zarr.samples.arrangement import arrange
from penstock.datasets.zarr.samples.collation import Stacking
from penstock.datasets.zarr.spans import chunk_spans
from penstock.errors import Unusable
from penstock.order.indices import sample_indices
from penstock.order.lanes import Lanes
from penstock.order.orders import CatalogOrder, FullShuffle, order_of
from penstock.order.sampling import SamplingPlan
from penstock.values import whole

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from penstock.datasets.planning.plan import ZarrPlan
    from penstock.datasets.positions.place import PlaceLike
    from penstock.datasets.zarr.arrays import Missing
    from penstock.datasets.zarr.memory import Limits
    from penstock.datasets.zarr.samples.arrangement import Arrangement
    from penstock.datasets.zarr.samples.extraction import Part
    from penstock.options import StoreOptions
    from penstock.order.partition import Tail
    from penstock.order.sampling import Cursor
    from penstock.protocols.order import Order
    from penstock.source import Source as Store
    from penstock.values import Place, Span

__all__ = ["ZarrDataset"]

_MIB = 1 << 20

Align = Literal["index", "coordinates"]
Output = Literal["torch", "numpy"]
Source: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any] | Any"


class ZarrDataset(BatchableDataset, TorchIterableDataset[Any]):
    """Samples cut from Zarr arrays, read ahead; each chunk is read and decoded once per epoch.

    A sample is one index along ``dims``: of each array what lies there, whole along all other dimensions. So
    ``ps.ZarrDataset("s3://bucket/era5.zarr/t2m", dims="time")[…]`` yields ``array[t]`` for each ``t``. Samples are
    tensors; of a group or a mapping, a dict of them by name; with ``targets`` a tuple of both.

    ``shuffle=True`` permutes chunks, and mixes the samples of some of them (``window_bytes``), so that a chunk is read
    once although its samples are spread. ``penstock.DataLoader(dataset, B)`` and ``batched(B)`` form equal batches on
    every rank and resume exactly, as those of an ``IterableDataset`` do.

    Only an object that is not there (404) counts as a missing chunk; any other failure is an error.

    Args:
        samples: The URL of an array or group, or of references (``refs.json``, ``refs.json/tas``, ``refs.parq``); an
            open one of zarr's or xarray's (read by the URL of its store, or through a store without one); or a mapping
            from names to arrays. Of a group all arrays are read but coordinates (named as their own dimension, or in
            another's ``coordinates``).
        targets: The same, of targets.
        dims: The dimensions that samples are numbered along; default: the first of the first array. An array without
            one of them is the same for all samples along it.
        offsets: Elements that a sample takes along the first of ``dims``, relative to its own: ``(-1, 0)`` stacks two.
            A number takes one, and adds no dimension.
        target_offsets: The same of targets: ``range(1, 5)`` are the next four.
        stride: From one sample to the next along the first of ``dims``, or a mapping by dimension; default: 1, and the
            size of a patch.
        patch: Sizes of patches along other dimensions: ``{"lat": 64, "lon": 64}``. Where the last patch is incomplete
            it is left out.
        halo: Elements that samples, and not targets, have more on either side of a patch; or a mapping by dimension.
        select: What there is of a dimension: an index (which drops the dimension), a slice or a list.
        align: Which elements of several arrays belong together along ``dims``: ``"index"``, those of the same number;
            or ``"coordinates"``, those whose coordinate (the array in the same group that is named as the dimension)
            has the same value. Then ``select`` and ``valid`` count the common coordinates, ``offsets`` and ``stride``
            steps between them, and samples that would reach over a gap do not exist.
        valid: Which elements along ``dims`` may be used, as an array of bool; samples that would touch others do not
            exist.
        shuffle: Permute; or an order such as ``ps.BlockShuffle(…)``.
        seed: Of the order.
        window_bytes: Decoded bytes of the chunks whose samples are mixed with one another.
        lanes: Runs of chunks that are read in parallel, each by one rank: see ``ps.Lanes``. Default: one per rank.
        missing: What a chunk that was never written is: ``"fill"``, the array's fill value, or ``"error"``.
        decode_cf: Decode values by the CF attributes (``scale_factor``, ``add_offset``, ``_FillValue``, …) as xarray
            does; times stay numbers. Default: those of arrays that have such an attribute, or that xarray wrote.
        transform: Makes of a sample what is yielded.
        output: ``"torch"`` or ``"numpy"`` arrays.
        place: This process's rank, as in ``IterableDataset``.
        memory_bytes: What this process may hold: compressed chunks read ahead (``ReadOptions.ahead_bytes``), decoded
            chunks, arrays and coordinates that are kept, and four batches (a loader's ``prefetch=`` above 2 adds as
            many). Memory of chunks is kept for the next epoch. ``as_map()`` holds as much, and nothing for batches.
        store: Options, or the name of a profile.
        **unknown: None: arguments of other classes are refused with where they belong.

    Raises:
        Unusable: Arguments that cannot be meant, arrays that do not fit together, or too little memory.
        NotFound: Nothing is there.
        Damaged: The metadata cannot be what it says.
        Unsupported: It uses an extension that Penstock has not.

    """

    _own = True  # a sample's arrays are its own; else they may be views of chunks

    def __init__(  # noqa: PLR0913  see design/0045
        self,
        samples: Source,
        targets: Source | None = None,
        *,
        dims: str | Sequence[str] | None = None,
        offsets: int | Sequence[int] = 0,
        target_offsets: int | Sequence[int] = 0,
        stride: int | Mapping[str, int] | None = None,
        patch: Mapping[str, int] | None = None,
        halo: int | Mapping[str, int] = 0,
        select: Mapping[str, int | slice | Sequence[int]] | None = None,
        align: Align = "index",
        valid: ArrayLike | None = None,
        shuffle: bool | Order = False,
        seed: int = 0,
        window_bytes: int = 256 * _MIB,
        lanes: int | None = None,
        missing: Missing = "fill",
        decode_cf: bool | None = None,
        transform: Callable[[Any], Any] | None = None,
        output: Output = "torch",
        place: PlaceLike = None,
        memory_bytes: int = 1024 * _MIB,
        store: StoreOptions | str | None = None,
        **unknown: Never,
    ) -> None:
        """Read the metadata: two or three requests for each URL. Arguments are checked before the first of them."""
        refuse_unknown(unknown, ZarrDataset.__init__.__annotations__)
        self.transform = getattr(self, "transform", None) if transform is None else transform
        check_words(align=align, missing=missing, output=output, decode_cf=decode_cf, transform=self.transform)
        window_bytes, memory_bytes = whole(window_bytes, "window_bytes", 1), whole(memory_bytes, "memory_bytes", 1)
        order = order_of(shuffle)
        shape = shape_of(dims, (offsets, target_offsets), stride, (patch, halo), select, targets=targets is not None)
        self._seed, self._numpy = seed, output == "numpy"
        inputs = opened(samples, "samples", store, decode_cf=decode_cf)
        outputs = {} if targets is None else opened(targets, "targets", store, decode_cf=decode_cf)
        check_values({"samples": inputs, "targets": outputs}, numpy=self._numpy)
        self._groups = ([*inputs], None if targets is None else [*outputs])
        arrays = [*inputs.values(), *outputs.values()]
        common = aligned(arrays, shape.dims, memory_bytes) if align == "coordinates" else None
        layouts = [array.decoded for array in arrays]
        arrangement = arrange(layouts, len(outputs), shape, valid=valid, aligned=common, window_bytes=window_bytes)
        self._contents = ZarrContents(arrays, [*inputs, *outputs], arrangement, missing)
        self._order, self._blocks = _ordered(order, arrangement, window_bytes, lanes)
        self._iterations, self._lanes, self._memory_bytes = Iterations(place), lanes, memory_bytes
        self._limits = self._limited(1)
        self._contents.ahead_parts = self._limits.parts
        self._plan(1)  # an order that does not fit is refused here and now

    @property
    def contents(self) -> ZarrContents:
        """The arrays and the samples."""
        return self._contents

    @property
    def coordinates(self) -> dict[str, NDArray[Any]]:
        """With ``align="coordinates"``, the common coordinates by dimension, as they were compared; else none."""
        found = self._contents.arrangement.aligned
        return {} if found is None else dict(found.values)

    @property
    def decodes(self) -> bool:
        """True: chunks are decoded by several threads."""
        return True

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration epoch ``epoch``, also in persistent workers; later iterations count on from it."""
        self._iterations.epochs.set(epoch)

    def batched(
        self, batch_size: int, collate_fn: Callable[[list[Any]], Any] | None = None, *, tail: Tail = "short"
    ) -> Batched:
        """Return this dataset as batches of ``batch_size`` per rank: see ``IterableDataset.batched``.

        ``collate_fn`` takes a list of samples; default: arrays are stacked.
        """
        plan = self._plan(batch_size, tail)
        dataset = copy(self)
        dataset._limits = self._limited(plan.batch)  # noqa: SLF001  itself
        if collate_fn is None and self.transform is None:
            dataset._own = False  # noqa: SLF001  itself
            collate_fn = Stacking(MemoryPool(dataset._limits.batch_bytes), numpy=self._numpy)  # noqa: SLF001  itself
        return Batched(dataset, plan, self._iterations, collate_fn)

    def as_map(self) -> ZarrMap:
        """Return the samples by number, for random access: ``len(samples)``, ``samples[i]``, a loader with a sampler.

        They are numbered chunk by chunk, in the order of an unshuffled epoch. The chunks that were used last stay
        decoded, within ``memory_bytes`` of each process.
        """
        return ZarrMap(self._contents, self._made, self._limits.chunk_bytes)

    def plan(
        self,
        batch_size: int = 32,
        *,
        ranks: int = 1,
        workers: int = 0,
        latency_s: float = 0.03,
        bandwidth: float = 1.25e9,
        threads: int = 4,
    ) -> ZarrPlan:
        """Return what an epoch costs, with advice: ``print`` it, or ``to_html()``.

        Nothing of the epoch is read but eight chunks, for their size and the time that they take to be decoded.

        Args:
            batch_size: Samples of a batch, per rank.
            ranks: Processes that train.
            workers: Worker processes of each; 0: threads of the rank decode.
            latency_s: Seconds from a request to the first byte of its answer.
            bandwidth: Bytes per second of one rank.
            threads: Threads that decode, in each process: ``decode_threads`` of the loader.

        Raises:
            Unusable: An argument cannot be meant, or there is too little memory for such batches.
            PenstockError: A chunk cannot be read.

        """
        setting = Setting(batch_size, ranks, workers, latency_s, bandwidth, threads)
        sampling = self._plan(batch_size)
        return plan_of(self._contents, sampling, self._limited(sampling.batch), setting)

    @classmethod
    def from_prefix(cls, *_given: object, **_named: object) -> Never:
        """Refuse: the constructor takes the URL."""
        raise Unusable('a ZarrDataset is made of the URL of an array or group: ps.ZarrDataset(url, dims="time")')

    from_objects = from_manifest = from_catalog = from_prefix

    def __getitem__(self, index: object) -> Never:
        """Refuse: samples by number are ``as_map()``'s."""
        raise Unusable(
            f"a ZarrDataset is iterated over; samples by number are dataset.as_map()[{index!r}], and batches in any "
            "order penstock.DataLoader(dataset.as_map(), …)"
        )

    def url_of(self, index: int) -> str:
        """Return the URL of the first array with the place of sample ``index`` in it; IndexError: there is none."""
        if not 0 <= index < len(self._contents):
            raise IndexError(f"there is no sample {index}: there are {len(self._contents)}, from 0")
        positions = self._contents.arrangement.space.positions(np.array([index], dtype=np.int64))
        return self._contents.name_of(positions.tolist()[0])

    def reading(self, batches: Iterable[list[int]], workers: int) -> ZarrReading:
        """Return the samples of ``batches``, and the items that decode their chunks."""
        limits, cursor = self._limits, self._iterations.epochs.latest()
        if cursor.lanes and self._blocks:  # a state's lanes may be others than this dataset was made for: design/0057
            blocks = blocks_of_lanes(self._blocks, cursor.lanes, self._iterations.rank().world)
            limits, words = with_blocks(limits, self._contents.arrangement, blocks)
            if words:
                warnings.warn(words, stacklevel=2)
        together = None if self._own or self.transform is not None else self._rows  # one may have been set meanwhile
        return ZarrReading(self._contents, batches, workers, limits, self._made, together)

    def spans(self, batches: Iterable[list[int]] | None = None) -> tuple[Store, Iterator[Span]]:
        """Return the store, and where each chunk lies that a sample needs: see ``BatchableDataset.spans``."""
        some = ([index] for index in range(len(self._contents))) if batches is None else batches
        return self._contents.source, chunk_spans(self._contents, some)

    def __iter__(self) -> StatefulIterator:
        """Begin the next epoch, here and now; reads begin with the first ``next``."""
        plan = self._plan(1)

        def samples(cursor: Cursor, place: Place) -> Iterator[Any]:
            single = ([index] for index in sample_indices(plan, cursor, place))
            return (each for [each] in in_lists(self.reading(single, place.workers)))

        iterator = StatefulIterator(ResumableSamples(plan, self._contents, self._iterations), samples)
        iterator.begin()
        return iterator

    def _made(self, index: int, parts: Sequence[Sequence[Part]], values: Mapping[int, NDArray[Any]]) -> Any:  # noqa: ANN401, ARG002
        """Return what is yielded of a sample."""
        found: list[Any] = self._contents.assembled(parts, values, own=self._own)
        if self._own and not self._numpy:
            found = [torch.from_numpy(each) for each in found]
        inputs, targets = self._groups
        sample = _named(inputs, found)
        if targets is not None:
            sample = sample, _named(targets, found[len(inputs) :])
        return sample if self.transform is None else self.transform(sample)

    def _rows(self, columns: list[list[NDArray[Any]]]) -> list[Any]:
        """Return samples of what they take of each array, to be stacked."""
        inputs, targets = self._groups
        split = len(inputs)
        samples = _named_rows(inputs, columns[:split])
        return samples if targets is None else [*zip(samples, _named_rows(targets, columns[split:]), strict=True)]

    def _limited(self, batch: int) -> Limits:
        ahead_bytes = self._contents.arrays[0].source.options.read.ahead_bytes
        blocks = (
            blocks_of_lanes(self._blocks, self._lanes, self._iterations.rank().world) if self._lanes else self._blocks
        )
        arrangement, memory_bytes = self._contents.arrangement, self._memory_bytes
        return limits_of(arrangement, blocks, batch, memory_bytes=memory_bytes, ahead_bytes=ahead_bytes)

    def _plan(self, batch_size: int, tail: Tail = "short") -> SamplingPlan:
        samples = len(self._contents)
        return SamplingPlan(samples=samples, batch=batch_size, order=self._order, seed=self._seed, tail=tail)


def _ordered(order: Order, arrangement: Arrangement, window_bytes: int, lanes: int | None) -> tuple[Order, int]:
    """Return the order of samples that ``shuffle=`` means for arrays, and how many blocks of a lane it mixes."""
    shuffles = isinstance(order, FullShuffle)
    if not shuffles and not isinstance(order, CatalogOrder):
        if lanes is not None:
            raise Unusable("an order has lanes of its own: pass shuffle=ps.Lanes(…, lanes=…) and no lanes")
        return order, 0
    sizes = arrangement.space.sizes
    blocks = min(len(sizes), max(1, window_bytes // max(arrangement.block_bytes, 1))) if shuffles else 1
    alike = bool((sizes[:-1] == sizes[:1]).all() and sizes[-1] <= sizes[0])
    return Lanes(int(sizes[0]) if alike else sizes, blocks, lanes, shuffle=shuffles), blocks


def _named(names: Sequence[str], arrays: Sequence[Any]) -> Any:  # noqa: ANN401  one array, or a dict of them
    return arrays[0] if [*names] == [""] else dict(zip(names, arrays, strict=False))


def _named_rows(names: Sequence[str], columns: Sequence[list[Any]]) -> list[Any]:
    return columns[0] if [*names] == [""] else [_named(names, row) for row in zip(*columns, strict=True)]
