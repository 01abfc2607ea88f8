"""Arrays are sampled together where their dimensions agree; what does not fit is refused by name and shape."""

import numpy as np
import pytest

from penstock.datasets.zarr.samples.arguments import shape_of
from penstock.datasets.zarr.samples.arrangement import Shape, arrange, dims_of
from penstock.errors import Unusable
from penstock.formats.zarr.documents import layout_of

DIMS = ("time", "y", "x")


def layout(shape, chunks, dims=None, name="", dtype="float32"):
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    }
    return layout_of(document | ({"dimension_names": dims} if dims else {}), name=name)


LARGE = layout((4000, 40, 50), (10, 40, 50), DIMS)


def arranged(*layouts, targets=0, window_bytes=1 << 26, valid=None, **arguments):
    given = {"dims": None, "offsets": 0, "target_offsets": 0, "stride": None, "patch": None, "halo": 0, "select": None}
    dims, offsets, target_offsets, stride, patch, halo, select = (given | arguments).values()
    shape = shape_of(dims, (offsets, target_offsets), stride, (patch, halo), select)
    return arrange(layouts, targets, shape, valid=valid, window_bytes=window_bytes)


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


def test_a_mask_leaves_out_all_that_would_touch_what_is_not_valid():
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
        ({"dims": "tiem"}, "dims names 'tiem', and the dimensions are 'time', 'y', 'x'"),
        ({"patch": {"lat": 8}}, "patch names 'lat'"),
        ({"patch": {"time": 8}}, "'time' is one of dims"),
        ({"patch": {"y": 64}}, "no sample along 'y': a patch of 64"),
        ({"patch": {"y": 16}, "halo": {"x": 1}}, "halo names 'x'"),
        ({"stride": {"y": 2}}, "stride names 'y'"),
        ({"offsets": range(5000)}, "no sample along 'time': offsets 0 to 4999"),
        ({"select": {"time": 0}}, "select takes one element of 'time'"),
        ({"select": {"y": [0, 40]}}, "select goes beyond 'y', which has 40"),
        ({"valid": [True, False]}, r"valid has the shape \(2,\), and the arrays have \(4000,\) elements"),
        ({"valid": np.zeros(4000, bool)}, "valid leaves no sample"),
        ({"valid": np.full(4000, 0.5)}, "valid says True or False"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, words):
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
