"""What makes a sample is said in numbers, ranges and mappings; what cannot be meant is refused by name."""

import datetime as dt

import numpy as np
import pytest

from penstock.data.zarr.arguments import shape_of
from penstock.errors import Unusable


def shape(dims=None, **given):
    offsets, patches = (
        (given.get("offsets", 0), given.get("target_offsets", 0)),
        (given.get("patch"), given.get("halo", 0), given.get("scale")),
    )
    return shape_of(dims, offsets, given.get("stride"), patches, given.get("select"))


def test_arguments_become_uniform():
    select = {"time": slice(0, 9), "level": 3, "band": [0, 2]}
    found = shape(
        "time", offsets=range(-1, 1), target_offsets=6, stride=2, patch={"y": 8, "x": 8}, halo=1, select=select
    )
    assert (found.dims, found.offsets, found.target_offsets) == (("time",), (-1, 0), 6)
    assert (found.stride, found.patch, found.halo) == ({"": 2}, {"y": 8, "x": 8}, {"y": 1, "x": 1})
    assert found.select == select
    assert shape(("time", "member"), halo={"y": 1}, stride={"time": 3}).dims == ("time", "member")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dims": 0}, "dims must be the name"),
        ({"dims": ("time", "time")}, "twice"),
        ({"offsets": ()}, "offsets is empty"),
        ({"offsets": "12"}, "offsets must be a number"),
        ({"offsets": 1.5}, "offsets must be a number"),
        ({"target_offsets": (0, 1.5)}, "target_offsets must be a whole number"),
        ({"stride": 0}, "stride must be 1 or more"),
        ({"stride": "2"}, "stride must be a mapping"),
        ({"patch": 64}, "patch must be a mapping"),
        ({"patch": {"y": 0}}, "patch of 'y' must be 1 or more"),
        ({"patch": {"y": 8}, "halo": -1}, "halo must be 0 or more"),
        ({"halo": 2}, "halo=2 is of patches, and there are none"),
        ({"scale": 2}, "scale=2 is of patches, and there are none"),
        ({"select": 5}, "select must be a mapping"),
        ({"select": {"time": "2020"}}, "select of 'time'"),
        ({"select": {"time": [True, False]}}, r"is a mask, and takes numbers of elements: np\.flatnonzero"),
        ({"select": {"time": np.array([True, False])}}, r"np\.flatnonzero\(mask\)"),
        ({"select": {"time": [1, 2.5]}}, "select of 'time' must be a whole number"),
        ({"select": {"time": slice("2000", None)}}, r"counts elements, and slice\('2000'.*slice_indexer"),
        ({"select": {"lat": slice(None, 20.5)}}, "select of 'lat' counts elements"),
        ({"select": {"lat": 20.5}}, "select of 'lat' counts elements, and 20.5"),
        ({"select": {"time": np.datetime64("2000-01-01")}}, "select of 'time' counts elements"),
        ({"select": {"time": dt.date(2000, 1, 1)}}, "select of 'time' counts elements"),
    ],
)
def test_invalid_sample_shape_arguments_are_refused(arguments, words):
    with pytest.raises(Unusable, match=words):
        shape(**arguments)
