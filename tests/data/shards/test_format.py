"""Extents have the types that a catalog takes."""

import numpy as np

from penstock.data.shards.format import extents_of


def test_extents_are_int64_and_may_be_empty():
    found = extents_of([5, 9], [7, 9])
    assert (found.offsets.dtype, found.sizes.dtype) == (np.int64, np.int64)
    assert (found.offsets.tolist(), found.sizes.tolist()) == ([5, 9], [2, 0])
    assert extents_of([], []).offsets.shape == (0,)
