"""Regions: every element in exactly one, made of whole objects of the destination, within the memory, few reads."""

from __future__ import annotations

from math import ceil, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Unusable
from penstock.interop.zarr.regions import Grids, Regions, memory_bytes, object_reads, regions

MIB = 1 << 20
_sizes = st.integers(1, 30)
_dims = st.lists(st.tuples(_sizes, st.integers(1, 12), st.integers(1, 12)), min_size=0, max_size=3)


def grids_of(dims, item_bytes=4):
    shape, source, dest = (tuple(each[i] for each in dims) for i in range(3))
    return Grids(shape, source, dest, item_bytes)


def counted(grids, cut):
    """Return how often objects of the source are touched, by walking through all regions."""
    return sum(
        prod(ceil(each.stop / step) - each.start // step for each, step in zip(cut[number], grids.source, strict=True))
        for number in range(len(cut))
    )


@given(_dims, st.integers(100, 20_000))
def test_each_element_lies_in_one_region_of_whole_objects(dims, limit_bytes):
    grids = grids_of(dims)
    cut = regions(grids, limit_bytes, max(limit_bytes, memory_bytes(grids, grids.dest)))
    times = np.zeros(grids.shape, int)
    for number in range(len(cut)):
        times[cut[number]] += 1
        for each, dest, size in zip(cut[number], grids.dest, grids.shape, strict=True):
            assert each.start % dest == 0
            assert each.stop % dest == 0 or each.stop == size
    assert (times == 1).all()
    assert object_reads(grids, cut.box) == counted(grids, cut)
    least = memory_bytes(grids, grids.dest)
    assert memory_bytes(grids, cut.box) <= max(limit_bytes, least)


@given(_dims)
def test_with_memory_enough_every_object_of_the_source_is_read_once(dims):
    grids = grids_of(dims)
    cut = regions(grids, 1 << 40, 1 << 40)
    assert object_reads(grids, cut.box) == prod(ceil(a / b) for a, b in zip(grids.shape, grids.source, strict=True))


def test_less_memory_costs_reads_and_none_is_refused():
    grids = Grids((1000, 512, 512), (100, 64, 64), (1, 512, 512), 4)
    reads = [object_reads(grids, regions(grids, size * MIB, size * MIB).box) / 640 for size in (1024, 256, 64)]
    assert reads[0] == 1
    assert reads == sorted(reads)
    assert reads[2] > 1
    with pytest.raises(Unusable, match=r"1x512x512 elements needs \d+ MiB of memory .* 4 MiB are allowed"):
        regions(grids, MIB, 4 * MIB)


def test_regions_that_fill_the_memory_are_taken_where_they_spare_reads():
    grids = Grids((64, 512, 512), (8, 128, 512), (1, 512, 512), 4)
    assert object_reads(grids, regions(grids, 20 * MIB, 48 * MIB).box) == 32
    assert object_reads(grids, regions(grids, 20 * MIB, 20 * MIB).box) > 32


def test_small_chunks_are_copied_many_at_once():
    cut = regions(Grids((10_000, 1000), (1, 1000), (1, 1000), 4), 256 * MIB, 1024 * MIB)
    assert MIB < prod(cut.box) * 4 <= 32 * MIB
    assert object_reads(Grids((10_000, 1000), (1, 1000), (1, 1000), 4), cut.box) == 10_000


def test_an_array_without_dimensions_is_one_region_and_one_without_elements_none():
    assert [Regions((), ())[number] for number in range(len(Regions((), ())))] == [()]
    assert len(regions(Grids((0, 4), (1, 4), (1, 4), 4), MIB, MIB)) == 0
