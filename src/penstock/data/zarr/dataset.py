"""``ZarrDataset``: samples cut from n-dimensional arrays; each chunk is read and decoded once."""

from __future__ import annotations

import os
import warnings
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Never, TypeAlias

import numpy as np
from torch.utils.data import IterableDataset as TorchIterableDataset

from penstock.data.datasets.batched import BatchableDataset, Batched
from penstock.data.datasets.iterable import ResumableSamples
from penstock.data.datasets.stateful import StatefulIterator
from penstock.data.order.lanes import Lanes, open_blocks
from penstock.data.order.orders import CatalogOrder, FullShuffle, order_of
from penstock.data.order.sampling import SamplingPlan, sample_indices
from penstock.data.order.weighted import WeightedBlocks
from penstock.data.ranks import share_named
from penstock.data.reading.iteration import Iterations
from penstock.data.reading.pool import MemoryPool
from penstock.data.reading.reading import in_lists
from penstock.data.zarr.arguments import (
    check_along,
    check_switches,
    check_values,
    check_words,
    names_of,
    refuse_unknown,
    shape_of,
    with_chosen,
)
from penstock.data.zarr.arrays.opening import Manner, open_inputs
from penstock.data.zarr.arrays.stored import alike
from penstock.data.zarr.borders import along_of, divide_elements, sides, subset_of
from penstock.data.zarr.chunks.contents import ZarrContents
from penstock.data.zarr.chunks.limits import limits_of, with_blocks
from penstock.data.zarr.chunks.reading import ZarrMap, ZarrReading, chunk_spans
from penstock.data.zarr.coordinates import check_places, compare_coordinates
from penstock.data.zarr.measure import plan_of
from penstock.data.zarr.plan import TrainingSetting
from penstock.data.zarr.samples.arrangement import arrange, default_dims, dims_of
from penstock.data.zarr.samples.weights import sample_weights
from penstock.data.zarr.statistics.gathering import check_normals, gather_moments
from penstock.data.zarr.statistics.record import ZarrStatistics, normalize_arrays
from penstock.data.zarr.values import Stacking, Values, float_type
from penstock.errors import Unusable
from penstock.values import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import torch
    from numpy.typing import ArrayLike, NDArray

    from penstock.data.order.protocol import Order
    from penstock.data.order.sampling import Cursor, Tail
    from penstock.data.reading.iteration import PlaceLike
    from penstock.data.zarr.arrays.stored import Missing, StoredArray
    from penstock.data.zarr.borders import Along, Border, Gap
    from penstock.data.zarr.chunks.limits import Limits
    from penstock.data.zarr.format.layout import Layout
    from penstock.data.zarr.plan import ZarrPlan
    from penstock.data.zarr.samples.alignment import Alignment
    from penstock.data.zarr.samples.arrangement import Arrangement, Shape
    from penstock.data.zarr.samples.extraction import ChunkPart
    from penstock.options import StoreOptions
    from penstock.source import Source as Store
    from penstock.values import Place, Span

_MIB = 1 << 20
_MOST_CHUNKS = 1 << 15  # of a window: each takes some microseconds and 300 bytes, however small

Align = Literal["index", "coordinates"]
Output = Literal["torch", "numpy"]
Source: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any] | Any"


class ZarrDataset(BatchableDataset, TorchIterableDataset[Any]):
    """Samples cut from Zarr arrays, with read-ahead; each chunk is read and decoded once per epoch.

    A sample is one index along ``dims``, and contains all elements of each array along the other dimensions. So
    ``ps.ZarrDataset("s3://bucket/era5.zarr/t2m", dims="time")`` yields ``array[t]`` for each ``t``. A sample is a
    tensor; for a group or a mapping, a dict of tensors by name; with ``targets``, a tuple of samples and targets.

    ``shuffle=True`` permutes chunks, and mixes the samples of several chunks (``window_bytes``). So a chunk is read
    once although its samples are spread. ``penstock.DataLoader(dataset, B)`` and ``batched(B)`` form equal batches on
    every rank and resume exactly, like an ``IterableDataset``.

    Only an absent object (404) counts as a missing chunk; any other failure is an error.

    Args:
        samples: The URL of an array or group, or of references (``refs.json``, ``refs.json/tas``, ``refs.parq``); an
            open object of zarr or xarray (read by the URL of its store, or through the store if it has no URL); or a
            mapping from names to arrays. A group gives all its arrays except coordinates (arrays named as their own
            dimension, or listed in the attribute ``coordinates``, ``bounds``, ``grid_mapping`` or
            ``ancillary_variables`` of another array).
        targets: Targets, in the same forms as ``samples``.
        along: Join several stores along this dimension, as ``xarray.concat`` does: ``samples`` (or ``targets``, or
            values of a mapping) are then lists of stores, in order, or URLs with wildcards
            (``"s3://bucket/era5/*.zarr"``). A name that no array has adds a dimension, with an element for each store.
            Coordinates must continue each other from store to store: overlaps are errors, and so are gaps unless
            ``align`` is given. Chunks may differ in length along the dimension; codecs may differ, too.
        dims: The dimensions that samples are numbered along; default: the first dimension of the sample array with the
            most dimensions. An array without one of them is the same for all samples along it.
        offsets: Elements that a sample takes along the first of ``dims``, relative to its own index: ``(-1, 0)`` stacks
            two. A number takes one element, and adds no dimension.
        target_offsets: Like ``offsets``, for targets: ``range(1, 5)`` takes the next four.
        stride: Elements from one sample to the next along the first of ``dims``, or a mapping by dimension; default: 1,
            and along a patched dimension the size of the patch.
        patch: Sizes of patches along other dimensions, ``{"lat": 64, "lon": 64}``; an incomplete last one is left out.
        halo: Extra elements on either side of a patch, for samples and not for targets; or a mapping by dimension.
        scale: Elements of the finer arrays for each element of the coarsest, along patched dimensions; or a mapping by
            dimension. ``patch``, ``halo``, ``stride`` and ``select`` count elements of the coarsest, and the finer
            arrays give the same area. Where arrays have coordinates, they are compared.
        select: The elements of a dimension to use: an index (which drops the dimension), a slice or a list.
        align: Pairing of elements of several arrays along ``dims``. ``"index"``: by number, regardless of their times
            and the coordinates of patches. ``"coordinates"``: by equal values of the coordinate (the array in the
            same group that is named as the dimension); then ``select`` and ``valid`` count common coordinates,
            ``offsets`` and ``stride`` count steps between them, and samples that would reach over a gap do not exist.
            Default: by number; but where arrays have times, samples that would pair different times, or
            reach over a gap in time, are errors; so are patches of different places, and fields in reverse.
        valid: Elements along ``dims`` that may be used, as an array of bool; samples that would touch other elements do
            not exist.
        shuffle: True to permute samples; or an order such as ``ps.order.BlockShuffle(…)``.
        seed: Seed of the order.
        window_bytes: Decoded bytes of the chunks whose samples are mixed with one another: at most 32,768 chunks.
        lanes: Runs of chunks read in parallel, each by one rank: see ``ps.order.Lanes``; default: one per rank.
        missing: Value of a chunk that was never written: ``"fill"`` for the fill value of the array, or ``"error"``.
        forbidden_is_missing: Also treat a refusal (403) as a missing object; default: False. S3 answers 403 to callers
            without permission to list the bucket, so a public dataset may need it. But then chunks that you may not
            read count as missing. An open array of a ``Store`` that has this option does not need the argument.
        decode_cf: Whether to decode values by the CF attributes (``scale_factor``, ``add_offset``, ``_FillValue``, …)
            as xarray does; times stay numbers. Default: decode arrays with such an attribute, and floating-point arrays
            that xarray wrote. True: decode also integers whose only such attribute is the Zarr v2 ``fill_value``.
        normalize: Statistics (``dataset.statistics()``), or the URL of a file of them: each array becomes
            ``(values - mean) / std``, as float32, or in its own type of floats. Arrays whose statistics are left out
            (``statistics.only(…)``) stay as they are.
        transform: Function from a sample to the value that is yielded.
        output: ``"torch"`` for tensors or ``"numpy"`` for arrays.
        dtype: Type that floating-point values become as they are copied into a sample or batch: ``torch.bfloat16``,
            ``torch.float16``, ``torch.float32`` or ``torch.float64``, or its name; default: their own type. Integers
            stay as they are. Values beyond the range of float16 are errors.
        place: The rank of this process, as in ``IterableDataset``.
        memory_bytes: Memory of this process: compressed chunks read ahead (``ReadOptions.ahead_bytes``), decoded
            chunks, arrays and coordinates that are kept, and four batches (a ``prefetch=`` above 2 in the loader adds
            as many). The memory of chunks is kept for the next epoch. ``as_map()`` uses the same limits, without
            batches.
        store: Options, or the name of a profile; default: environment and profile, or those of an open ``Store``.
        **unknown: Not accepted: the error for an unknown argument says where it belongs.

    Raises:
        Unusable: An argument is invalid, the arrays do not fit together, or there is too little memory.
        NotFound: The URL has neither an array nor a group.
        Damaged: The metadata is invalid.
        Unsupported: The metadata uses an extension that Penstock does not support.

    Example:
        >>> import zarr
        >>> from penstock.interop.zarr import Store
        >>> zarr.save_array(Store("s3://bucket/t2m.zarr"), np.arange(12, dtype="f4").reshape(4, 3))
        >>> dataset = ps.ZarrDataset("s3://bucket/t2m.zarr", shuffle=True)
        >>> next(iter(ps.DataLoader(dataset, batch_size=2))).shape
        torch.Size([2, 3])
    """

    # True: the arrays of a sample are copies. False: they may be views of chunks.
    _own = True

    def __init__(  # noqa: PLR0913  see design/0045
        self,
        samples: Source,
        targets: Source | None = None,
        *,
        along: str | None = None,
        dims: str | Sequence[str] | None = None,
        offsets: int | Sequence[int] = 0,
        target_offsets: int | Sequence[int] = 0,
        stride: int | Mapping[str, int] | None = None,
        patch: Mapping[str, int] | None = None,
        halo: int | Mapping[str, int] = 0,
        scale: int | Mapping[str, int] | None = None,
        select: Mapping[str, int | slice | Sequence[int]] | None = None,
        align: Align | None = None,
        valid: ArrayLike | None = None,
        shuffle: bool | Order = False,
        seed: int = 0,
        window_bytes: int = 256 * _MIB,
        lanes: int | None = None,
        missing: Missing = "fill",
        forbidden_is_missing: bool = False,
        decode_cf: bool | None = None,
        normalize: ZarrStatistics | str | os.PathLike[str] | None = None,
        transform: Callable[[Any], Any] | None = None,
        output: Output = "torch",
        dtype: torch.dtype | str | None = None,
        place: PlaceLike = None,
        memory_bytes: int = 1024 * _MIB,
        store: StoreOptions | str | None = None,
        **unknown: Never,
    ) -> None:
        """Read the metadata: two or three requests for each URL. Arguments are checked before the first request.

        Of a process group, one rank makes the requests, if arrays are named by URL, and sends the result to the others.

        Times are also read if paired arrays do not share them, or if samples take several steps.
        """
        refuse_unknown(unknown, ZarrDataset.__init__.__annotations__)
        self.transform = getattr(self, "transform", None) if transform is None else transform
        check_words(align=align, missing=missing, output=output, transform=self.transform)
        check_switches(decode_cf=decode_cf, forbidden_is_missing=forbidden_is_missing, along=along)
        window_bytes, memory_bytes = whole(window_bytes, "window_bytes", 1), whole(memory_bytes, "memory_bytes", 1)
        order = order_of(shuffle)
        patches, has_targets = (patch, halo, scale), targets is not None
        shape = shape_of(dims, (offsets, target_offsets), stride, patches, select, targets=has_targets)
        self._seed, numpy, dtype = seed, output == "numpy", float_type(dtype)
        manner = Manner(store, decode_cf, forbidden_is_missing, along)
        find = partial(_find_arrays, samples, targets, manner, shape, align, memory_bytes)
        given = [samples, *([] if targets is None else [targets])]
        arguments = manner._replace(store=None), shape, align, memory_bytes
        inputs, outputs, known, aligned = share_named(given, store, "arrays of", arguments, find)
        check_along(along, [*inputs.values(), *outputs.values()])
        check_values({"samples": inputs, "targets": outputs}, numpy=numpy)
        self._values = Values((*inputs,), None if targets is None else (*outputs,), numpy, dtype)
        self._arrays = arrays = self._normal(normalize, [*inputs.values(), *outputs.values()])
        self._values.check(self._layouts())
        shape = with_chosen(replace(shape, dims=known, valid=valid), arrays, align=align)
        # Calls of partial: a part of this dataset is arranged anew.
        self._arranged = partial(arrange, targets=len(outputs), aligned=aligned, window_bytes=window_bytes)
        self._contained = partial(ZarrContents, names=[*inputs, *outputs], missing=missing)
        self._sequence = partial(_resolve_order, order, window_bytes=window_bytes, lanes=lanes)
        self._patch, self._place, self._lanes, self._memory_bytes = shape.patch, place, lanes, memory_bytes
        self._arrange(self._arrangement(shape), shape)

    def _arrangement(self, shape: Shape) -> Arrangement:
        return self._arranged(self._layouts(), shape=shape, same=alike(self._arrays))

    def _layouts(self) -> list[Layout]:
        return [array.decoded for array in self._arrays]

    def _arrange(self, arrangement: Arrangement, shape: Shape | None) -> None:
        """Use the samples of an arrangement; without a shape (None), a subset of them."""
        arrangement = arrangement._replace(sample_bytes=self._values.sample_bytes(arrangement, self._layouts()))
        self._shape, self._contents = shape, self._contained(self._arrays, arrangement=arrangement)
        if any(array.normal is not None for array in self._arrays):
            check_normals(self._contents)
        self._set_order(*self._sequence(arrangement=arrangement))

    def _set_order(self, order: Order, blocks: int) -> None:
        """Start again with an order that mixes ``blocks`` in each lane."""
        self._order, self._blocks, self._iterations = order, blocks, Iterations(self._place)
        self._limits = self._limited(1)
        self._contents.ahead_parts = self._limits.parts
        # Reject an order that does not fit here, in the constructor.
        self._plan(1)

    def __len__(self) -> int:
        """Return the number of samples of an epoch, over all ranks."""
        return self._plan(1).total

    def __repr__(self) -> str:
        names = ", ".join(name or "an array" for name in self.contents.names)
        return f"<ZarrDataset of {len(self):,} samples of {names}>"

    @property
    def contents(self) -> ZarrContents:
        """The arrays and the samples."""
        return self._contents

    @property
    def coordinates(self) -> dict[str, NDArray[Any]]:
        """Common coordinates by dimension, as compared, with ``align="coordinates"``; else an empty dict."""
        found = self._contents.arrangement.aligned
        return {} if found is None else dict(found.values)

    @property
    def decodes(self) -> bool:
        """Whether several threads decode: always True."""
        return True

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, also of loaders: see ``IterableDataset.set_epoch``.

        Args:
            epoch: Number of the epoch, from 0.
        """
        self._iterations.set_epoch(epoch)

    def batched(
        self, batch_size: int, collate_fn: Callable[[list[Any]], Any] | None = None, *, tail: Tail = "short"
    ) -> Batched:
        """Return this dataset as batches, for ``DataLoader(batch_size=None)``: see ``IterableDataset.batched``.

        Args:
            batch_size: Samples per batch and rank.
            collate_fn: Function from a list of samples to a batch; default: arrays are stacked.
            tail: Controls the incomplete last batch: see ``IterableDataset.batched``.
        """
        plan = self._plan(batch_size, tail)
        dataset, iterations = copy(self), self._iterations.apart()
        dataset._iterations = iterations  # noqa: SLF001  itself
        dataset._limits = self._limited(plan.batch)  # noqa: SLF001  itself
        if collate_fn is None and self.transform is None:
            dataset._own = False  # noqa: SLF001  itself
            collate_fn = Stacking(MemoryPool(dataset._limits.batch_bytes), self._values)  # noqa: SLF001  itself
        return Batched(dataset, plan, iterations, collate_fn)

    def as_map(self) -> ZarrMap:
        """Return a map-style dataset, for random access: ``len(samples)``, ``samples[i]``, a loader with a sampler.

        Samples are numbered chunk by chunk, in the order of an unshuffled epoch. The most recently used chunks stay
        decoded, within ``memory_bytes`` of each process.
        """
        return ZarrMap(self._contents, self._made, self._limits.chunk_bytes)

    def split(
        self, *parts: float, dim: str | None = None, block: int | None = None, gap: Gap = 0, seed: int = 0
    ) -> tuple[ZarrDataset, ...]:
        """Return parts of this dataset that share no element along a dimension: runs of it, or blocks drawn at random.

        A sample belongs to a part if all elements that it reaches along the dimension do: from its first offset to its
        last, with patch and halo. Samples across a border belong to none. Reads no values.

        Args:
            parts: Fractions that sum to 1, or counts: of elements of the dimension, or of blocks. A single number is
                the first of two parts.
            dim: One of ``dims``, or a dimension of ``patch``; default: the first of ``dims``.
            block: Elements of a block; default: each part is one run, in the order of the dimension.
            gap: Elements between two parts that belong to none, those before the border; or a duration
                (``datetime.timedelta``), for which the times are read.
            seed: Seed of the draw of blocks.

        Returns:
            A dataset for each part, which can be split again. Arrays without the dimension are the same in all.

        Raises:
            Unusable: An argument is invalid, or no sample is within a part.

        Example:
            >>> dataset = ps.ZarrDataset("s3://bucket/t2m.zarr", shuffle=True)
            >>> train, validation = dataset.split(0.75)
            >>> len(train), len(validation)
            (3, 1)
        """
        return self._parts(dim, lambda along: divide_elements(len(along.inside), parts, block=block, seed=seed), gap)

    def split_at(self, *borders: Border, dim: str | None = None, gap: Gap = 0) -> tuple[ZarrDataset, ...]:
        """Return parts of this dataset, divided at borders: see ``split``.

        ``train, validation = dataset.split_at("2015")`` ends the training with the last step before 2015.

        Args:
            borders: The first date of each part but the first: a text such as ``"2015"`` or ``"2015-06-01T12"``, or a
                date of ``datetime``, NumPy or cftime; the times of the first array that has times are read. Or numbers
                of elements, of those that ``select`` leaves; negative ones count from the end.
            dim: One of ``dims``, or a dimension of ``patch``; default: the first of ``dims``.
            gap: Elements, or a duration, between two parts: see ``split``.

        Returns:
            A dataset for each part.

        Raises:
            Unusable: An argument is invalid, the arrays have no times, or a part has no samples.
            MissingExtra: xarray, which decodes the times, is not installed.

        Example:
            >>> train, validation = ps.ZarrDataset("s3://bucket/t2m.zarr").split_at(-1)
            >>> len(train), len(validation)
            (3, 1)
        """
        return self._parts(dim, lambda along: sides(borders, len(along.inside), along.dates), gap)

    def weighted(
        self,
        weights: Mapping[str, ArrayLike] | ArrayLike,
        *,
        replacement: bool = False,
        epoch_samples: int | None = None,
    ) -> ZarrDataset:
        """Return this dataset with samples that come as often as their weights demand; each chunk is read once.

        An epoch leaves samples of small weights out, and repeats those of large ones. The draws of a sample are mixed
        with the samples of its window of chunks (``window_bytes``).

        Args:
            weights: A weight for each element of some dimensions: ``{"lat": np.cos(np.deg2rad(latitudes))}``. A sample
                has the weight of its index along ``dims``, and the mean of its patch along patched dimensions; several
                dimensions are multiplied. Or a weight for each sample, in the order of ``positions``.
            replacement: Draw each sample independently of the others; default: each comes as often as expected, rounded
                down or up, in every epoch.
            epoch_samples: Samples of an epoch, over all ranks; default: as many as the dataset has.

        Raises:
            Unusable: An argument is invalid, or the dataset has not ``shuffle=True``.

        Example:
            >>> dataset = ps.ZarrDataset("s3://bucket/t2m.zarr", shuffle=True, output="numpy")
            >>> rare = dataset.weighted({"dim_0": [0, 1, 1, 2]})
            >>> sorted(float(sample[0]) for sample in rare)
            [3.0, 6.0, 9.0, 9.0]
        """
        blocks, contents = self._order, self._contents
        if not isinstance(blocks, Lanes) or not blocks.shuffle:
            raise Unusable("weights draw samples at random: pass shuffle=True to the dataset, and weights only once")
        layouts = [array.layout for array in contents.arrays]
        found = sample_weights(contents.arrangement, layouts, self._patch, weights)
        dataset = copy(self)
        dataset._shape = None  # noqa: SLF001  itself
        dataset._set_order(WeightedBlocks(blocks, found, replacement, epoch_samples), self._blocks)  # noqa: SLF001
        return dataset

    def positions(self) -> dict[str, NDArray[np.int64]]:
        """Return the element of each sample along each dimension of samples; reads nothing.

        For patches, the first element without halo. Elements are counted among those that ``select`` leaves.

        Returns:
            Arrays by dimension; int64, shape (samples,).

        Example:
            >>> ps.ZarrDataset("s3://bucket/t2m.zarr").positions()["dim_0"]
            array([0, 1, 2, 3])
        """
        space = self._contents.arrangement.space
        found = space.positions(np.arange(space.samples)).T
        return {axis.name: column.copy() for axis, column in zip(space.axes, found, strict=True)}

    def subset(self, indices: NDArray[np.int64]) -> ZarrDataset:
        """Return a dataset of the samples with some numbers, in the order of this dataset: see torch's ``Subset``.

        Args:
            indices: Numbers of samples, each once; int64, shape (samples,).

        Raises:
            Unusable: Samples share elements with others (``offsets``, ``halo``), so a subset would, too.
        """
        if isinstance(self._order, WeightedBlocks):
            raise Unusable("a weighted dataset has no Subset: take the Subset first, or weights of 0")
        found = copy(self)
        found._arrange(subset_of(self._contents.arrangement, indices), None)  # noqa: SLF001  itself
        return found

    def _parts(
        self, dim: str | None, divide: Callable[[Along], NDArray[np.int64]], gap: Gap
    ) -> tuple[ZarrDataset, ...]:
        if self._shape is None:
            raise Unusable("a Subset or weighted dataset cannot be split: split the dataset first, then the parts")
        contents, shape, found = self._contents, self._shape, []
        along = along_of(contents.arrays, contents.arrangement, shape, dim, self._memory_bytes)
        for mask in along.parts(divide(along), gap):
            part, inside = copy(self), replace(shape, within={**shape.within, along.name: mask})
            part._arrange(self._arrangement(inside), inside)  # noqa: SLF001  itself
            found.append(part)
        return tuple(found)

    def statistics(
        self,
        by: str | Sequence[str] = (),
        *,
        part: tuple[int, int] = (0, 1),
        save: str | os.PathLike[str] | None = None,
        threads: int = 4,
        progress: bool | None = None,
    ) -> ZarrStatistics:
        """Return mean, standard deviation, least, greatest and number of the values of each array, in float64.

        They are of the elements that samples take (of a part, those of this part), each once, however many samples take
        it. Each chunk is read and decoded once. Values are decoded by the CF attributes, and not normalised; NaN counts
        as missing. Arrays that are samples and targets have one result, of the elements that either takes.

        Args:
            by: Dimensions whose indices have statistics of their own: ``"level"``.
            part: A share of the chunks, as ``(rank, ranks)``: ``first.merge(second, …)`` puts shares together.
            save: A file for the result, written every 30 seconds, and at the end or an error. If it exists, what it has
                is not read again, unless one of its chunks was rewritten since: then everything is. The versions are
                listed, or looked up one by one where the store does not list.
            threads: Threads that decode.
            progress: Whether to show progress: see ``ps.copy``; default: on terminals.

        Returns:
            The statistics, float64 with an element for each index along ``by``.

        Raises:
            Unusable: An argument is invalid, values are no real numbers, or the file is of other data.
            DatasetChanged: With ``save``, values were written while they were read.
            PenstockError: A chunk could not be read.

        Example:
            >>> found = ps.ZarrDataset("s3://bucket/t2m.zarr").statistics(by="dim_1")
            >>> found[""].mean.tolist()
            [4.5, 5.5, 6.5]
        """
        names = names_of("by", by)
        arrays = [array._replace(normal=None) for array in self._arrays]
        contents = self._contained(arrays, arrangement=self._contents.arrangement)
        known = {name for array in arrays for name in dims_of(array.layout)}
        if wrong := [name for name in names if name not in known]:
            raise Unusable(f"by: unknown dimension {wrong[0]!r}; dimensions are {', '.join(map(repr, sorted(known)))}")
        return gather_moments(contents, self._values, names, self._limits, part, (threads, progress, save))

    def normalized(self, statistics: ZarrStatistics | str | os.PathLike[str]) -> ZarrDataset:
        """Return this dataset with normalised values: see ``normalize``.

        Args:
            statistics: Statistics, or the URL of a file of them: those of a part that is trained on, say.

        Raises:
            Unusable: The statistics do not fit the arrays, or this is a Subset.

        Example:
            >>> train, validation = ps.ZarrDataset("s3://bucket/t2m.zarr").split_at(-1)
            >>> found = train.statistics()
            >>> train, validation = train.normalized(found), validation.normalized(found)
        """
        if self._shape is None:
            raise Unusable("a Subset or weighted dataset cannot be normalized: normalize the dataset first")
        found = copy(self)
        found._arrays = self._normal(statistics, self._arrays)  # noqa: SLF001  itself
        found._arrange(found._arrangement(self._shape), self._shape)  # noqa: SLF001
        return found

    def _normal(
        self, statistics: ZarrStatistics | str | os.PathLike[str] | None, arrays: Sequence[StoredArray]
    ) -> list[StoredArray]:
        """Return the arrays, normalised by statistics; None: unchanged."""
        if statistics is None:
            return [*arrays]
        if isinstance(statistics, str | os.PathLike):
            load = partial(ZarrStatistics.load, statistics)
            statistics = share_named(statistics, None, "statistics of", (), load)
        if not isinstance(statistics, ZarrStatistics):
            raise Unusable(f"normalize must be statistics, or the URL of a file of them, got {statistics!r}")
        return normalize_arrays(statistics, arrays, self._values)

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
        """Return the estimated cost of an epoch, with advice: ``print`` the plan, or call ``to_html()``.

        Eight chunks are read, to measure their size and decoding time; nothing else of the epoch is read.

        Args:
            batch_size: Samples of a batch, per rank.
            ranks: Number of training processes.
            workers: Worker processes per rank; 0: threads of the rank decode.
            latency_s: Seconds from a request to the first byte of its response.
            bandwidth: Bytes per second of one rank.
            threads: Decoding threads in each process: ``decode_threads`` of the loader.

        Raises:
            Unusable: An argument is invalid, or there is too little memory for such batches.
            PenstockError: A chunk cannot be read.
        """
        setting = TrainingSetting(batch_size, ranks, workers, latency_s, bandwidth, threads)
        sampling = self._plan(batch_size)
        return plan_of(self._contents, sampling, self._limited(sampling.batch), setting)

    def __getitem__(self, index: object) -> Never:
        """Raise ``Unusable``: ``as_map()`` gives samples by number."""
        raise Unusable(
            f"a ZarrDataset has no samples by index: use dataset.as_map()[{index!r}], and for batches of a "
            "sampler torch.utils.data.DataLoader(dataset.as_map(), …)"
        )

    def url_of(self, index: int) -> str:
        """Return the URL of the first array, with the position of a sample.

        Args:
            index: Number of the sample, from 0.

        Raises:
            IndexError: No such sample exists.
        """
        if not 0 <= index < len(self._contents):
            raise IndexError(f"sample {index} does not exist: the dataset has {len(self._contents)}, numbered from 0")
        positions = self._contents.arrangement.space.positions(np.array([index], dtype=np.int64))
        return self._contents.name_of(positions.tolist()[0])

    def reading(self, batches: Iterable[list[int]], workers: int) -> ZarrReading:
        """Return the reading of batches: samples, and the items that decode their chunks.

        Args:
            batches: Numbers of the samples of each batch.
            workers: Number of processes that read in parallel and share the read-ahead budget.
        """
        limits, cursor = self._limits, self._iterations.epochs.latest()
        # A resume state may have a different number of lanes than this dataset: design/0057.
        if cursor.lanes and self._blocks:
            blocks = open_blocks(self._blocks, cursor.lanes, self._iterations.rank().world)
            limits, words = with_blocks(limits, self._contents.arrangement, blocks)
            if words:
                warnings.warn(words, stacklevel=2)
        # A transform may have been set after ``batched``.
        together = None if self._own or self.transform is not None else self._values.rows
        return ZarrReading(self._contents, batches, workers, limits, self._made, together)

    def reads(self, batches: Callable[[], Iterable[list[int]]] | None = None) -> Iterator[tuple[Store, Iterator[Span]]]:
        """Yield the store with the location of each chunk that a sample needs: see ``SampleDataset.reads``.

        Args:
            batches: Returns the numbers of the samples of each batch; default: all samples.
        """
        some = ([index] for index in range(len(self._contents))) if batches is None else batches()
        yield self._contents.source, chunk_spans(self._contents, some)

    def __iter__(self) -> StatefulIterator:
        """Begin the next epoch at once; reads begin with the first ``next``."""
        plan = self._plan(1)

        def samples(cursor: Cursor, place: Place) -> Iterator[Any]:
            single = ([index] for index in sample_indices(plan, cursor, place))
            return (each for [each] in in_lists(self.reading(single, place.workers)))

        iterator = StatefulIterator(ResumableSamples(plan, self._contents, self._iterations), samples)
        iterator.begin()
        return iterator

    def _made(self, index: int, parts: Sequence[Sequence[ChunkPart]], values: Mapping[int, NDArray[Any]]) -> Any:  # noqa: ANN401
        found = self._contents.assembled(parts, values, own=self._own)
        return self._transform_sample(self._values.sample(found, views=not self._own), index)

    def _limited(self, batch: int) -> Limits:
        ahead_bytes = self._contents.arrays[0].source.options.read.ahead_bytes
        blocks = open_blocks(self._blocks, self._lanes, self._iterations.rank().world) if self._lanes else self._blocks
        arrangement, memory_bytes = self._contents.arrangement, self._memory_bytes
        most = self._order.most if isinstance(self._order, WeightedBlocks) else 0
        return limits_of(
            arrangement, blocks, batch, memory_bytes=memory_bytes, ahead_bytes=ahead_bytes, block_samples=most
        )

    def _plan(self, batch_size: int, tail: Tail = "short") -> SamplingPlan:
        samples = len(self._contents)
        return SamplingPlan(samples=samples, batch=batch_size, order=self._order, seed=self._seed, tail=tail)


def _find_arrays(
    samples: object, targets: object, manner: Manner, shape: Shape, align: Align | None, memory_bytes: int
) -> tuple[dict[str, StoredArray], dict[str, StoredArray], tuple[str, ...], Alignment | None]:
    """Return arrays of samples and of targets, the dimensions of ``dims``, and elements that belong together."""
    inputs = open_inputs(samples, "samples", manner)
    outputs = {} if targets is None else open_inputs(targets, "targets", manner)
    arrays, aligned = [*inputs.values(), *outputs.values()], None
    dims = shape.dims or default_dims([array.layout for array in inputs.values()])
    if align != "index":
        check_places(arrays, replace(shape, dims=dims), memory_bytes)
        equal, steps = align == "coordinates", shape.has_steps(targets=bool(outputs))
        aligned = compare_coordinates(arrays, dims, memory_bytes, equal=equal, steps=steps)
    return inputs, outputs, dims, aligned


def _resolve_order(
    order: Order, *, arrangement: Arrangement, window_bytes: int, lanes: int | None
) -> tuple[Order, int]:
    """Return the order of samples that ``shuffle=`` stands for, and the number of blocks it mixes per lane."""
    shuffles = isinstance(order, FullShuffle)
    if not shuffles and not isinstance(order, CatalogOrder):
        if lanes is not None:
            raise Unusable("the order sets the lanes: pass shuffle=ps.order.Lanes(…, lanes=…) without lanes=")
        return order, 0
    space = arrangement.space
    fitting = min(
        window_bytes // max(arrangement.block_bytes, 1), _MOST_CHUNKS // max(1, arrangement.kept.count(False))
    )
    blocks = min(space.blocks, max(1, fitting)) if shuffles else 1
    return Lanes(space.even or space.sizes, blocks, lanes, shuffle=shuffles), blocks
