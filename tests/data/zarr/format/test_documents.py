"""Layouts are made of the documents that zarr writes, and of no others."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import product

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.storage import MemoryStore

from penstock.data.zarr.format.layout import layout_of, sharding
from penstock.errors import Damaged, PenstockError, Unsupported

V2 = json.loads("""{
    "zarr_format": 2, "shape": [10, 4], "chunks": [3, 4], "dtype": "<f4", "fill_value": 0.0, "order": "C",
    "filters": null, "compressor": null
}""")
V3 = json.loads("""{
    "zarr_format": 3, "node_type": "array", "shape": [10, 4], "data_type": "float32", "fill_value": "NaN",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3, 4]}},
    "chunk_key_encoding": {"name": "default"},
    "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]
}""")
SHARDED = json.loads("""{
    "chunk_shape": [3, 2], "codecs": [{"name": "bytes"}], "index_codecs": [{"name": "bytes"}, {"name": "crc32c"}]
}""")
DELETED = object()


def changed(document, path, value):
    """Return a document with another value at a path of names and numbers."""
    document = json.loads(json.dumps(document))
    *way, last = path
    inside = document
    for step in way:
        inside = inside[step]
    if value is DELETED:
        del inside[last]
    else:
        inside[last] = value
    return document


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("separator", [".", "/"])
@pytest.mark.parametrize(
    ("shape", "chunks", "shards"),
    [((10, 4), (3, 2), None), ((), (), None), ((5,), (9,), None), ((12, 6), (2, 3), (4, 6))],
)
def test_layout_matches_the_array_opened_by_zarr(version, separator, shape, chunks, shards):
    shards = shards if version == 3 else None
    store = MemoryStore()
    encoding = {"name": "default" if version == 3 else "v2", "separator": separator}
    array = zarr.create_array(
        *(store,), name="a", shape=shape, chunks=chunks, shards=shards, dtype="f4", fill_value=np.nan,
        zarr_format=version, chunk_key_encoding=encoding, attributes={"units": "K"},
    )  # fmt: skip
    if shape:
        array[:] = np.arange(array.size).reshape(shape)
    else:
        array[...] = 1
    file = "a/zarr.json" if version == 3 else "a/.zarray"
    document = json.loads(store._store_dict[file].to_bytes())
    layout = layout_of(document, {"units": "K"}, key="a/", name="a", url="memory://b/a")
    assert (layout.shape, layout.chunks, layout.shards) == (array.shape, array.chunks, array.shards)
    assert (layout.dtype, layout.attributes, layout.document) == (array.dtype, {"units": "K"}, document)
    assert np.isnan(layout.fill)
    assert layout.dims == (None,) * len(shape)
    keys = {layout.object_key(at) for at in product(*map(range, layout.grid))}
    assert keys == {
        key for key in store._store_dict if key.startswith("a/") and not key.endswith((".json", ".zarray", ".zattrs"))
    }


def test_dimensions_have_the_names_of_either_version():
    assert layout_of(V2, {"_ARRAY_DIMENSIONS": ["y", "x"]}).dims == ("y", "x")
    assert layout_of(V2, {"_ARRAY_DIMENSIONS": ["y"]}).dims == (None, None)
    assert layout_of(V2, {"_ARRAY_DIMENSIONS": "yx"}).dims == (None, None)
    assert layout_of({**V3, "dimension_names": ["y", None]}).dims == ("y", None)
    assert layout_of({**V3, "dimension_names": None}).dims == (None, None)
    for wrong in (["y"], "yx", ["y", 3], {"y": 1, "x": 2}):
        with pytest.raises(Damaged, match="dimension_names"):
            layout_of({**V3, "dimension_names": wrong})


def test_shards_that_another_codec_changes_are_decoded_as_a_whole():
    shard = {"name": "sharding_indexed", "configuration": SHARDED}
    chunked = changed(V3, ["chunk_grid", "configuration", "chunk_shape"], [6, 4])
    inner = layout_of({**chunked, "codecs": [shard]})
    assert (inner.chunks, inner.shards, sharding(inner)) == ((3, 2), (6, 4), SHARDED)
    whole = layout_of({**chunked, "codecs": [shard, {"name": "zstd"}]})
    assert (whole.chunks, whole.shards) == ((6, 4), None)
    strange = {**SHARDED, "index_codecs": [{"name": "bytes"}, {"name": "numcodecs.adler32"}]}
    whole = layout_of({**chunked, "codecs": [{**shard, "configuration": strange}]})
    assert (whole.chunks, whole.shards) == ((6, 4), None)


OF_V2 = [
    *((["shape"], value) for value in ([-1, 4], [10], ["a", 4], None, [True, 4], [1.5, 4], 10, DELETED)),
    *((["chunks"], value) for value in ([0, 4], [-3, 4], [3], [3, 4, 5], None, DELETED)),
    *((["zarr_format"], value) for value in (1, 4, "2", None, True, DELETED)),
    *((["order"], value) for value in ("K", 1)),
    *((["dimension_separator"], value) for value in ("//", "../")),
    *((["fill_value"], "abc"), (["dtype"], None)),
]
OF_V3 = [
    *((["shape"], value) for value in ([-1, 4], [10], {}, DELETED)),
    *((["node_type"], value) for value in ("group", None, DELETED)),
    *((["chunk_grid"], value) for value in (None, 3, {}, {"name": "regular"}, DELETED)),
    *((["chunk_grid", "configuration", "chunk_shape"], value) for value in ([0, 4], [3], ["3", 4])),
    *((["codecs"], value) for value in (None, [], "bytes", [3], [{"nom": "bytes"}], DELETED)),
    *((["chunk_key_encoding"], value) for value in (None, 7, {"name": "v2", "configuration": {"separator": "\\"}})),
    *((["fill_value"], value) for value in (None, "x", DELETED)),
    (["attributes"], []),
]


@pytest.mark.parametrize(
    ("document", "path", "value"), [*((V2, *each) for each in OF_V2), *((V3, *each) for each in OF_V3)]
)
def test_a_damaged_document_is_refused(document, path, value):
    with pytest.raises(Damaged, match=r"s3://b/document"):
        layout_of(changed(document, path, value), url="s3://b/document")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["chunk_grid"], {"name": "rectilinear", "configuration": {}}),
        (["chunk_key_encoding"], {"name": "suffix"}),
        (["storage_transformers"], [{"name": "x"}]),
        (["extra"], {"name": "x"}),
        (["shape"], [1 << 40, 1 << 40]),
        (["chunk_grid", "configuration", "chunk_shape"], [1 << 40, 4]),
        (["data_type"], "string"),
    ],
)
def test_unsupported_metadata_raises_unsupported_with_the_field_name(path, value):
    with pytest.raises(Unsupported, match=f"{path[-1]}.*s3://b/zarr.json"):
        layout_of(changed(V3, path, value), url="s3://b/zarr.json")


def test_a_field_that_need_not_be_understood_is_ignored():
    assert layout_of({**V3, "extra": {"must_understand": False}}).shape == (10, 4)


@pytest.mark.parametrize("inner", [[5, 4], [0, 4], [3], [6, 8], None])
def test_inner_chunks_divide_their_shard(inner):
    shard = {"name": "sharding_indexed", "configuration": {**SHARDED, "chunk_shape": inner}}
    with pytest.raises(Damaged, match=r"chunk_shape"):
        layout_of({**changed(V3, ["chunk_grid", "configuration", "chunk_shape"], [6, 4]), "codecs": [shard]})


def test_a_shard_of_too_many_inner_chunks_is_refused():
    shard = {"name": "sharding_indexed", "configuration": {**SHARDED, "chunk_shape": [1, 1]}}
    huge = changed(changed(V3, ["chunk_grid", "configuration", "chunk_shape"], [1 << 25, 4]), ["codecs"], [shard])
    with pytest.raises(Unsupported, match="inner chunks"):
        layout_of(huge)


def any_json(leaves, names, most_leaves):
    """Return a strategy of JSON whose objects have some names."""
    return st.recursive(
        st.none() | st.booleans() | st.integers() | leaves,
        lambda inside: st.lists(inside, max_size=4) | st.dictionaries(names, inside, max_size=3),
        max_leaves=most_leaves,
    )


ANY = any_json(st.floats() | st.text(max_size=4), st.sampled_from(["name", "configuration", "chunk_shape"]), 4)


@given(st.sampled_from([V2, V3]), st.data())
def test_any_value_of_any_field_gives_a_layout_or_an_error_of_ours(document, data):
    field = data.draw(st.sampled_from(sorted(document)))
    with suppress(PenstockError):
        layout_of({**document, field: data.draw(ANY)})


@pytest.mark.parametrize("document", [None, [], "x", 3])
def test_metadata_document_of_wrong_json_type_raises_damaged(document):
    with pytest.raises(Damaged, match="JSON object"):
        layout_of(document)
