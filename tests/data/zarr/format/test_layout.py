"""Layouts have the keys, chunks, types and indexes that zarr has; fields are checked, and errors name their place."""

from __future__ import annotations

import json
import pickle
from itertools import product
from math import prod

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec
from zarr.core.dtype import get_data_type_from_json
from zarr.storage import MemoryStore

from penstock.data.zarr.format.layout import (
    ABSENT,
    DocumentFields,
    Layout,
    Runs,
    bounds,
    chunk_span,
    fill_value,
    index_span,
    largest,
    layout_of,
    read_index,
    v2_dtype,
    v3_dtype,
)
from penstock.errors import ChecksumMismatch, Damaged, Unsupported

ONE = {"key": "a/", "name": "", "dtype": np.dtype("f4"), "fill": np.float32(0), "attributes": {}, "document": {}}


def layout(shape, chunks, shards=None, **more):
    return Layout(shape=shape, chunks=chunks, shards=shards, dims=(None,) * len(shape), **ONE | more)


def test_the_grid_has_the_incomplete_last_chunks():
    assert layout((10, 4, 0), (3, 4, 5)).grid == (4, 1, 0)
    assert layout((), ()).grid == ()


@pytest.mark.parametrize(
    ("lead", "separator", "key", "scalar"),
    [
        ("c", "/", "a/c/1/0/2", "a/c"),
        ("c", ".", "a/c.1.0.2", "a/c"),
        ("", ".", "a/1.0.2", "a/0"),
        ("", "/", "a/1/0/2", "a/0"),
    ],
)
def test_keys_of_chunks(lead, separator, key, scalar):
    assert layout((9, 9, 9), (3, 3, 3), lead=lead, separator=separator).object_key((1, 0, 2)) == key
    assert layout((), (), lead=lead, separator=separator).object_key(()) == scalar


def test_a_shard_holds_its_inner_chunks_in_row_major_order():
    sharded = layout((8, 9), (2, 3), (4, 9))
    assert sharded.ratios == (2, 3)
    assert sharded.grid == (4, 3)
    found = [(sharded.object_key(at), sharded.inner(at)) for at in product(range(4), range(3))]
    assert found[:6] == [("a/c/0/0", 0), ("a/c/0/0", 1), ("a/c/0/0", 2), ("a/c/0/0", 3), ("a/c/0/0", 4), ("a/c/0/0", 5)]
    assert len(set(found)) == prod(sharded.grid)
    assert found[6] == ("a/c/1/0", 0)


def test_an_encoded_chunk_may_be_larger_than_a_decoded_one():
    assert layout((8, 9), (2, 3)).chunk_bytes == 24
    assert layout((8, 9), (2, 3)).most_bytes == 24 + (64 << 10)
    assert layout((8, 9), (2, 3), (8, 9)).most_bytes == 24 + (64 << 10)


def test_a_layout_is_pickled_and_equal_though_its_fill_is_nan():
    one = layout((8, 9), (2, 3), fill=np.float32("nan"))
    again = pickle.loads(pickle.dumps(one))
    assert again == one
    assert np.isnan(again.fill)
    assert again != layout((8, 8), (2, 3))


def test_runs_number_their_chunks_one_by_one_and_as_arrays():
    runs = Runs((5, 0, 3, 1), (2, 4, 3, 7))
    numbered = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (3, 0), (3, 1), (3, 2), (4, 0)]
    assert [divmod(element, runs) for element in range(9)] == numbered
    chunks, inside = divmod(np.arange(9), runs)
    assert [*zip(chunks.tolist(), inside.tolist(), strict=True)] == numbered
    assert (np.arange(9) // runs).tolist() == [chunk for chunk, _ in numbered]
    assert [bounds(runs, chunk, 9) for chunk in range(runs.firsts[-1])] == [(0, 2), (2, 4), (4, 5), (5, 8), (8, 9)]
    assert [runs.place(chunk) for chunk in range(5)] == [(0, 0), (0, 1), (0, 2), (2, 0), (3, 0)]
    assert [element // (2 * runs) for element in range(9)] == [0, 0, 0, 0, 1, 2, 2, 2, 3]
    assert largest(runs) == 7
    assert pickle.loads(pickle.dumps(runs)) == runs
    assert layout((9, 4), (7, 4), runs={0: runs}).grid == (5, 1)
    assert layout((9, 4), (7, 4), runs={0: runs}).lengths == (runs, 4)


def test_an_error_names_field_value_and_url():
    fields = DocumentFields({"grid": {"shape": [-1]}}, "s3://b/zarr.json")
    with pytest.raises(
        Damaged, match=r"'grid.shape' should be a list of whole numbers from 0 on: \[-1\] \[s3://b/zarr.json\]"
    ):
        fields.mapping("grid").sizes("shape", 0)
    assert "'x' is None: not yet" in str(fields.unsupported("x", "not yet"))
    assert "missing" in str(fields.damaged("x", "there"))


def test_an_error_does_not_quote_a_long_value():
    fields = DocumentFields({"shape": ["x" * 10_000] * 10_000})
    with pytest.raises(Damaged) as caught:
        fields.sizes("shape", 0)
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize("value", [None, 3, "12", [1.0], [True], [-1], ["1"], [1 << 63], {"a": 1}, [[1]]])
def test_sizes_are_lists_of_whole_numbers(value):
    with pytest.raises(Damaged):
        DocumentFields({"shape": value}).sizes("shape", 0)


def test_more_dimensions_than_numpy_has_are_unsupported():
    assert len(DocumentFields({"shape": [1] * 32}).sizes("shape", 1)) == 32
    with pytest.raises(Unsupported, match="32 dimensions"):
        DocumentFields({"shape": [1] * 33}).sizes("shape", 1)


def test_extensions_are_names_or_named_configurations():
    fields = DocumentFields({"codecs": ["bytes", {"name": "zstd", "configuration": {"level": 1}}, {"name": "crc32c"}]})
    found = [(name, dict(configuration.values)) for name, configuration in fields.extensions("codecs")]
    assert found == [("bytes", {}), ("zstd", {"level": 1}), ("crc32c", {})]
    assert fields.extensions("none") == []


@pytest.mark.parametrize(
    "value", ["bytes", 3, [3], [{}], [{"name": 3}], [{"name": "zstd", "configuration": []}], [None]]
)
def test_invalid_extension_metadata_raises_damaged(value):
    with pytest.raises(Damaged):
        DocumentFields({"codecs": value}).extensions("codecs")


@pytest.mark.parametrize("value", [".", "/"])
def test_a_word_is_one_of_several(value):
    assert DocumentFields({"separator": value}).chosen("separator", (".", "/"), "?") == value
    assert DocumentFields({}).chosen("separator", (".", "/"), "?") == "?"
    for other in ("..", 3, ["."], "\\"):
        with pytest.raises(Damaged, match=r"'\.' or '/'"):
            DocumentFields({"separator": other}).chosen("separator", (".", "/"), "?")


def written(shape, chunks, shards, location="end", endian="little", *, crc=True):
    """Return the layout of an array whose first half only is written, its values and its objects."""
    codec = ShardingCodec(
        chunk_shape=chunks,
        codecs=[BytesCodec()],
        index_codecs=[BytesCodec(endian=endian), *([Crc32cCodec()] * crc)],
        index_location=location,
    )
    store = MemoryStore()
    array = zarr.create(shape, store=store, chunks=shards, codecs=[codec], dtype="i4", fill_value=-1, zarr_format=3)
    values = np.full(shape, -1, "i4")
    values[: shape[0] // 2] = np.arange(values[: shape[0] // 2].size).reshape(values[: shape[0] // 2].shape)
    array[:] = values
    objects = {key: value.to_bytes() for key, value in store._store_dict.items()}
    return layout_of(json.loads(objects.pop("zarr.json"))), values, objects


def cut(objects, span):
    return objects[span.key][span.start : span.stop]


@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("endian", ["little", "big"])
@pytest.mark.parametrize("crc", [True, False])
@pytest.mark.parametrize(
    ("shape", "chunks", "shards"), [((12, 6), (2, 3), (4, 6)), ((12, 5), (2, 2), (8, 6)), ((9,), (1,), (9,))]
)
def test_inner_chunks_are_located_by_the_shard_index(location, endian, crc, shape, chunks, shards):
    layout, values, objects = written(shape, chunks, shards, location, endian, crc=crc)
    padded = np.pad(values, [(0, -size % chunk) for size, chunk in zip(shape, chunks, strict=True)], constant_values=-1)
    absent = 0
    for chunk in product(*map(range, layout.grid)):
        block = padded[tuple(slice(at * size, (at + 1) * size) for at, size in zip(chunk, chunks, strict=True))]
        key = layout.object_key(chunk)
        if key not in objects:
            assert (block == -1).all()
            continue
        index = read_index(layout, cut(objects, index_span(layout, key)))
        assert index.shape == (len(index), 2)
        assert index.dtype == np.uint64
        span = chunk_span(layout, chunk, index)
        if span is None:
            absent += 1
            assert (block == -1).all()
        else:
            assert (np.frombuffer(cut(objects, span), "<i4").reshape(chunks) == block).all()
    assert absent > 0


def test_a_damaged_index_is_found_by_its_checksum():
    layout, _, objects = written((12, 6), (2, 3), (4, 6))
    key = layout.object_key((0, 0))
    index = bytearray(cut(objects, index_span(layout, key)))
    for at in range(len(index)):
        index[at] ^= 1
        with pytest.raises(ChecksumMismatch, match=r"shard's index.*s3://b/c/0/0"):
            read_index(layout, index, "s3://b/c/0/0")
        index[at] ^= 1


@pytest.mark.parametrize("change", [b"", b"x", slice(1, None), slice(0, -1), slice(0, 16)])
def test_an_index_of_another_size_is_damaged(change):
    layout, _, objects = written((12, 6), (2, 3), (4, 6), crc=False)
    index = cut(objects, index_span(layout, layout.object_key((0, 0))))
    with pytest.raises(Damaged, match=r"64 of 4 chunks.*s3://b/s"):
        read_index(layout, index[change] if isinstance(change, slice) else change, "s3://b/s")


@pytest.mark.parametrize("entry", [(ABSENT, 5), (5, ABSENT), (ABSENT - 1, 24), (1 << 62, 24), (0, 1 << 40)])
def test_an_entry_that_cannot_be_is_damaged(entry):
    layout, *_ = written((12, 6), (2, 3), (4, 6), crc=False)
    index = np.full((4, 2), ABSENT, "<u8")
    assert (read_index(layout, index.tobytes()) == ABSENT).all()
    index[2] = entry
    with pytest.raises(Damaged, match="for its chunk 2"):
        read_index(layout, index.tobytes())


NUMBERS = [*("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
           *("float16", "float32", "float64", "complex64", "complex128")]  # fmt: skip
FILLS = {
    "b": [True, False],
    "i": [0, -3, 7, 7.0],
    "u": [0, 3, 250.0],
    "f": [0, -1, 1.5, "NaN", "Infinity", "-Infinity", 1e-3, 65519.9],
    "c": [[0, 1.5], ["NaN", "-Infinity"], [2, 0.0]],
    "M": ["NaT", 3, 0, -5],
    "m": ["NaT", 3],
    "S": ["", "YWI=", "eHl6"],
    "U": ["", "ab", "xyz", "äöü"],
}
TIMES = [{"name": f"numpy.{kind}64", "configuration": {"unit": unit, "scale_factor": scale}}
         for kind in ("datetime", "timedelta") for unit, scale in (("ns", 1), ("h", 6))]  # fmt: skip
TEXTS = [{"name": "fixed_length_utf32", "configuration": {"length_bytes": 12}},
         {"name": "null_terminated_bytes", "configuration": {"length_bytes": 3}}]  # fmt: skip


def same(one, other):
    assert one.dtype == other.dtype
    assert one.tobytes() == other.tobytes()


@pytest.mark.filterwarnings("ignore")  # zarr warns of types that the specification has not
@pytest.mark.parametrize("named", [*NUMBERS, *TIMES, *TEXTS], ids=str)
def test_types_and_fill_values_of_v3_are_zarrs(named):
    theirs = get_data_type_from_json(named, zarr_format=3)
    ours = v3_dtype(DocumentFields({"data_type": named}))
    assert ours == theirs.to_native_dtype()
    for value in FILLS[ours.kind]:
        same(
            fill_value(DocumentFields({"fill_value": value}), ours, 3),
            np.array(theirs.from_json_scalar(value, zarr_format=3), ours)[()],
        )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", ["i2", "u4", "i8", "f2", "f4", "f8", "c8", "c16", "M8[ns]", "m8[25s]", "U3"])
def test_types_and_fill_values_of_v2_are_zarrs(order, kind):
    theirs = get_data_type_from_json({"name": order + kind, "object_codec_id": None}, zarr_format=2)
    ours = v2_dtype(DocumentFields({"dtype": order + kind}))
    assert ours == theirs.to_native_dtype()
    for value in FILLS[ours.kind]:
        found = fill_value(DocumentFields({"fill_value": value}), ours, 2)
        same(found, np.array(theirs.from_json_scalar(value, zarr_format=2), ours.newbyteorder("="))[()])
        assert found.dtype.isnative


@pytest.mark.parametrize("kind", ["|b1", "<f4", ">i2", "|S3", "<U3", "<M8[ns]", ">M8[D]", "<m8[s]"])
def test_no_fill_value_in_v2_is_zero_and_nat_for_times_as_in_zarr(kind):
    native = (dtype := v2_dtype(DocumentFields({"dtype": kind}))).newbyteorder("=")
    wanted = np.array("NaT", native) if native.kind in "mM" else np.zeros((), native)
    same(fill_value(DocumentFields({"fill_value": None}), dtype, 2), wanted[()])
    if native.kind in "mM":
        array = zarr.create_array({}, shape=(3,), chunks=(2,), dtype=kind, fill_value=None, zarr_format=2)
        same(np.asarray(array[0], native)[()], wanted[()])


def test_fill_value_longer_than_the_text_dtype_raises_damaged():
    with pytest.raises(Damaged, match="fill_value"):
        fill_value(DocumentFields({"fill_value": "abcd"}), np.dtype("U3"), 2)


def test_bits_of_a_float_are_kept():
    for size, bits in ((2, "7e01"), (4, "7fc00001"), (4, "ffc00000"), (8, "7ff8000000000001"), (4, "3f800000")):
        found = fill_value(DocumentFields({"fill_value": "0x" + bits}), np.dtype(f"f{size}"), 3)
        assert found.view(f"u{size}") == int(bits, 16)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        *(("f4", value) for value in ("abc", [1], {}, True, "0x12", "0x7fc0000g", None)),
        *(("i2", value) for value in ("1", 1.5, 40_000, [1], "NaN", True, None, float("inf"), float("nan"))),
        *(("u1", value) for value in (-1, 256)),
        *(("?", value) for value in ("true", 2, [], None)),
        *(("c8", value) for value in ([1], [1, 2, 3], "NaN", ["x", 1], None)),
        *(("S3", value) for value in ("?", 5, "YWJjZA==", None)),
        *(("M8[s]", value) for value in ("today", [], 1 << 64, None)),
    ],
)
def test_a_fill_value_of_another_type_is_damage(dtype, value):
    with pytest.raises(Damaged, match="fill_value"):
        fill_value(DocumentFields({"fill_value": value}, "s3://b/zarr.json"), np.dtype(dtype), 3)


@pytest.mark.parametrize(
    ("read", "name", "value"),
    [
        *((v2_dtype, "dtype", each) for each in ("|O", "O", "|V8", "<f16", "i4,i4", "(2,3)f4", "<U99999999")),
        *((v2_dtype, "dtype", each) for each in ("", "<f3", [["a", "<f4"]], "\0")),
        *((v3_dtype, "data_type", each) for each in ("string", "bytes", "bfloat16", "r16", "float8_e4m3", "struct")),
        (v3_dtype, "data_type", {"name": "structured"}),
    ],
)
def test_types_without_a_tensor_are_unsupported(read, name, value):
    with pytest.raises(Unsupported, match=name):
        read(DocumentFields({name: value}))


@pytest.mark.parametrize(
    "named",
    [
        *(None, 3, {}, {"name": 3}, {"name": "numpy.datetime64"}),
        {"name": "numpy.datetime64", "configuration": {"unit": "ns", "scale_factor": 0}},
        {"name": "numpy.datetime64", "configuration": {"unit": "ns] , ("}},
        {"name": "fixed_length_utf32", "configuration": {"length_bytes": 5}},
        {"name": "null_terminated_bytes", "configuration": {"length_bytes": 1 << 40}},
    ],
)
def test_invalid_dtype_metadata_raises_damaged(named):
    with pytest.raises(Damaged, match="data_type"):
        v3_dtype(DocumentFields({"data_type": named}))
    for dtype in (None, 3, {}):
        with pytest.raises(Damaged, match="dtype"):
            v2_dtype(DocumentFields({"dtype": dtype}))
