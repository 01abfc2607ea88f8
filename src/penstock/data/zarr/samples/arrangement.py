"""Arrangement of the samples of several arrays, and the elements that each sample takes of each array. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import accumulate, chain, combinations
from math import ceil, prod
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from penstock.data.zarr.format.layout import Runs, largest
from penstock.data.zarr.samples.alignment import check_times, elements_of, unbroken
from penstock.data.zarr.samples.extraction import (
    Axis,
    AxisBlocks,
    Cut,
    Extraction,
    IndexSpace,
    integers_of,
    most_touched,
)
from penstock.errors import Unusable
from penstock.values import whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.data.zarr.format.layout import Layout
    from penstock.data.zarr.samples.alignment import Alignment

    Moving: TypeAlias = Sequence[tuple[Layout, Sequence[Cut]]]

# Ratio of difflib: a letter or two of a short name.
_CLOSE = 0.5
# An array up to this size is read once and kept.
_KEPT_BYTES, _KEPT_CHUNKS = 8 << 20, 64
# Most chunks of one sample, or of a kept array: each is listed.
MOST_AT_ONCE = 1 << 18
_MOST_CHUNKS = 1 << 62  # of all arrays: NumPy numbers them


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Shape of a sample, as the user defines it: see the arguments of ``ZarrDataset``.

    Attributes:
        dims: The dimensions that samples are numbered along; () for ``default_dims``.
        stride: Elements between samples along a dimension; default: 1, and for a patched dimension the patch size.
        valid: For each element along ``dims``, whether it may be part of a sample; None: all may.
        within: For each chosen element of a dimension, whether a sample may reach it.
    """

    dims: tuple[str, ...] = ()
    offsets: int | tuple[int, ...] = 0
    target_offsets: int | tuple[int, ...] = 0
    stride: Mapping[str, int] = field(default_factory=dict)
    patch: Mapping[str, int] = field(default_factory=dict)
    halo: Mapping[str, int] = field(default_factory=dict)
    select: Mapping[str, int | slice | Sequence[int]] = field(default_factory=dict)
    scale: Mapping[str, int] = field(default_factory=dict)
    valid: object = None
    within: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)

    def has_steps(self, *, targets: bool) -> bool:
        """Return whether a sample and its target take several elements along the first of ``dims``."""
        taken = [self.offsets, self.target_offsets] if targets else [self.offsets]
        return len({*chain.from_iterable(map(_as_tuple, taken))}) > 1


class Arrangement(NamedTuple):
    """Samples, and the elements that they take of each array.

    Extractions number chunks consecutively through all arrays, and arrays of the same values have those of the first; a
    kept array is one chunk, with the number ``-1`` minus the array's number. Kept are arrays that all samples share,
    and small ones: each is read once. ``block_bytes`` is the upper limit of the decoded bytes of the chunks that the
    samples of one block need, ``chunk_bytes`` of those that one sample needs. ``aligned`` has the elements that belong
    together; None: those with the same number.
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
    """Return the names of an array's dimensions; an unnamed dimension is ``dim_N`` by its place, as in xarray."""
    return tuple(name or f"dim_{number}" for number, name in enumerate(layout.dims))


def lengths_of(layout: Layout) -> dict[str, int]:
    return dict(zip(dims_of(layout), layout.shape, strict=True))


def default_dims(layouts: Sequence[Layout]) -> tuple[str, ...]:
    """Return the first dimension of the array with the most dimensions, for samples to be numbered along.

    So the result does not depend on the order of the arrays, and a static field next to fields of several times is the
    same for all samples.
    """
    most = max((len(layout.shape) for layout in layouts), default=0)
    firsts = {dims_of(layout)[0]: layout for layout in layouts if most and len(layout.shape) == most}
    if not firsts:
        raise Unusable("an array without dimensions has no samples")
    if len(firsts) > 1:
        raise Unusable(
            f"the arrays begin with different dimensions: {'; '.join(map(_describe_shape, firsts.values()))}; name the "
            f"one that samples are numbered along: dims={next(iter(firsts))!r}"
        )
    return tuple(firsts)


def arrange(
    layouts: Sequence[Layout],
    targets: int,
    shape: Shape,
    *,
    aligned: Alignment | None = None,
    same: Sequence[int] = (),
    window_bytes: int,
) -> Arrangement:
    """Number the samples of some arrays, of which the last ``targets`` are targets.

    With ``aligned``, ``shape`` counts common coordinates; or it has only times, against which elements with the same
    number are checked. None: elements with the same number belong together. ``same`` has, for each array, the number
    of the first one with the same values; default: all differ. ``window_bytes`` are the decoded bytes of the chunks of
    a window of blocks; a block takes at most a part of it.
    """
    sampled = _dims(layouts, len(layouts) - targets, shape)
    if "" in shape.stride:  # a number, for the first dimension
        shape = replace(shape, stride={sampled[0]: shape.stride[""]})
    common = {} if aligned is None else {name: len(values) for name, values in aligned.values.items()}
    factors = _factors(layouts, shape.scale)
    lengths = _lengths(layouts, {*sampled, *shape.patch, *shape.select} - {*common, *shape.scale}) | common
    lengths |= _coarse(layouts, factors)
    chosen = {name: _choose_elements(name, lengths[name], shape.select.get(name)) for name in lengths}
    sides = [number >= len(layouts) - targets for number in range(len(layouts))]
    windows = [_windows(sampled, shape, is_target=side) for side in (False, True)]
    taken = [_as_tuple(windows[side][sampled[0]]) for side in {*sides}]
    reaches = _reaches(sampled, shape, [(min(each), max(each)) for each in taken])
    kept = tuple(_is_kept(layout, reaches) for layout in layouts)
    # Of each array, its own elements for the chosen common coordinates.
    own = [
        {name: elements_of(some, chosen[name]) for name, some in each.items()}
        for each in ([{}] * len(layouts) if aligned is None else aligned.elements)
    ]
    cuts = [
        _cuts(layout, chosen | elements, windows[side], (shape, factor), kept=keeps)
        for layout, elements, side, factor, keeps in zip(layouts, own, sides, factors, kept, strict=True)
    ]
    _check_chunks(layouts, cuts, kept)
    same = same or range(len(layouts))
    moving = _find_moving_arrays(layouts, cuts, kept, same)
    blocks = blocks_of(moving, [*reaches.values()], [name in common for name in reaches], window_bytes)
    axes = [
        Axis.of(name, _positions(name, len(chosen[name]), reach, shape), reference or chosen[name], edge)
        for (name, reach), edge, reference in zip(reaches.items(), blocks.edges, blocks.references, strict=True)
    ]
    offsets = {*chain.from_iterable(taken)}
    mask = None if shape.valid is None else _mask(axes, chosen, lengths, shape, offsets)
    if aligned is not None:
        _check_times(mask, axes, aligned, chosen, sorted(offsets))
    space = IndexSpace(axes, _without_gaps(mask, axes, aligned, chosen, reaches))
    extractions = _extractions(layouts, cuts, kept, same)
    return Arrangement(
        space,
        extractions,
        kept,
        block_bytes=blocks.block_bytes,
        chunk_bytes=blocks.chunk_bytes,
        sample_bytes=sum(prod(each.shape) * of.dtype.itemsize for each, of in zip(extractions, layouts, strict=True)),
        kept_bytes=sum(_bytes(of) for of, keeps in zip(layouts, kept, strict=True) if keeps)
        + (0 if aligned is None else aligned.size_bytes),
        aligned=aligned and aligned._replace(times={}),
    )


def _check_times(
    mask: NDArray[np.bool_] | None,
    axes: Sequence[Axis],
    aligned: Alignment,
    chosen: Mapping[str, Sequence[int]],
    offsets: Sequence[int],
) -> None:
    """Raise for samples that would pair different times; ``offsets`` are those along the first axis."""
    for number, axis in enumerate(axes):
        if axis.name in aligned.times:
            positions = integers_of(axis.positions)
            if mask is not None:
                positions = positions[mask.any(axis=tuple(each for each in range(mask.ndim) if each != number))]
            elements = integers_of(chosen[axis.name])
            check_times(axis.name, aligned.times[axis.name], elements, positions, offsets if number == 0 else (0,))


def _dims(layouts: Sequence[Layout], inputs: int, shape: Shape) -> tuple[str, ...]:
    """Return the dimensions that samples are numbered along; raise if they, or other named dimensions, do not exist.

    The first ``inputs`` arrays are not targets.
    """
    there = dict.fromkeys(name for layout in layouts for name in dims_of(layout))
    sampled = shape.dims or default_dims(layouts[:inputs])
    names = {"dims": sampled, "patch": shape.patch, "halo": shape.halo, "stride": shape.stride, "select": shape.select}
    names["scale"] = shape.scale
    for argument, some in names.items():
        for name in some:
            if name and name not in there:
                known = {each.casefold(): each for each in there}
                near = [known[each] for each in get_close_matches(name.casefold(), known, 1, _CLOSE)]
                hint = f": did you mean {near[0]!r}?" if near else ""
                raise Unusable(f"{argument}: unknown dimension {name!r}; known are {', '.join(map(repr, there))}{hint}")
    if not any(name in dims_of(layout) for layout in layouts[:inputs] for name in sampled):
        raise Unusable(
            f"no sample array has a dimension of dims {sampled}: {'; '.join(map(_describe_shape, layouts[:inputs]))}"
        )
    _check_axes(sampled, shape)
    _check_named(layouts, sampled)
    _check_patches(layouts, {*sampled, *shape.patch, *shape.select}, shape)
    return sampled


def _check_named(layouts: Sequence[Layout], sampled: Sequence[str]) -> None:
    """Raise for an array that would be constant only because some arrays lack dimension names."""
    named = any(name in layout.dims for layout in layouts for name in sampled)
    for layout in layouts:
        if layout.dims and any(layout.dims) != named and not set(sampled) & {*dims_of(layout)}:
            raise Unusable(
                f"{_describe_shape(layout)}, and samples extend along {', '.join(map(repr, sampled))}: the metadata of "
                "one array names its dimensions, and that of another does not: store dimension_names "
                "(_ARRAY_DIMENSIONS in Zarr v2) with both"
            )


def _check_patches(layouts: Sequence[Layout], named: set[str], shape: Shape) -> None:
    """Raise for samples along a repeated dimension, and for patches that would combine freely across arrays."""
    for layout in layouts:
        names = dims_of(layout)
        if twice := [name for name in names if name in named and names.count(name) > 1]:
            raise Unusable(f"{_describe_shape(layout)}: samples cannot be cut along {twice[0]!r}, which occurs twice")
    for one, other in combinations(shape.patch, 2):
        if not any({one, other} <= {*dims_of(layout)} for layout in layouts):
            raise Unusable(
                f"patch names {one!r} and {other!r}, and no array has both: every patch along {one!r} would come with "
                f"all of those along {other!r}, and not with its own. Patch one array alone, of which the other is "
                "whole, or store both on one grid, with the same dimensions"
            )


def _check_chunks(layouts: Sequence[Layout], cuts: Sequence[Sequence[Cut]], kept: Sequence[bool]) -> None:
    """Raise for samples of more chunks than can be listed, before they are listed."""
    for layout, each, keeps in zip(layouts, cuts, kept, strict=True):
        count = prod(layout.grid if keeps else (cut.most_chunks for cut in each))
        if count > MOST_AT_ONCE:
            raise Unusable(
                f"{_describe_shape(layout)}, and a sample takes up to {count:,} chunks of {layout.chunks} of it, of at "
                f"most {MOST_AT_ONCE:,}: take patches or a part (select), or store it in larger chunks (penstock zarr "
                "copy --chunks)"
            )
    if (total := sum(prod(layout.grid) for layout in layouts)) > _MOST_CHUNKS:
        raise Unusable(f"the arrays have {total:,} chunks, more than {_MOST_CHUNKS:,}")


def _check_axes(sampled: Sequence[str], shape: Shape) -> None:
    """Raise for a dimension with conflicting roles, and for arguments about a dimension without samples or patches."""
    if twice := set(sampled) & set(shape.patch):
        raise Unusable(
            f"{min(twice)!r} is one of dims, with an element for each sample, and cannot be cut into patches"
        )
    for argument, some in {"halo": shape.halo, "scale": shape.scale}.items():
        if others := [name for name in some if name not in shape.patch]:
            cut = [*shape.patch]
            raise Unusable(f"{argument} names {others[0]!r}, which has no patches: patch= names {cut}")
    for name in shape.scale:
        chosen = shape.select.get(name, slice(None))
        if not isinstance(chosen, slice) or chosen.step not in (None, 1):
            raise Unusable(f"select of {name!r}, which has a scale, must be a slice without steps")
    for name in shape.stride:
        if name and name not in (*shape.patch, *sampled):
            raise Unusable(f"stride names {name!r}, and samples extend along {', '.join((*sampled, *shape.patch))}")
    for name in (*sampled, *shape.patch):
        if isinstance(shape.select.get(name), int):
            raise Unusable(f"select takes one element of {name!r}, along which samples extend: give a slice")


def _lengths(layouts: Sequence[Layout], shared: set[str]) -> dict[str, int]:
    """Return the lengths of dimensions; raise if arrays differ along a dimension in ``shared``."""
    lengths: dict[str, tuple[int, Layout]] = {}
    for layout in layouts:
        for name, length in zip(dims_of(layout), layout.shape, strict=True):
            known, first = lengths.setdefault(name, (length, layout))
            if known != length and name in shared:
                raise Unusable(
                    f"the arrays differ in length along {name!r}: {_describe_shape(first)} and "
                    f'{_describe_shape(layout)}; pass arrays of one length, align="coordinates" where each has its '
                    "coordinates, or scale= where one is finer"
                )
    return {name: length for name, (length, _) in lengths.items()}


def factor_of(layout: Layout, name: str, layouts: Sequence[Layout], scale: Mapping[str, int]) -> int:
    """Return how many elements an array has along a dimension for each element of the coarsest array: 1, or its scale.

    An array of points, such as 721 latitudes with 181, may lack some of the last elements.
    """
    least = min((lengths_of(each)[name] for each in layouts if name in dims_of(each)), default=0)
    length, factor = lengths_of(layout).get(name), scale.get(name, 1)
    if length in (None, least):
        return 1
    if not (least - 1) * factor < length <= least * factor:
        raise Unusable(
            f"scale of {name!r} is {factor}, but {_describe_shape(layout)}, and the coarsest array has {least} "
            "elements along it: pass the number of elements for each of these"
        )
    return factor


def _factors(layouts: Sequence[Layout], scale: Mapping[str, int]) -> list[dict[str, int]]:
    """Return the factor of each array along each dimension that has a scale; raise where no array is finer."""
    found = [{name: factor_of(layout, name, layouts, scale) for name in scale} for layout in layouts]
    for name, factor in scale.items():
        if all(each[name] != factor for each in found):
            raise Unusable(f"scale of {name!r} is {factor}, but all arrays have the same length along it: leave it out")
    return found


def _coarse(layouts: Sequence[Layout], factors: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return the number of elements of the coarsest array, by scaled dimension, for which all arrays have values."""
    found: dict[str, int] = {}
    for layout, factor in zip(layouts, factors, strict=True):
        for name, length in lengths_of(layout).items():
            if name in factor:
                found[name] = min(found.get(name, length), length // factor[name])
    return found


def _describe_shape(layout: Layout) -> str:
    return f"{layout.name or layout.key.rstrip('/') or 'the array'} has the shape {layout.shape} of {dims_of(layout)}"


def _choose_elements(name: str, length: int, selected: int | slice | Sequence[int] | None) -> Sequence[int]:
    if not length:
        raise Unusable(f"no samples: the arrays have no elements along {name!r}")
    if selected is None or isinstance(selected, slice):
        found: Sequence[int] = range(length)[selected or slice(None)]
    else:
        single = not isinstance(selected, Sequence | np.ndarray)
        numbers = [whole(each, f"select's {name!r}") for each in ([selected] if single else selected)]  # type: ignore[union-attr]
        if any(not -length <= each < length for each in numbers):
            raise Unusable(f"select goes beyond {name!r}, which has {length} elements: {numbers[:8]}")
        found = tuple(each % length for each in numbers)
    if not found:
        raise Unusable(f"select leaves no element of {name!r}, which has {length} elements: {selected!r}")
    return found


def _as_tuple(window: Sequence[int] | int) -> Sequence[int]:
    return (window,) if isinstance(window, int) else window


def _reaches(sampled: Sequence[str], shape: Shape, spreads: Sequence[tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Return the first and last element, relative to its position, that a sample takes along each axis of the space."""
    reaches = dict.fromkeys(sampled, (0, 0))
    reaches[sampled[0]] = min(first for first, _ in spreads), max(last for _, last in spreads)
    for name, size in shape.patch.items():
        halo = shape.halo.get(name, 0)
        reaches[name] = (-halo, size + halo - 1)
    return reaches


def _positions(name: str, length: int, reach: tuple[int, int], shape: Shape) -> Sequence[int]:
    """Return the positions of samples along an axis: those where all elements that a sample takes may be reached."""
    stride = shape.stride.get(name, shape.patch.get(name, 1))
    found = range(max(0, -reach[0]), min(length, length - reach[1]), min(stride, max(length, 1)))
    if not found:
        offsets = f"offsets {reach[0]} to {reach[1]}"
        why = f"a patch of {shape.patch[name]} and its halo" if name in shape.patch else offsets
        raise Unusable(f"no sample along {name!r}: {why} do not fit into {length} elements")
    if name not in shape.within:
        return found
    inside = np.flatnonzero(within(shape.within[name], integers_of(found), reach))
    if not inside.size:
        raise Unusable(
            f"no sample along {name!r} is within a part of {int(shape.within[name].sum())} elements: take larger "
            "parts or blocks, or a smaller gap"
        )
    return elements_of(found, inside)


def within(mask: NDArray[np.bool_], positions: NDArray[np.int64], reach: tuple[int, int]) -> NDArray[np.bool_]:
    """Return for each position whether all elements from ``reach[0]`` to ``reach[1]`` after it are in a mask."""
    outside = np.concatenate(([0], np.cumsum(~mask)))
    found: NDArray[np.bool_] = outside[positions + reach[1] + 1] == outside[positions + reach[0]]
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


def _cuts(
    layout: Layout,
    chosen: Mapping[str, Sequence[int]],
    windows: Mapping[str, Sequence[int] | int],
    shapes: tuple[Shape, Mapping[str, int]],
    *,
    kept: bool,
) -> list[Cut]:
    """Return the cuts along each dimension of an array; ``shapes`` are the shape and the array's factors."""
    (shape, factors), axes, cuts = shapes, [*windows], []
    for name, length, stored in zip(dims_of(layout), layout.shape, layout.lengths, strict=True):
        chunk: int | Runs = max(length, 1) if kept else stored
        if name in shape.scale and isinstance(stored, Runs):
            raise Unusable(f"scale names {name!r}, along which stores of different chunks are joined")
        if factors.get(name, 1) > 1:
            scale, taken, elements = factors[name], _as_tuple(windows[name]), chosen[name]
            window = range(scale * min(taken), scale * (max(taken) + 1))
            fine = range(scale * elements[0], scale * (elements[-1] + 1))
            cuts.append(Cut(chunk, fine, window, axes.index(name), scale))
        elif name in windows:
            cuts.append(Cut(chunk, chosen[name], windows[name], axes.index(name)))
        elif name in shape.select:
            single = isinstance(shape.select[name], int)
            cuts.append(Cut(chunk, chosen[name], 0 if single else range(len(chosen[name]))))
        else:
            cuts.append(Cut(chunk, range(length), range(length)))
    return cuts


def _find_moving_arrays(
    layouts: Sequence[Layout], cuts: Sequence[Sequence[Cut]], kept: Sequence[bool], same: Sequence[int]
) -> Moving:
    """Return the arrays that samples are cut from; for arrays of equal values, only the cuts with the most elements."""
    found: dict[int, tuple[Layout, Sequence[Cut]]] = {}
    for layout, each, keeps, first in zip(layouts, cuts, kept, same, strict=True):
        if not keeps and (first not in found or _elements_of(each) > _elements_of(found[first][1])):
            found[first] = layout, each
    return [*found.values()]


def _elements_of(cuts: Sequence[Cut]) -> int:
    return prod(cut.length or 1 for cut in cuts)


def _extractions(
    layouts: Sequence[Layout], cuts: Sequence[Sequence[Cut]], kept: Sequence[bool], same: Sequence[int]
) -> tuple[Extraction, ...]:
    firsts = [0, *accumulate(prod(layout.grid) for layout in layouts)]
    return tuple(
        Extraction(each, [1] * len(layout.shape), -1 - number)
        if keeps
        else Extraction(each, layout.grid, firsts[first])
        for number, (layout, each, keeps, first) in enumerate(zip(layouts, cuts, kept, same, strict=True))
    )


def _is_kept(layout: Layout, windows: Mapping[str, object]) -> bool:
    """Return whether an array is read once and kept: if all samples share it, or if it is small."""
    shared = not any(name in windows for name in dims_of(layout))
    return shared or (_bytes(layout) <= _KEPT_BYTES and prod(layout.grid) <= _KEPT_CHUNKS)


def _bytes(layout: Layout) -> int:
    return prod(layout.shape) * layout.dtype.itemsize


def _mask(
    axes: Sequence[Axis], chosen: Mapping[str, Sequence[int]], lengths: Mapping[str, int], shape: Shape, taken: set[int]
) -> NDArray[np.bool_]:
    """Return a mask of valid positions: a sample there takes only valid elements along the dims."""
    sampled = [axis for axis in axes if axis.name not in shape.patch]
    mask = np.asarray(shape.valid)
    of = tuple(lengths[axis.name] for axis in sampled)
    if mask.shape not in (of, of[:1]):
        names = tuple(axis.name for axis in sampled)
        raise Unusable(f"valid has the shape {mask.shape}, but the arrays have {of} elements along {names}")
    if mask.dtype.kind not in "biu" or (mask.dtype.kind != "b" and not np.isin(mask, (0, 1)).all()):
        raise Unusable(f"valid must hold True or False (or 1 or 0) for each element, got values of {mask.dtype}")
    mask = mask.astype(bool)
    elements = [integers_of(chosen[axis.name]) for axis in sampled[: mask.ndim]]
    grid = [integers_of(axis.positions) for axis in sampled[: mask.ndim]]
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
    """Return a mask of valid positions whose samples do not reach over a gap of the first axis' coordinate."""
    name = axes[0].name
    if aligned is None or name not in aligned.values:
        return mask
    reach = reaches[name]
    found = unbroken(aligned.values[name][integers_of(chosen[name])], axes[0].positions, reach)
    if found.all():
        return mask
    found = np.broadcast_to(found.reshape(-1, *[1] * (len(axes) - 1)), [len(axis.positions) for axis in axes])
    found = found if mask is None else found & mask
    if not found.any():
        raise Unusable(
            f"no sample along {name!r}: offsets {reach[0]} to {reach[1]} reach over gaps between the "
            "common coordinates everywhere"
        )
    return found


# Most reads that the neighbours of a run of chunks may add to a block, as a fraction of its reads.
_OVERLAP = 0.1
# A block of several chunks takes at most this fraction (1 / 4) of the window.
_RUN_PART = 4
# Elements of a block along an axis without chunk borders.
_ANY = 1 << 62


class Blocks(NamedTuple):
    """Blocks of samples: elements of a block along each axis, and the same limits as those of ``Arrangement``.

    ``references`` are, along each aligned axis, the elements of the array whose chunks define the blocks; None along
    other axes, where all arrays share the elements.
    """

    edges: Sequence[int | Runs]
    references: Sequence[Sequence[int] | None]
    block_bytes: int
    chunk_bytes: int


def blocks_of(arrays: Moving, reaches: Sequence[tuple[int, int]], aligned: Sequence[bool], window_bytes: int) -> Blocks:
    """Return the blocks of samples.

    A block is a chunk of the array that has most of a sample's bytes; or of the array with the largest chunks, if a
    window has room for them; or several chunks in a row, if samples reach into the next ones. ``arrays`` are those
    that are not kept; ``aligned`` says for each axis whether each array has different elements along it.
    """
    if not arrays:
        return Blocks([_ANY] * len(reaches), [None] * len(reaches), 0, 0)
    by_size = sorted(arrays, key=lambda pair: -_elements_of(pair[1]) * pair[0].dtype.itemsize)
    references = [_cut_along(axis, by_size) if each else None for axis, each in enumerate(aligned)]
    elements = [None if cut is None else cut.chosen for cut in references]

    def size(edges: Sequence[int | Runs]) -> int:
        return _block_bytes(arrays, edges, reaches, elements)

    def edges_of(some: Moving) -> list[int | Runs]:
        return [
            (_most_along(axis, some) or _most_along(axis, arrays) or _ANY) if cut is None else cut.chunk
            for axis, cut in enumerate(references)
        ]

    own, edges = edges_of(by_size[:1]), edges_of(arrays)
    if size(edges) > window_bytes // _RUN_PART:
        edges = own
    spread, cut = reaches[0][1] - reaches[0][0], _cut_along(0, arrays)
    # Elements of an array between two neighbours that samples may use.
    spread *= abs(cut.chosen.step) if cut is not None and isinstance(cut.chosen, range) else 1
    run = ceil(spread / (_OVERLAP * largest(edges[0]))) if spread else 1
    while run > 1 and size([run * edges[0], *edges[1:]]) > window_bytes // _RUN_PART:
        run = run * 3 // 4
    edges = [run * edges[0], *edges[1:]]
    return Blocks(edges, elements, size(edges), size([1] * len(edges)))


def _cut_along(axis: int, arrays: Moving) -> Cut | None:
    return next((cut for _, cuts in arrays for cut in cuts if cut.axis == axis), None)


def _most_along(axis: int, arrays: Moving) -> int | Runs:
    """Return the size of the largest chunks along an axis; 0 if no array has the axis."""
    some = (cut for _, cuts in arrays for cut in cuts if cut.axis == axis)
    # Counted in positions along the axis.
    edges = (cut.chunk if isinstance(cut.chunk, Runs) else max(1, cut.chunk // cut.scale) for cut in some)
    return max(edges, key=largest, default=0)


def _block_bytes(
    arrays: Moving,
    edges: Sequence[int | Runs],
    reaches: Sequence[tuple[int, int]],
    references: Sequence[Sequence[int] | None],
) -> int:
    total = 0
    for layout, cuts in arrays:
        chunks = 1
        for cut, count in zip(cuts, layout.grid, strict=True):
            if cut.axis is None:
                chunks *= len({segment.chunk for segment in cut.at(0)})
                continue
            edge, reach, reference = edges[cut.axis], reaches[cut.axis], references[cut.axis]
            most = _across(cut, edge, reach) if reference is None else _count_chunks(cut, edge, reach, reference)
            chunks *= min(count, most)
        total += chunks * layout.chunk_bytes
    return total


def _across(cut: Cut, edge: int | Runs, reach: tuple[int, int]) -> int:
    """Return the most chunks that a run of ``edge`` elements touches, including elements beyond the run."""
    if isinstance(cut.chunk, Runs) or isinstance(edge, Runs) or not isinstance(cut.chosen, range):
        return _count_chunks(cut, edge, reach, cut.chosen)
    edge *= cut.scale
    spread = cut.scale * (reach[1] - reach[0]) * abs(cut.chosen.step)
    aligned = not spread and not edge % cut.chunk
    return edge // cut.chunk if aligned else (edge + spread - 1) // cut.chunk + 2


def _count_chunks(cut: Cut, edge: int | Runs, reach: tuple[int, int], reference: Sequence[int]) -> int:
    """Return the most chunks that a block touches, where blocks have ``edge`` elements of another array."""
    return most_touched(AxisBlocks(reference, edge), AxisBlocks(cut.chosen, cut.chunk), reach)
