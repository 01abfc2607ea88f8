"""Documents with other chunks, shards and codecs: zarr takes them, and all else stays."""

from __future__ import annotations

import json

import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore, StorePath

from penstock.errors import Unusable
from penstock.interop.zarr.documents import Shapes, dimensions, form, rewritten


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
