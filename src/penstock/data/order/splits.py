"""Parts of a dimension, for training and validation: disjoint, repeatable, and apart by a gap. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.data.order.shuffle import Permutation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def draw_parts(length: int, counts: Sequence[int], *, block: int, seed: int) -> NDArray[np.int64]:
    """Return the part of each of ``length`` elements, by a random draw of blocks.

    ``counts`` has the number of blocks of each part; ``block`` is the elements of a block (the last may have fewer).
    """
    blocks = sum(counts)
    owners = np.empty(blocks, dtype=np.int64)
    owners[Permutation(blocks, seed, 0, "split ").of(np.arange(blocks))] = np.repeat(np.arange(len(counts)), counts)
    return np.repeat(owners, block)[:length]


def apart(owners: NDArray[np.int64], gap: int) -> list[NDArray[np.bool_]]:
    """Return a mask of the elements of each part, of which those of two parts have ``gap`` elements between them.

    ``owners`` has the part of each element. The last ``gap`` elements before each border of two parts belong to none.
    """
    borders = np.flatnonzero(np.diff(owners)) + 1
    change = np.zeros(len(owners) + 1, dtype=np.int64)
    np.add.at(change, np.maximum(borders - gap, 0), 1)
    np.add.at(change, borders, -1)
    taken = np.cumsum(change[:-1]) > 0
    return [(owners == part) & ~taken for part in range(int(owners.max(initial=-1)) + 1)]


def within(mask: NDArray[np.bool_], positions: NDArray[np.int64], reach: tuple[int, int]) -> NDArray[np.bool_]:
    """Return whether all elements from the first to the last that a sample takes are in a mask, for each position.

    ``reach`` is the first and the last element that a sample takes, relative to its position.
    """
    outside = np.concatenate(([0], np.cumsum(~mask)))
    found: NDArray[np.bool_] = outside[positions + reach[1] + 1] == outside[positions + reach[0]]
    return found
