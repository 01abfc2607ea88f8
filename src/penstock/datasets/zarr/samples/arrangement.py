"""Which samples some arrays have together, and what each sample takes of each array. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.datasets.zarr.samples.alignment import elements_of, unbroken
from penstock.datasets.zarr.samples.blocks import blocks_of
from penstock.datasets.zarr.samples.extraction import Extraction
from penstock.datasets.zarr.samples.segments import Cut
from penstock.datasets.zarr.samples.space import Axis, IndexSpace
from penstock.errors import Unusable
from penstock.values import whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.datasets.zarr.samples.alignment import Alignment
    from penstock.formats.zarr.layout import Layout

__all__ = ["Arrangement", "Shape", "arrange", "dims_of"]

_CLOSE = 0.5  # of difflib's ratio: a letter or two of a short name
_KEPT_BYTES, _KEPT_CHUNKS = 8 << 20, 64  # an array that is not larger is read once and kept


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What makes a sample, as the user says it.

    Attributes:
        dims: The dimensions that samples are numbered along; () for the first of the first array.
        offsets: Which elements along the first of ``dims`` a sample takes, relative to its own.
        target_offsets: The same of a target.
        stride: Between samples along a dimension; default: 1, and the patch's own size.
        patch: Elements of a patch along dimensions that are cut into patches.
        halo: Elements that a patch has more on either side, of samples and not of targets.
        select: Elements of dimensions that there are at all.

    """

    dims: tuple[str, ...] = ()
    offsets: int | tuple[int, ...] = 0
    target_offsets: int | tuple[int, ...] = 0
    stride: Mapping[str, int] = field(default_factory=dict)
    patch: Mapping[str, int] = field(default_factory=dict)
    halo: Mapping[str, int] = field(default_factory=dict)
    select: Mapping[str, int | slice | Sequence[int]] = field(default_factory=dict)


class Arrangement(NamedTuple):
    """Samples and what they take.

    Attributes:
        space: The samples.
        extractions: What each takes of each array, in the arrays' order. Chunks are numbered through all arrays; an
            array that is kept is one chunk, ``-1`` minus the array's number.
        kept: Which arrays are read once and kept whole: those that all samples share, and small ones.
        block_bytes: Decoded bytes of the chunks that the samples of one block need, at most.
        chunk_bytes: The same of one sample.
        sample_bytes: Of one sample's values.
        kept_bytes: Of the arrays and the coordinates that are kept.
        aligned: Which elements of the arrays belong together; None: those of the same number.

    """

    space: IndexSpace
    extractions: tuple[Extraction, ...]
    kept: tuple[bool, ...]
    block_bytes: int
    chunk_bytes: int
    sample_bytes: int
    kept_bytes: int
    aligned: Alignment | None = None


def dims_of(layout: Layout) -> tuple[str, ...]:
    """Return the names of an array's dimensions; one without a name is ``dim_0``, by its place, as xarray has it."""
    return tuple(name or f"dim_{number}" for number, name in enumerate(layout.dims))


def arrange(
    layouts: Sequence[Layout],
    targets: int,
    shape: Shape,
    *,
    valid: object = None,
    aligned: Alignment | None = None,
    window_bytes: int,
) -> Arrangement:
    """Number the samples of some arrays, of which the last ``targets`` are targets.

    Args:
        layouts: Of the arrays.
        targets: How many of them, at the end, are targets.
        shape: What makes a sample.
        valid: For each element along ``shape.dims`` whether it may be part of a sample; None: all may.
        aligned: Which elements of the arrays belong together along ``shape.dims``: theirs are the elements that
            ``shape`` and ``valid`` count. None: those of the same number.
        window_bytes: Decoded bytes of the chunks of a window of blocks: a block has a part of it at most.

    Raises:
        Unusable: The arrays do not fit together, or ``shape`` does not fit them.

    """
    sampled = _dims(layouts, shape)
    if "" in shape.stride:  # a number, for the first of them
        shape = replace(shape, stride={sampled[0]: shape.stride[""]})
    common = {} if aligned is None else {name: len(values) for name, values in aligned.values.items()}
    lengths = _lengths(layouts, {*sampled, *shape.patch, *shape.select} - {*common}) | common
    chosen = {name: _chosen(name, lengths[name], shape.select.get(name)) for name in lengths}
    sides = [number >= len(layouts) - targets for number in range(len(layouts))]
    windows = [_windows(sampled, shape, is_target=side) for side in (False, True)]
    taken = [windows[side][sampled[0]] for side in {*sides}]
    reaches = _reaches(sampled, shape, [_spread(each) for each in taken])
    kept = tuple(_is_kept(layout, reaches) for layout in layouts)
    own = [{} for _ in layouts] if aligned is None else aligned.elements
    cuts = [
        _cuts(layout, chosen | _aligned(chosen, elements), windows[side], shape, kept=keeps)
        for layout, elements, side, keeps in zip(layouts, own, sides, kept, strict=True)
    ]
    moving = [(layout, each) for layout, each, keeps in zip(layouts, cuts, kept, strict=True) if not keeps]
    blocks = blocks_of(moving, [*reaches.values()], [name in common for name in reaches], window_bytes)
    axes = [
        Axis.of(name, _positions(name, len(chosen[name]), reach, shape), reference or chosen[name], edge)
        for (name, reach), edge, reference in zip(reaches.items(), blocks.edges, blocks.references, strict=True)
    ]
    offsets = {each for some in taken for each in ((some,) if isinstance(some, int) else some)}
    mask = None if valid is None else _mask(valid, axes, chosen, lengths, shape, offsets)
    space = IndexSpace(axes, _without_gaps(mask, axes, aligned, chosen, reaches))
    extractions = _extractions(layouts, cuts, kept)
    return Arrangement(
        space,
        extractions,
        kept,
        block_bytes=blocks.block_bytes,
        chunk_bytes=blocks.chunk_bytes,
        sample_bytes=sum(prod(each.shape) * of.dtype.itemsize for each, of in zip(extractions, layouts, strict=True)),
        kept_bytes=sum(_bytes(of) for of, keeps in zip(layouts, kept, strict=True) if keeps)
        + (0 if aligned is None else aligned.size_bytes),
        aligned=aligned,
    )


def _dims(layouts: Sequence[Layout], shape: Shape) -> tuple[str, ...]:
    """Return the dimensions that samples are numbered along, once sure that they, and those of patches, exist."""
    there = dict.fromkeys(name for layout in layouts for name in dims_of(layout))
    if not there:
        raise Unusable("an array without dimensions has no samples")
    sampled = shape.dims or (next(iter(there)),)
    names = {"dims": sampled, "patch": shape.patch, "halo": shape.halo, "stride": shape.stride, "select": shape.select}
    for argument, some in names.items():
        for name in some:
            if name and name not in there:
                known = {each.casefold(): each for each in there}
                near = [known[each] for each in get_close_matches(name.casefold(), known, 1, _CLOSE)]
                hint = f": did you mean {near[0]!r}?" if near else ""
                raise Unusable(f"{argument} names {name!r}, and the dimensions are {', '.join(map(repr, there))}{hint}")
    if not any(name in dims_of(layouts[0]) for name in sampled):
        raise Unusable(f"the first array has none of dims {sampled}: its dimensions are {dims_of(layouts[0])}")
    _check_axes(sampled, shape)
    _check_named(layouts, sampled)
    return sampled


def _check_named(layouts: Sequence[Layout], sampled: Sequence[str]) -> None:
    """Refuse an array that would be a constant because its dimensions have names, and others' have not, or reversed."""
    named = any(name in layout.dims for layout in layouts for name in sampled)
    for layout in layouts:
        if layout.dims and any(layout.dims) != named and not set(sampled) & {*dims_of(layout)}:
            raise Unusable(
                f"{_shown(layout)}, and samples lie along {', '.join(map(repr, sampled))}: the metadata of one array "
                "names its dimensions, and that of another does not: store dimension_names (_ARRAY_DIMENSIONS in Zarr "
                "v2) with both"
            )


def _check_axes(sampled: Sequence[str], shape: Shape) -> None:
    """Refuse to mean two things by one dimension, or something by one that does not move."""
    if twice := set(sampled) & set(shape.patch):
        raise Unusable(f"{min(twice)!r} is one of dims, an element for each sample, not one to cut into patches")
    for name in shape.halo:
        if name not in shape.patch:
            raise Unusable(f"halo names {name!r}, which is not cut into patches: patch names {[*shape.patch]}")
    for name in shape.stride:
        if name and name not in (*shape.patch, *sampled):
            raise Unusable(f"stride names {name!r}, and samples lie along {', '.join((*sampled, *shape.patch))}")
    for name in (*sampled, *shape.patch):
        if isinstance(shape.select.get(name), int):
            raise Unusable(f"select takes one element of {name!r}, along which samples lie: give a slice")


def _lengths(layouts: Sequence[Layout], shared: set[str]) -> dict[str, int]:
    """Return the lengths of dimensions, once sure that arrays agree on those that samples and patches are cut from."""
    lengths: dict[str, tuple[int, Layout]] = {}
    for layout in layouts:
        for name, length in zip(dims_of(layout), layout.shape, strict=True):
            known, first = lengths.setdefault(name, (length, layout))
            if known != length and name in shared:
                raise Unusable(
                    f"the arrays differ in length along {name!r}: {_shown(first)} and {_shown(layout)}; pass arrays of "
                    f'one length, or align="coordinates" where each has its coordinates beside it'
                )
    return {name: length for name, (length, _) in lengths.items()}


def _shown(layout: Layout) -> str:
    return f"{layout.name or layout.key.rstrip('/') or 'the array'} has the shape {layout.shape} of {dims_of(layout)}"


def _chosen(name: str, length: int, selected: int | slice | Sequence[int] | None) -> Sequence[int]:
    """Return the elements of a dimension that there are for samples."""
    if not length:
        raise Unusable(f"there are no samples: the arrays have no elements along {name!r}")
    found = _elements(name, length, selected)
    if not found:
        raise Unusable(f"select leaves nothing of {name!r}, which has {length} elements: {selected!r}")
    return found


def _elements(name: str, length: int, selected: int | slice | Sequence[int] | None) -> Sequence[int]:
    if selected is None:
        return range(length)
    if isinstance(selected, slice):
        return range(length)[selected]
    single = not isinstance(selected, Sequence | np.ndarray)
    numbers = [whole(each, f"select's {name!r}") for each in ([selected] if single else selected)]  # type: ignore[union-attr]
    if any(not -length <= each < length for each in numbers):
        raise Unusable(f"select goes beyond {name!r}, which has {length} elements: {numbers[:8]}")
    return tuple(each % length for each in numbers)


def _spread(window: Sequence[int] | int) -> tuple[int, int]:
    return (window, window) if isinstance(window, int) else (min(window), max(window))


def _reaches(sampled: Sequence[str], shape: Shape, spreads: Sequence[tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Return how far samples reach from their position, along each axis of the index space: first and last element."""
    reaches = dict.fromkeys(sampled, (0, 0))
    reaches[sampled[0]] = min(first for first, _ in spreads), max(last for _, last in spreads)
    for name, size in shape.patch.items():
        halo = shape.halo.get(name, 0)
        reaches[name] = (-halo, size + halo - 1)
    return reaches


def _positions(name: str, length: int, reach: tuple[int, int], shape: Shape) -> range:
    """Return where along an axis samples lie: where everything that they reach exists."""
    stride = shape.stride.get(name, shape.patch.get(name, 1))
    found = range(max(0, -reach[0]), min(length, length - reach[1]), stride)
    if not found:
        why = (
            f"a patch of {shape.patch[name]} and its halo"
            if name in shape.patch
            else f"offsets {reach[0]} to {reach[1]}"
        )
        raise Unusable(f"there is no sample along {name!r}: {why} do not fit into {length} elements")
    return found


def _windows(sampled: Sequence[str], shape: Shape, *, is_target: bool) -> dict[str, Sequence[int] | int]:
    windows: dict[str, Sequence[int] | int] = dict.fromkeys(sampled, 0)
    windows[sampled[0]] = shape.target_offsets if is_target else shape.offsets
    for name, size in shape.patch.items():
        halo = 0 if is_target else shape.halo.get(name, 0)
        windows[name] = range(-halo, size + halo)
    for name, window in windows.items():
        if isinstance(window, tuple) and window == tuple(range(window[0], window[0] + len(window))):
            windows[name] = range(window[0], window[0] + len(window))
    return windows


def _aligned(chosen: Mapping[str, Sequence[int]], own: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    """Return an array's own elements of those that are chosen of the common ones."""
    return {name: elements_of(elements, chosen[name]) for name, elements in own.items()}


def _cuts(
    layout: Layout,
    chosen: Mapping[str, Sequence[int]],
    windows: Mapping[str, Sequence[int] | int],
    shape: Shape,
    *,
    kept: bool,
) -> list[Cut]:
    axes, cuts = [*windows], []
    for name, length, stored in zip(dims_of(layout), layout.shape, layout.chunks, strict=True):
        chunk = max(length, 1) if kept else stored
        if name in windows:
            cuts.append(Cut(chunk, chosen[name], windows[name], axes.index(name)))
        elif name in shape.select:
            single = isinstance(shape.select[name], int)
            cuts.append(Cut(chunk, chosen[name], 0 if single else range(len(chosen[name]))))
        else:
            cuts.append(Cut(chunk, range(length), range(length)))
    return cuts


def _extractions(
    layouts: Sequence[Layout], cuts: Sequence[Sequence[Cut]], kept: Sequence[bool]
) -> tuple[Extraction, ...]:
    first, found = 0, []
    for number, (layout, each, keeps) in enumerate(zip(layouts, cuts, kept, strict=True)):
        grid = [1] * len(layout.shape) if keeps else layout.grid
        found.append(Extraction(each, grid, -1 - number if keeps else first))
        first += prod(layout.grid)
    return tuple(found)


def _is_kept(layout: Layout, windows: Mapping[str, object]) -> bool:
    """Say whether an array is read once and kept: one that all samples share, or a small one."""
    shared = not any(name in windows for name in dims_of(layout))
    return shared or (_bytes(layout) <= _KEPT_BYTES and prod(layout.grid) <= _KEPT_CHUNKS)


def _bytes(layout: Layout) -> int:
    return prod(layout.shape) * layout.dtype.itemsize


def _mask(
    valid: object,
    axes: Sequence[Axis],
    chosen: Mapping[str, Sequence[int]],
    lengths: Mapping[str, int],
    shape: Shape,
    taken: set[int],
) -> NDArray[np.bool_]:
    """Return which positions are valid: those at which every element along the dims that a sample takes is."""
    sampled = [axis for axis in axes if axis.name not in shape.patch]
    mask = np.asarray(valid)
    of = tuple(lengths[axis.name] for axis in sampled)
    if mask.shape not in (of, of[:1]):
        names = tuple(axis.name for axis in sampled)
        raise Unusable(f"valid has the shape {mask.shape}, and the arrays have {of} elements along {names}")
    if mask.dtype.kind not in "biu" or (mask.dtype.kind != "b" and not np.isin(mask, (0, 1)).all()):
        raise Unusable(f"valid says True or False (or 1 or 0) of each element, and has values of {mask.dtype}")
    mask = mask.astype(bool)
    elements = [np.asarray(chosen[axis.name], dtype=np.int64) for axis in sampled[: mask.ndim]]
    grid = [np.asarray(axis.positions, dtype=np.int64) for axis in sampled[: mask.ndim]]
    found = np.ones([len(each) for each in grid], dtype=bool)
    for offset in sorted(taken):
        found &= mask[
            np.ix_(elements[0][grid[0] + offset], *(e[g] for e, g in zip(elements[1:], grid[1:], strict=True)))
        ]
    if not found.any():
        raise Unusable("valid leaves no sample")
    whole_grid = [len(axis.positions) for axis in axes]
    return np.broadcast_to(found.reshape(*found.shape, *[1] * (len(axes) - found.ndim)), whole_grid)


def _without_gaps(
    mask: NDArray[np.bool_] | None,
    axes: Sequence[Axis],
    aligned: Alignment | None,
    chosen: Mapping[str, Sequence[int]],
    reaches: Mapping[str, tuple[int, int]],
) -> NDArray[np.bool_] | None:
    """Return which positions are valid and reach over no gap of the coordinate along the first axis."""
    name = axes[0].name
    if aligned is None or name not in aligned.values:
        return mask
    reach = reaches[name]
    found = unbroken(aligned.values[name][np.asarray(chosen[name])], axes[0].positions, reach)
    if found.all():
        return mask
    found = np.broadcast_to(found.reshape(-1, *[1] * (len(axes) - 1)), [len(axis.positions) for axis in axes])
    found = found if mask is None else found & mask
    if not found.any():
        raise Unusable(
            f"there is no sample along {name!r}: offsets {reach[0]} to {reach[1]} reach over gaps between the "
            "common coordinates everywhere"
        )
    return found
