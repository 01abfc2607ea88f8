"""Types and fill values are those that zarr reads."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from zarr.core.dtype import get_data_type_from_json

from penstock.data.zarr.format.layout import DocumentFields, fill_value, v2_dtype, v3_dtype
from penstock.errors import Damaged, Unsupported

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


@pytest.mark.parametrize("kind", ["|b1", "<f4", ">i2", "|S3", "<U3"])
def test_no_fill_value_in_v2_is_zero(kind):
    dtype = v2_dtype(DocumentFields({"dtype": kind}))
    same(fill_value(DocumentFields({"fill_value": None}), dtype, 2), np.zeros((), dtype.newbyteorder("="))[()])


@pytest.mark.parametrize("kind", ["<M8[ns]", ">M8[D]", "<m8[s]"])
def test_no_fill_value_of_times_in_v2_is_nat_as_in_zarr(kind):
    dtype = v2_dtype(DocumentFields({"dtype": kind}))
    native = dtype.newbyteorder("=")
    same(fill_value(DocumentFields({"fill_value": None}), dtype, 2), np.array("NaT", native)[()])
    array = zarr.create_array({}, shape=(3,), chunks=(2,), dtype=kind, fill_value=None, zarr_format=2)
    same(np.asarray(array[0], native)[()], np.array("NaT", native)[()])


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
    "dtype", ["|O", "O", "|V8", "<f16", "i4,i4", "(2,3)f4", "<U99999999", "", "<f3", [["a", "<f4"]], "\0"]
)
def test_types_of_v2_without_a_tensor_are_unsupported(dtype):
    with pytest.raises(Unsupported, match="dtype"):
        v2_dtype(DocumentFields({"dtype": dtype}))


@pytest.mark.parametrize(
    "named", ["string", "bytes", "bfloat16", "r16", "float8_e4m3", "struct", {"name": "structured"}]
)
def test_types_of_v3_without_a_tensor_are_unsupported(named):
    with pytest.raises(Unsupported, match="data_type"):
        v3_dtype(DocumentFields({"data_type": named}))


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
