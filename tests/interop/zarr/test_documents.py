"""Documents with other chunks, shards and codecs: zarr takes them, and all else stays."""

from __future__ import annotations

import json

import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore, StorePath

from penstock.errors import Unusable
from penstock.interop.zarr.documents import (
    CODECS,
    Shapes,
    codec_v2,
    codecs_v3,
    dimensions,
    fill_sizes,
    form,
    parse_sizes,
    rewritten,
    shape_shard,
    spell_codecs,
)


def made(**how):
    how = {"shape": (12, 10), "chunks": (4, 5), "dtype": "f4", "attributes": {"a": 1}} | how
    return json.loads(json.dumps(zarr.create_array(MemoryStore(), **how).metadata.to_dict()))


def changed(document, chunks=None, shards=None, codec=None):
    return rewritten(document, "", (Shapes(chunks, "chunks"), Shapes(shards, "shards")), codec, 4)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_without_a_wish_a_document_is_as_it_was(zarr_format):
    document = made(zarr_format=zarr_format, fill_value=7)
    again = changed(document)
    assert json.loads(json.dumps(again)) == document
    assert form(again) == form(document)


def test_shards_come_change_and_go():
    plain = made(dimension_names=("y", "x"))
    sharded = changed(plain, chunks=(2, 5), shards={"y": 6, "x": -1}, codec="gzip:6")
    assert form(sharded) == ((2, 5), (6, 10), "bytes+gzip:6")
    assert form(changed(sharded, codec="none")) == ((2, 5), (6, 10), "bytes")
    assert form(changed(sharded, chunks=(3, 10))) == ((3, 10), (6, 10), "bytes+gzip:6")
    assert form(changed(sharded, shards="none")) == ((2, 5), None, "bytes+gzip:6")
    with pytest.raises(Unusable, match=r"source's shards \(6, 10\) are not a multiple of chunks \(4, 10\)"):
        changed(sharded, chunks=(4, 10))
    for each in (sharded, changed(sharded, shards="none")):
        array = zarr.Array.from_dict(StorePath(MemoryStore(), "a"), each)
        array[:] = np.arange(120).reshape(12, 10)
        assert array[5, 5] == 55
        assert (array.attrs.asdict(), array.metadata.dimension_names) == ({"a": 1}, ("y", "x"))


def test_filters_and_the_order_of_bytes_stay():
    v2 = made(zarr_format=2, dtype=">i4", order="F") | {"filters": [{"id": "delta", "dtype": ">i4"}]}
    new = changed(v2, chunks=(12, 1), codec="blosc-zstd:3")
    assert (new["filters"][0]["id"], new["order"], new["dtype"]) == ("delta", "F", ">i4")
    assert form(new) == ((12, 1), None, "delta+blosc-zstd:3")
    v3 = made(serializer=zarr.codecs.BytesCodec(endian="big"), filters=[zarr.codecs.TransposeCodec(order=(1, 0))])
    assert form(changed(v3, codec="zstd:1")).codecs == "transpose+bytes+zstd:1"
    assert changed(v3, codec="zstd")["codecs"][1]["configuration"]["endian"] == "big"


def test_unsupported_format_grid_or_codec_change_is_refused():
    with pytest.raises(Unusable, match="format 2 have no shards: --zarr-format 3"):
        changed(made(zarr_format=2), shards=(4, 5))
    odd = made() | {"chunk_grid": {"name": "rectilinear", "configuration": {}}}
    with pytest.raises(Unusable, match="rectilinear"):
        changed(odd)
    with pytest.raises(Unusable, match="cannot replace mystery"):
        changed(made() | {"codecs": [{"name": "mystery"}]}, codec="zstd")


def test_names_of_dimensions_are_found_in_both_formats():
    assert dimensions(made(dimension_names=("y", None))) == ("y", None)
    assert dimensions(made(zarr_format=2, attributes={"_ARRAY_DIMENSIONS": ["y", "x"]})) == ("y", "x")
    assert dimensions(made(zarr_format=2, attributes={"_ARRAY_DIMENSIONS": ["y"]})) == (None, None)
    assert dimensions(made()) == (None, None)


@pytest.mark.parametrize("word", [*CODECS, "zstd:22", "zstd:-5", "gzip:9", "blosc-zstd:3"])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zarr_encodes_and_decodes_with_every_one(word, zarr_format):
    values = np.arange(40, dtype="i4")
    made = zarr.create_array(MemoryStore(), shape=40, chunks=20, dtype="i4", zarr_format=zarr_format)
    document = made.metadata.to_dict()
    if zarr_format == 2:
        document["compressor"] = codec_v2(word)
    else:
        document["codecs"] = [document["codecs"][0], *codecs_v3(word, 4)]
    array = zarr.Array.from_dict(StorePath(MemoryStore(), "a"), document)
    array[:] = values
    assert np.array_equal(array[:], values)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("zsdt", "did you mean 'zstd'"),
        ("blosc", "blosc-lz4"),
        ("xyzzy", "codecs are none, zstd, gzip, blosc-lz4"),
        ("gzip:10", "levels from 0 to 9"),
        ("zstd:fast", "whole number, as in zstd:0"),
        ("none:1", "has no level"),
    ],
)
def test_invalid_codec_name_is_refused_with_a_correction(word, said):
    for call in (lambda: codec_v2(word), lambda: codecs_v3(word, 4)):
        with pytest.raises(Unusable, match=said):
            call()


def test_codecs_are_spelled_as_they_are_written():
    assert spell_codecs(codecs_v3("zstd:5", 4)) == "zstd:5"
    assert spell_codecs([{"name": "bytes"}, *codecs_v3("blosc-lz4:3", 4)]) == "bytes+blosc-lz4:3"
    assert spell_codecs([codec_v2("gzip:6")]) == "gzip:6"
    assert spell_codecs([]) == "none"
    assert spell_codecs(["bytes"]) == "bytes"


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
    with pytest.raises(Unusable, match="chunks: unknown array or dimension 'tmie': did you mean 'time'"):
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
