"""Rows of MDS have the bytes that MDSWriter writes; what does not fit is refused by name."""

from decimal import Decimal
from struct import pack

import numpy as np
import pytest

from penstock.data.shards.mds_columns import MDSColumn, decode_columns
from penstock.data.shards.mds_encode import columns_from, encoded_row, encoding_of, header, index_json
from penstock.errors import Unusable
from tests.data.shards.mosaic import COLUMNS, GOLDEN, SAMPLES, SMALL, encoded, raw, sample, small
from tests.refusals import refused

WRITTEN = sorted(COLUMNS.keys() - {"pkl", "pil", "list_pil"})


def given(name, value):
    """Return the value that is written: files in place of images."""
    kind = "PNG" if "png" in name else "JPEG"
    if name in ("jpeg", "png"):
        return encoded(kind, value)
    return [encoded(kind, each) for each in value] if name in ("list_jpeg", "list_png") else value


@pytest.mark.parametrize("name", WRITTEN)
def test_values_have_the_bytes_of_mosaic(name):
    (column,) = columns_from({name: COLUMNS[name]})
    for number in range(SAMPLES):
        value, wanted = given(name, sample(number)[name]), raw(number)[name]
        head = pack("<I", len(wanted)) if column.size is None else b""
        assert encoded_row({name: value, "other": None}, (column,)) == head + wanted


def test_whole_shards_have_the_bytes_of_mosaic():
    columns = columns_from(SMALL)
    rows = [encoded_row(small(number), columns) for number in range(20)]
    data = (GOLDEN / "sha256" / "shard.00000.mds").read_bytes()
    count = int.from_bytes(data[:4], "little")
    assert header(columns, [*map(len, rows[:count])], 700) + b"".join(rows[:count]) == data


@pytest.mark.parametrize(
    ("name", "value", "encoding"),
    [
        ("x", b"1", "bytes"),
        ("JPG", bytearray(b"1"), "jpeg"),
        ("jpeg", b"1", "jpeg"),
        ("png", b"1", "png"),
        ("x", "text", "str"),
        ("x", 1 << 62, "int"),
        ("x", -(1 << 63), "int"),
        ("x", 1 << 63, "str_int"),
        ("x", 0.5, "float64"),
        ("x", np.float32(1), "float32"),
        ("x", np.int64(1), "int64"),
        ("x", np.float64(1), "float64"),
        ("x", np.zeros(3, np.float16), "ndarray"),
        ("x", Decimal(1), "str_decimal"),
        ("x", True, "json"),
        ("x", np.True_, "json"),
        ("x", {"a": [1]}, "json"),
        ("x", [1, 2], "json"),
    ],
)
def test_encodings_are_those_of_the_type(name, value, encoding):
    assert encoding_of(name, value) == encoding
    (column,) = columns_from({name: encoding})
    found = decode_columns(memoryview(encoded_row({name: value}, (column,))), (column,), ())[name]
    assert np.array_equal(
        bytes(found) if isinstance(found, memoryview) else found, bytes(value) if encoding == "jpeg" else value
    )
    assert encoding_of(name, value, "str_float") == "str_float"
    assert encoding_of(name, value, "pil") == encoding


@pytest.mark.parametrize(
    "value", [object(), {1: b"x"}, {b"x"}, np.zeros(3, complex), np.zeros(3, bool), np.datetime64("NaT")]
)
def test_values_without_an_encoding_are_refused(value):
    refused(Unusable, "MDS cannot encode: leave it out", encoding_of, "x", value)


@pytest.mark.parametrize(
    ("encoding", "data", "value"),
    [
        ("int", b"-7", -7),
        ("uint8", b"7\n", 7),
        ("float32", b"0.5", 0.5),
        ("str", b"\xc3\xa4", "ä"),
        ("str_int", b"12", 12),
        ("json", b'{"a": 1}', {"a": 1}),
        ("png", b"any", b"any"),
    ],
)
def test_bytes_of_objects_are_taken_as_text(encoding, data, value):
    (column,) = columns_from({"x": encoding})
    assert decode_columns(memoryview(encoded_row({"x": data}, (column,))), (column,), ())["x"] == value


@pytest.mark.parametrize(
    ("encoding", "value"),
    [
        ("int", "7"),
        ("int", 1 << 63),
        ("int", 0.5),
        ("int", True),
        ("int", b"x"),
        ("uint8", -1),
        ("int8", 128),
        ("uint8", b"1.5"),
        ("float16", 1e6),
        ("float32", "1"),
        ("str", b"\xff"),
        ("str", 5),
        ("str_int", 0.5),
        ("str_int", b"x"),
        ("json", b"{"),
        ("json", {1, 2}),
        ("bytes", "text"),
        ("jpeg", None),
        ("jpegarray", b"ab"),
        ("jpegarray", ["ab"]),
        ("ndarray", b"ab"),
        ("ndarray", [1, 2]),
        ("ndarray", np.zeros(3, complex)),
        ("ndarray", np.zeros((3, 0))),
        ("ndarray", np.array(1.0)),
        ("ndarray:int8", np.zeros(3, np.int16)),
        ("ndarray:int8:2", np.zeros(3, np.int8)),
    ],
)
def test_values_that_do_not_fit_are_refused(encoding, value):
    with pytest.raises(Unusable, match=r"encoding of the column 'x'.*: pass columns="):
        encoded_row({"x": value}, columns_from({"x": encoding}))


def test_columns_are_checked():
    for wrong in ({}, 5, ["a"], {5: "int"}, {"": "int"}):
        refused(Unusable, "mapping from names to encodings", columns_from, wrong)
    for encoding in ("pkl", "pil", "list[pil]", "image", 5, None, "ndarray:object", "ndarray:int8:0"):
        refused(Unusable, "cannot write the column 'x' as", columns_from, {"x": encoding})
    with pytest.raises(Unusable, match="no field 'b', only a: MDS needs the same fields in every sample"):
        encoded_row({"a": 1}, columns_from({"a": "int", "b": "int"}))


def test_shards_beyond_the_reach_of_offsets_are_refused():
    refused(Unusable, "an MDS shard cannot have", header, (MDSColumn("x", "bytes", None),), [1 << 31, 1 << 31], None)


def test_index_is_that_of_mosaic():
    import hashlib
    import json

    names = [f"shard.0000{at}.mds" for at in range(2)]
    shards = []
    for name in names:
        data = (GOLDEN / "sha256" / name).read_bytes()
        shards.append((name, int.from_bytes(data[:4], "little"), len(data), hashlib.sha256(data).hexdigest()))
    wanted = (GOLDEN / "sha256" / "index.json").read_bytes()
    assert len(json.loads(wanted)["shards"]) == 2
    assert index_json(columns_from(SMALL), shards, 700) == wanted
