"""What people write of chunks and shards, for one array and for many."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.errors import Unusable
from penstock.interop.zarr.documents import Shapes, fill_sizes, parse_sizes, shape_shard

DIMS = ("time", "lat", "lon")


def test_sizes_by_rank_dimension_and_array():
    shape = (365, 180, 360)
    assert Shapes((1, 90, -1), "chunks").of("tas", shape, DIMS) == (1, 90, -1)
    assert Shapes(7, "chunks").of("", (100,), (None,)) == (7,)
    assert Shapes({"time": 1, "lon": -1}, "chunks").of("a/tas", shape, DIMS) == (1, 0, -1)
    named = Shapes({"tas": (1, 2, 3), "time": 8}, "chunks")
    assert named.of("tas", shape, DIMS) == (1, 2, 3)
    assert named.of("pr", shape, DIMS) == (8, 0, 0)
    assert named.of("lat", (180,), ("lat",)) is None
    assert fill_sizes((1, 0, -1), shape, (30, 45, 60)) == (1, 45, 360)
    assert fill_sizes((-1,), (0,), (5,)) == (1,)


def test_coordinates_stay_as_they_are_unless_they_are_named():
    assert Shapes({"time": 1}, "chunks").of("time", (365,), ("time",)) is None
    assert Shapes({"time": 1}, "chunks").of("inner/time", (365,), ("time",)) is None
    assert Shapes({"time": (5,)}, "chunks").of("time", (365,), ("time",)) == (5,)
    assert Shapes({"time": 1}, "chunks").of("mean", (365,), ("time",)) == (1,)


def test_sizes_of_numpy_are_those_of_python():
    found = Shapes({"time": np.int64(1), "tas": (np.int32(3), 4, -1)}, "chunks")
    assert found.of("pr", (3, 4, 5), DIMS) == (1, 0, 0)
    assert found.of("tas", (3, 4, 5), DIMS) == (3, 4, -1)
    assert Shapes(np.int64(2), "chunks").of("", (9,), (None,)) == (2,)


def test_shapes_matching_no_array_are_refused_with_an_explanation():
    wrong = Shapes({"tmie": 1}, "chunks")
    assert wrong.of("tas", (3, 4, 5), DIMS) is None
    with pytest.raises(Unusable, match="chunks: no array and no dimension is called 'tmie': did you mean 'time'"):
        wrong.check_used()
    rank = Shapes((1, 2), "shards")
    assert rank.of("tas", (3, 4, 5), DIMS) is None
    with pytest.raises(Unusable, match="no array has so many dimensions"):
        rank.check_used()
    with pytest.raises(Unusable, match="are 2, but the array of shape"):
        rank.of("", (3, 4, 5), DIMS)
    with pytest.raises(Unusable, match="are 1, but array 'tas'"):
        Shapes({"tas": 4}, "chunks").of("tas", (3, 4, 5), DIMS)


@pytest.mark.parametrize("given", [0, -2, "big", 1.5, (1, 0), {"time": None}, True])
def test_invalid_chunk_size_is_refused(given):
    with pytest.raises(Unusable, match="must be whole numbers"):
        Shapes(given, "chunks")


def test_shards_are_whole_chunks():
    assert shape_shard((64, -1, 0), (365, 181, 360), (1, 90, 60), (1, 90, 120)) == (64, 270, 120)
    with pytest.raises(Unusable, match=r"\(10, 90\) are not a multiple of chunks \(4, 90\): \(8, 90\) would be"):
        shape_shard((10, 90), (100, 90), (4, 90), (4, 90))


def test_words_of_a_command_line():
    assert parse_sizes([], "--chunks") is None
    assert parse_sizes(["none"], "--shards") == "none"
    assert parse_sizes(["1,180,360"], "--chunks") == (1, 180, 360)
    assert parse_sizes(["time=1,lat=all", "lon=-1"], "--chunks") == {"time": 1, "lat": -1, "lon": -1}
    assert parse_sizes(["tas:1,2", "a/pr:3", "time=4"], "--chunks") == {"tas": (1, 2), "a/pr": (3,), "time": 4}
    for wrong in (["1,x"], ["time"], ["time="], ["1,2", "3,4"], ["time=0"], ["a:1;2"], ["1,,2"]):
        with pytest.raises(Unusable, match="--chunks"):
            parse_sizes(wrong, "--chunks")
