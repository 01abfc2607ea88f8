"""Arrays are sampled together where their dimensions agree; what does not fit is refused; blocks count their chunks."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.order.orders import FullShuffle
from penstock.data.zarr.dataset import _resolve_order
from penstock.data.zarr.format.layout import Runs, layout_of
from penstock.data.zarr.samples.arrangement import Shape, arrange, blocks_of, dims_of, within
from penstock.data.zarr.samples.extraction import Axis, Cut
from penstock.errors import Unusable
from tests.amounts import examples
from tests.data.zarr.format.test_documents import V3
from tests.data.zarr.test_arguments import shape

DIMS = ("time", "y", "x")


def layout(shape, chunks, dims=None, name="", dtype="float32"):
    grid = {"name": "regular", "configuration": {"chunk_shape": chunks}}
    document = {**V3, "shape": shape, "data_type": dtype, "chunk_grid": grid, "fill_value": 0}
    return layout_of(document | ({"dimension_names": dims} if dims else {}), name=name)


LARGE = layout((4000, 40, 50), (10, 40, 50), DIMS)


def arranged(*layouts, targets=0, window_bytes=1 << 26, valid=None, **arguments):
    return arrange(layouts, targets, replace(shape(**arguments), valid=valid), window_bytes=window_bytes)


def positions(arrangement):
    return arrangement.space.positions(np.arange(arrangement.space.samples)).tolist()


def test_the_first_dimension_is_the_default_and_blocks_are_chunks():
    found = arranged(LARGE)
    assert found.space.axes[0].name == "time"
    assert set(found.space.sizes.tolist()) == {10}
    assert found.extractions[0].shape == (40, 50)
    assert found.block_bytes == LARGE.chunk_bytes


def test_dimensions_without_names_are_named_by_their_place():
    assert dims_of(layout((3, 4), (1, 1))) == ("dim_0", "dim_1")
    assert arranged(layout((3, 4), (1, 1)), dims="dim_1").space.samples == 4


def test_samples_are_where_all_that_they_reach_exists():
    found = arranged(LARGE, LARGE, targets=1, offsets=(-2, 0), target_offsets=range(1, 4))
    assert [found.space.axes[0].positions[at] for at in (0, -1)] == [2, 3996]
    assert [each.shape for each in found.extractions] == [(2, 40, 50), (3, 40, 50)]
    patched = arranged(LARGE, dims="time", patch={"y": 16}, halo=2, select={"time": slice(0, 1)})
    assert positions(patched) == [[0, 2], [0, 18]]
    assert patched.extractions[0].shape == (20, 50)


def test_a_target_has_no_halo():
    found = arranged(LARGE, LARGE, targets=1, patch={"y": 16}, halo=2)
    assert [each.shape for each in found.extractions] == [(20, 50), (16, 50)]


def test_strides_skip_positions():
    assert [at for (at,) in positions(arranged(LARGE, stride=1000))] == [0, 1000, 2000, 3000]
    assert len(arranged(LARGE, patch={"y": 16}, stride={"y": 8}).space.axes[1].positions) == 4


def test_samples_that_reach_into_other_chunks_come_in_longer_blocks():
    found = arranged(LARGE, offsets=range(5))
    assert found.space.sizes[0] == 40
    assert arranged(LARGE, offsets=range(5), window_bytes=1).space.sizes[0] == 10


def test_small_arrays_and_those_that_all_samples_share_are_kept():
    small, shared = layout((4000,), (100,), ("time",), "label"), layout((40, 50), (40, 50), ("y", "x"), "height")
    found = arranged(LARGE, small, shared, targets=1)
    assert found.kept == (False, True, True)
    assert found.kept_bytes == 4000 * 4 + 40 * 50 * 4
    assert found.extractions[2].parts([7])[0].chunk == -3


def test_valid_mask_excludes_every_sample_touching_an_invalid_element():
    valid = np.ones(4000, bool)
    valid[10] = False
    found = arranged(LARGE, valid=valid, offsets=(-1, 0), select={"time": slice(5, 20)})
    times = [5 + at for (at,) in positions(found)]
    assert times == [6, 7, 8, 9, 12, 13, 14, 15, 16, 17, 18, 19]
    both = np.ones((4000, 40), bool)
    both[0, 1] = False
    assert arranged(LARGE, dims=("time", "y"), valid=both, select={"time": slice(0, 1)}).space.samples == 39


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dims": "tiem"}, "dims: unknown dimension 'tiem'; known are 'time', 'y', 'x'"),
        ({"patch": {"lat": 8}}, "patch: unknown dimension 'lat'"),
        ({"patch": {"time": 8}}, "'time' is one of dims"),
        ({"patch": {"y": 64}}, "no sample along 'y': a patch of 64"),
        ({"patch": {"y": 16}, "halo": {"x": 1}}, "halo names 'x'"),
        ({"stride": {"y": 2}}, "stride names 'y'"),
        ({"offsets": range(5000)}, "no sample along 'time': offsets 0 to 4999"),
        ({"select": {"time": 0}}, "select takes one element of 'time'"),
        ({"select": {"y": [0, 40]}}, "select goes beyond 'y', which has 40"),
        ({"valid": [True, False]}, r"valid has the shape \(2,\), but the arrays have \(4000,\) elements"),
        ({"valid": np.zeros(4000, bool)}, "valid leaves no sample"),
        ({"valid": np.full(4000, 0.5)}, "valid must hold True or False"),
    ],
)
def test_sample_arguments_inconsistent_with_the_arrays_are_refused(arguments, words):
    with pytest.raises(Unusable, match=words):
        arranged(LARGE, **arguments)


def test_arrays_of_different_lengths_are_refused_with_both_shapes():
    other = layout((3999, 40, 50), (10, 40, 50), DIMS, "other")
    with pytest.raises(Unusable, match=r"'time': .*\(4000, 40, 50\).*other has the shape \(3999, 40, 50\)"):
        arranged(LARGE, other)
    arranged(LARGE, layout((4000, 7), (10, 7), ("time", "y"), "other"))  # what no sample is cut along may differ


def test_an_array_without_dimensions_is_refused():
    with pytest.raises(Unusable, match="without dimensions"):
        arrange([layout((), ())], 0, Shape(), window_bytes=1)


STATIC, FIELD = layout((40, 50), (40, 50), DIMS[1:], "lsm"), layout((4000, 40, 50), (10, 40, 50), DIMS, "t2m")


@pytest.mark.parametrize("layouts", [(STATIC, FIELD), (FIELD, STATIC)], ids=["static first", "static last"])
@pytest.mark.parametrize("dims", [None, "time"])
def test_static_field_that_sorts_first_decides_nothing(layouts, dims):
    found = arranged(*layouts, dims=dims)
    assert [(axis.name, len(axis.positions)) for axis in found.space.axes] == [("time", 4000)]
    assert {each.shape for each in found.extractions} == {(40, 50)}


def test_arrays_that_begin_with_different_dimensions_need_dims():
    other = layout((7, 40, 50), (1, 40, 50), ("level", "y", "x"), "levels")
    with pytest.raises(Unusable, match=r"begin with different dimensions: .* dims='time'"):
        arranged(FIELD, other)
    assert arranged(FIELD, other, dims="level").space.samples == 7


def test_dims_that_only_targets_have_are_refused():
    with pytest.raises(Unusable, match=r"no sample array has a dimension of dims \('time',\): lsm has the shape"):
        arranged(STATIC, FIELD, targets=1, dims="time")


def test_patches_of_two_grids_are_refused_and_not_crossed():
    low = layout((4000, 10, 10), (10, 10, 10), ("time", "lo_y", "lo_x"), "lo")
    with pytest.raises(Unusable, match="patch names 'y' and 'lo_y', and no array has both"):
        arranged(FIELD, low, dims="time", patch={"y": 8, "lo_y": 2})
    assert arranged(FIELD, low, dims="time", patch={"y": 8, "x": 10}).extractions[1].shape == (10, 10)


@pytest.mark.parametrize(
    "arguments", [{"dims": "cell"}, {"patch": {"cell": 2}}, {"select": {"cell": [0, 1]}}, {}], ids=str
)
def test_dimension_that_an_array_has_twice_is_not_cut(arguments):
    covariance = layout((5, 9, 9), (1, 9, 9), ("time", "cell", "cell"), "p")
    if not arguments:
        assert arranged(covariance).extractions[0].shape == (9, 9)
        return
    with pytest.raises(Unusable, match="cannot be cut along 'cell', which occurs twice"):
        arranged(covariance, **arguments)


@pytest.mark.parametrize(
    ("wide", "arguments"),
    [
        (layout((64, 1 << 40), (1, 32), ("t", "x")), {}),
        (layout((64, 1 << 35), (1, 1), ("t", "x"), dtype="int8"), {}),
        (layout((64, 1 << 40), (1, 32), ("t", "x")), {"patch": {"x": 1 << 38}}),
        (layout((64, 1 << 40), (1, 32), ("t", "x")), {"select": {"x": slice(None, None, -2)}}),
    ],
    ids=["wide", "flat", "large patch", "reversed"],
)
def test_more_chunks_than_can_be_listed_are_refused_before_they_are_listed(wide, arguments):
    tracemalloc.start()
    try:
        with pytest.raises(Unusable, match="chunks"):
            arranged(wide, **arguments)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_long_axis_takes_memory_of_its_blocks_alone():
    tall = layout((1 << 40, 2), (1 << 30, 2), ("t", "x"), dtype="int8")
    for stride, select in ((1, None), (3, None), (7, {"t": slice(None, None, -1)})):
        found = arranged(tall, stride=stride, select=select)
        assert found.space.samples == -(-(1 << 40) // stride)
        assert len(found.space.sizes) == 1 << 10


@pytest.mark.parametrize(
    ("chunks", "arguments"),
    [
        (4, {}),
        (1, {}),
        (4, {"stride": 2}),
        (4, {"offsets": range(4)}),
        (1, {"patch": {"x": 16}}),
        (4, {"select": {"t": slice(None, None, -1)}}),
    ],
    ids=["chunks", "single", "stride", "windows", "patches", "reversed"],
)
def test_arrangement_and_order_of_regular_chunks_take_no_memory_a_sample(chunks, arguments):
    for count in (10**6, 10**9, 10**12):
        several = [layout((count, 64), (each, 16), ("t", "x"), dtype="int8") for each in (chunks, 2 * chunks)]
        tracemalloc.start()
        found = arranged(*several, dims="t", **arguments)
        order, _ = _resolve_order(FullShuffle(), arrangement=found, window_bytes=1 << 16, lanes=4)
        places = order.epoch(found.space.samples, 0, 0)(np.arange(1000))
        found.space.positions(places)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found.space.samples >= count // 2 - 4
        # Of the order, which permutes fewer than 65,536 blocks by a table.
        assert peak < 4_000_000


def test_arrays_of_joined_stores_take_no_memory_a_sample():
    for count in (10**6, 10**9, 10**12):
        runs = Runs((count // 4, count // 2, count // 4), (4, 8, 4))
        one, other = (
            replace(layout((count, 3), (each, 3), ("t", "x"), dtype="int8"), runs={0: runs}) for each in (8, 8)
        )
        tracemalloc.start()
        found = arranged(one, other, dims="t", offsets=range(3))
        found.space.positions(np.arange(0, count, count // 1000))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found.space.samples == count - 2
        assert peak < 2_000_000


MIB = 1 << 20


def column(length, chunk, width=1):
    return layout((length, width), (chunk, width), dtype="float64")


def moving(of, chosen, window=0):
    return of, [Cut(of.chunks[0], chosen, window, 0), Cut(of.chunks[1], range(of.shape[1]), range(of.shape[1]))]


def test_arrays_of_one_index_have_blocks_of_the_largest_chunk():
    arrays = [moving(column(100, 4), range(100)), moving(column(100, 8), range(100))]
    found = blocks_of(arrays, [(0, 0)], [False], MIB)
    assert (found.edges, found.references) == ([8], [None])
    assert found.block_bytes == (2 * 4 + 8) * 8
    assert found.chunk_bytes == 2 * (4 + 8) * 8  # an element may lie anywhere: counted as if it were across two


def test_nothing_to_read_is_one_block():
    found = blocks_of([], [(0, 0)], [True], MIB)
    assert (found.references, found.block_bytes, found.chunk_bytes) == ([None], 0, 0)


@given(st.data())
def test_blocks_of_aligned_arrays_touch_as_many_chunks_as_are_counted(data):
    count = data.draw(st.integers(1, 40))
    arrays, ids = [], []
    for width in (3, 1):
        elements = tuple(np.cumsum(data.draw(st.lists(st.integers(1, 5), min_size=count, max_size=count))).tolist())
        chunk = data.draw(st.integers(1, 9))
        arrays.append(moving(column(elements[-1] + 1, chunk, width), elements))
        ids.append(np.array(elements) // chunk)
    reach = data.draw(st.sampled_from([(0, 0), (-1, 2), (1, 1)]))
    found = blocks_of(arrays, [reach], [True], MIB)
    assert found.references == [arrays[0][1][0].chosen]
    block = np.array(found.references[0]) // found.edges[0]
    most = 0
    for each in np.unique(block):
        at = np.flatnonzero(block == each)
        touched = slice(max(0, at[0] + reach[0]), max(1, at[-1] + reach[1] + 1))
        sizes = [len(np.unique(of[touched])) * array.chunk_bytes for of, (array, _) in zip(ids, arrays, strict=True)]
        most = max(most, sum(sizes))
    bound = sum(
        array.chunk_bytes * min(array.grid[0], len(set(of.tolist())))
        for of, (array, _) in zip(ids, arrays, strict=True)
    )
    assert most <= found.block_bytes <= bound


@given(st.data())
def test_blocks_of_elements_that_are_chosen_apart_touch_no_more_chunks_than_are_counted(data):
    length, chunk = data.draw(st.integers(2, 60)), data.draw(st.integers(1, 9))
    step = data.draw(st.sampled_from([1, 2, 7, 10, -1, -3]))
    mixed = tuple(data.draw(st.permutations(range(length))))
    chosen = data.draw(st.sampled_from([range(length)[::step], mixed]))
    first, last = reach = data.draw(st.sampled_from([(0, 0), (0, 5), (-2, 3)]))
    array = column(length, chunk)
    found = blocks_of([moving(array, chosen)], [reach], [False], data.draw(st.sampled_from([1, MIB])))
    ids, positions = np.array(chosen) // chunk, range(max(0, -first), len(chosen) - max(0, last))
    if not positions:
        return
    touched = [{*ids[at + first : at + last + 1].tolist()} for at in positions]
    assert max(map(len, touched)) * array.chunk_bytes <= found.chunk_bytes
    axis = Axis.of("time", positions, chosen, found.edges[0])
    blocks = np.split(np.arange(len(positions)), axis.blocks.starts(np.arange(1, axis.blocks.count)))
    most = max(len(set().union(*(touched[at] for at in block))) for block in blocks)
    assert most * array.chunk_bytes <= found.block_bytes


@settings(max_examples=examples(50))
@given(st.lists(st.booleans(), min_size=12, max_size=30), st.integers(-3, 2), st.integers(0, 4))
def test_a_sample_lies_within_a_mask_with_all_that_it_reaches(mask, first, more):
    mask, reach = np.array(mask), (first, first + more)
    positions = np.arange(max(0, -reach[0]), min(len(mask), len(mask) - reach[1]))
    wanted = [mask[at + reach[0] : at + reach[1] + 1].all() for at in positions]
    assert within(mask, positions, reach).tolist() == wanted
