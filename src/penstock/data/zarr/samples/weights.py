"""Weights of the samples of arrays, from a weight for each element of some dimensions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from penstock.data.order.weighted import by_sample
from penstock.data.zarr.samples.arrangement import lengths_of
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from penstock.data.zarr.format.layout import Layout
    from penstock.data.zarr.samples.arrangement import Arrangement

_AT_ONCE = 1 << 18  # samples


def sample_weights(
    arrangement: Arrangement,
    layouts: Sequence[Layout],
    patch: Mapping[str, int],
    weights: Mapping[str, ArrayLike] | ArrayLike,
) -> NDArray[np.float64]:
    """Return the weight of each sample: the product of those along the dimensions.

    Along a dimension of ``patch``, that is the mean of the patch's elements without halo; along others, the weight of
    its index. ``weights`` are those of the elements by dimension, of all (of aligned arrays: all common ones) or of
    those that ``select`` leaves; or those of each sample.
    """
    space = arrangement.space
    if not isinstance(weights, Mapping):
        return by_sample(weights)
    names = [axis.name for axis in space.axes]
    tables: dict[int, NDArray[np.float64]] = {}
    for name, given in weights.items():
        if name not in names:
            raise Unusable(f"weights names {name!r}, and samples extend along {', '.join(names)}")
        # Of two resolutions, the coarsest counts.
        number, chosen = next(
            (number, cut.chosen)
            for number, each in enumerate(arrangement.extractions)
            for cut in each.cuts
            if cut.axis == names.index(name) and cut.scale == 1
        )
        length = lengths_of(layouts[number])[name]
        own = {} if arrangement.aligned is None else arrangement.aligned.elements[number]
        tables[names.index(name)] = _tabulate_weights(
            name, given, own.get(name, range(length)), chosen, patch.get(name, 1)
        )
    if not tables:
        raise Unusable('weights must name a dimension: {"lat": np.cos(np.deg2rad(latitudes))}')
    found = np.ones(space.samples)
    for start in range(0, space.samples, _AT_ONCE):
        some = slice(start, min(start + _AT_ONCE, space.samples))
        positions = space.positions(np.arange(some.start, some.stop))
        for number, table in tables.items():
            found[some] *= table[positions[:, number]]
    return found


def _tabulate_weights(
    name: str, given: ArrayLike, elements: Sequence[int], chosen: Sequence[int], size: int
) -> NDArray[np.float64]:
    """Return the weight of a sample by its position along a dimension.

    ``elements`` are those of an array that weights may be of, without repeats, and ``chosen`` those that samples use.
    """
    values = by_sample(given)
    if len(values) == len(elements) != len(chosen):
        order = np.argsort(elements)
        values = values[order[np.searchsorted(elements, chosen, sorter=order)]]
    if len(values) != len(chosen):
        raise Unusable(f"weights of {name!r} must be {len(elements)}, one for each element, got {len(values)}")
    if size == 1:
        return values
    running = np.concatenate(([0.0], np.cumsum(values)))
    return (running[size:] - running[:-size]) / size
