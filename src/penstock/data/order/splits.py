"""Parts of a dimension, for training and validation: disjoint, repeatable, and apart by a gap. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.data.order.shuffle import Permutation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def draw_parts(length: int, counts: Sequence[int], *, block: int, seed: int) -> NDArray[np.int64]:
    """Return the part of each of ``length`` elements, drawn in blocks, ``counts`` of them for each part."""
    blocks = sum(counts)
    owners = np.empty(blocks, dtype=np.int64)
    owners[Permutation(blocks, seed, 0, "split ").of(np.arange(blocks))] = np.repeat(np.arange(len(counts)), counts)
    return np.repeat(owners, block)[:length]


def apart(owners: NDArray[np.int64], gap: int) -> list[NDArray[np.bool_]]:
    """Return a mask of the elements of each part, without the last ``gap`` ones before each border of two parts."""
    borders = np.flatnonzero(np.diff(owners)) + 1
    change = np.zeros(len(owners) + 1, dtype=np.int64)
    np.add.at(change, np.maximum(borders - gap, 0), 1)
    np.add.at(change, borders, -1)
    taken = np.cumsum(change[:-1]) > 0
    return [(owners == part) & ~taken for part in range(int(owners.max(initial=-1)) + 1)]


def within(mask: NDArray[np.bool_], positions: NDArray[np.int64], reach: tuple[int, int]) -> NDArray[np.bool_]:
    """Return for each position whether all elements from ``reach[0]`` to ``reach[1]`` after it are in a mask."""
    outside = np.concatenate(([0], np.cumsum(~mask)))
    found: NDArray[np.bool_] = outside[positions + reach[1] + 1] == outside[positions + reach[0]]
    return found
