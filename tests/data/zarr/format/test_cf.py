"""CF's attributes are applied as xarray does it: in the same type, bit for bit."""

from __future__ import annotations

import base64
import json
import pickle
import struct
import warnings

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from zarr.storage import MemoryStore

from penstock.data.zarr.format.cf import cf_of
from penstock.data.zarr.format.layout import layout_of
from penstock.errors import Damaged
from tests.amounts import examples
from tests.data.zarr.format.test_documents import V2, V3
from tests.data.zarr.memory_arrays import same

INTEGERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
FLOATS = ["f2", "f4", "f8"]


def both(version, values, attributes, fill):
    """Return what xarray decodes of an array, and what Penstock does."""
    store = MemoryStore()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # xarray warns of values that mean nothing, NumPy of NaN as an integer
        group = zarr.open_group(store, mode="w", zarr_format=version)
        attributes = attributes | ({"_ARRAY_DIMENSIONS": ["x"]} if version == 2 else {})
        how = {"dimension_names": ["x"]} if version == 3 else {}
        how |= {"dtype": values.dtype, "fill_value": fill, "attributes": attributes}
        array = group.create_array("a", shape=values.shape, chunks=(5,), **how)
        array[: len(values) - 5] = values[: len(values) - 5]  # the last chunk is absent
        theirs = xr.open_zarr(store, consolidated=False, decode_times=False, chunks=None)["a"].values
        document = json.loads(store._store_dict["a/zarr.json" if version == 3 else "a/.zarray"].to_bytes())
        decoding = cf_of(layout_of(document, attributes, name="a"))
        return theirs, array[:] if decoding is None else decoding.apply(array[:]), decoding


@st.composite
def variables(draw):
    version, dtype = draw(st.sampled_from([2, 3])), np.dtype(draw(st.sampled_from(INTEGERS) | st.sampled_from(FLOATS)))
    integer = dtype.kind in "iu"
    least, most = (np.iinfo(dtype).min, np.iinfo(dtype).max) if integer else (-100, 100)
    number = st.sampled_from([0, 1, 7, least, most] if integer else [float("nan"), 0.0, -0.0, 7.5, 1e4])
    numbers = st.lists(number | st.integers(max(least, -99), min(most, 99)), min_size=10, max_size=10)
    values = np.array(draw(numbers), dtype)
    attributes = {}
    if draw(st.booleans()):
        attributes["scale_factor"] = draw(st.sampled_from([0.5, 0.01, 1e-3, 2.0]))
    if draw(st.booleans()):
        attributes["add_offset"] = draw(st.sampled_from([273.15, -1.0, 0.0, 3]))
    if draw(st.booleans()):
        attributes["missing_value"] = draw(st.sampled_from([7, 7.5, 1e4, [7, 1], -1, float("nan")]))
    if integer and draw(st.booleans()):
        attributes["_Unsigned"] = draw(st.sampled_from(["true", "false"]))
    fill = draw(number)
    if version == 3 and draw(st.booleans()):
        attributes["_FillValue"] = packed(draw(number)) if not integer else draw(number)
    return version, values, attributes, fill


def packed(value):
    return base64.b64encode(struct.pack("<d", value)).decode()


@settings(max_examples=examples(150))
@given(variables())
def test_values_are_decoded_as_xarray_decodes_them(drawn):
    try:
        theirs, ours, decoding = both(*drawn)
    except (OverflowError, KeyError):  # xarray knows no other sign of a `_FillValue` beyond its type
        assume(condition=False)
    same(ours, theirs)
    if decoding is not None:
        assert decoding.dtype == theirs.dtype
        assert pickle.loads(pickle.dumps(decoding)).dtype == decoding.dtype


RULES = [  # version, type, attributes, fill value, and the type that becomes of it
    *((2, name, {}, 3, "f4") for name in ("i1", "u2")),
    *((2, name, {}, 3, "f8") for name in ("i4", "u8")),
    *((version, "f4", {"scale_factor": 0.1}, np.nan, {2: "f4", 3: "f8"}[version]) for version in (2, 3)),
    (3, "f4", {"scale_factor": 0.1, "_FillValue": packed(np.nan)}, 0, "f4"),
    (3, "f4", {"scale_factor": 0.1, "_FillValue": packed(3)}, 0, "f8"),
    *((3, "i2", {"missing_value": value, "add_offset": 1.0}, 0, "f8") for value in (np.nan, 3)),
    *((3, "i2", {"missing_value": value}, 0, dtype) for value, dtype in ((np.nan, "i2"), (3, "f4"))),
    *((3, "i2", {"scale_factor": value}, 0, dtype) for value, dtype in ((0.5, "f8"), (2, "i8"))),
    (2, "u1", {"_Unsigned": "false"}, 3, "f4"),
    (3, "i1", {"_Unsigned": "true", "_FillValue": -1}, 0, "f4"),
    (3, "i1", {"_Unsigned": "true"}, 0, "u1"),
    (2, "c8", {}, 3, "c8"),
    (3, "f4", {"missing_value": 1e20}, 1e20, "f4"),
]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_types_are_those_of_xarray(rule):
    version, dtype, attributes, fill, wanted = rule
    theirs, ours, _ = both(version, np.array([0, 1, 3, 4, -1, 0, 0, 0, 0, 0]).astype(dtype), attributes, fill)
    same(ours, theirs)
    assert ours.dtype == wanted


@pytest.mark.parametrize("version", [2, 3])
def test_values_packed_by_xarray_are_decoded(version):
    store = MemoryStore()
    values = np.array([270.0, np.nan, 280.5, 290.0], "f4")
    encoding = {"tas": {"dtype": "i2", "scale_factor": 0.5, "add_offset": 273.0, "_FillValue": -999}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        xr.Dataset({"tas": ("x", values)}).to_zarr(store, zarr_format=version, encoding=encoding, consolidated=False)
    folder = {key: value.to_bytes() for key, value in store._store_dict.items()}
    document = json.loads(folder["tas/zarr.json" if version == 3 else "tas/.zarray"])
    layout = layout_of(document, json.loads(folder["tas/.zattrs"]) if version == 2 else None)
    stored = np.array([-6, -999, 15, 34], "i2")
    same(cf_of(layout).apply(stored), values.astype("f8"))
    absent = cf_of(layout).apply(np.full(1, layout.fill))
    assert np.isnan(absent[0]) if version == 2 else absent[0] == 273.0


@pytest.mark.parametrize("version", [2, 3])
def test_absent_chunks_decode_to_the_same_values_as_xarray(version):
    for attributes in ({"scale_factor": 0.5, "add_offset": 2.0}, {"missing_value": 0}, {"_FillValue": 0}):
        theirs, ours, _ = both(version, np.arange(10, dtype="i2"), attributes, 0)
        same(ours, theirs)


def test_a_boolean_of_xarray_is_one():
    theirs, ours, decoding = both(3, np.array([0, 1] * 5, "i1"), {"dtype": "bool"}, 0)
    same(ours, theirs)
    assert decoding.dtype == np.dtype(bool)


def test_values_of_the_caller_are_left_as_they_are():
    scaled, masked = {"scale_factor": 2.0}, {"missing_value": 3.0}
    for attributes in (scaled, masked, {"dtype": "bool"}, scaled | masked):
        stored = np.arange(5.0)
        stored.flags.writeable = False
        cf_of(layout_of({**V2, "dtype": "<f8", "fill_value": None}, attributes)).apply(stored)
        assert stored.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("dtype", ["|b1", "<M8[s]", "<m8[s]", "|S3"])
def test_non_numeric_dtypes_are_excluded_from_cf_decoding(dtype):
    document = {**V2, "dtype": dtype, "fill_value": None}
    assert cf_of(layout_of(document, {"missing_value": 3, "scale_factor": 2.0})) is None


def test_without_attributes_there_is_nothing_to_do():
    assert cf_of(layout_of({**V2, "fill_value": None})) is None
    assert cf_of(layout_of({**V2, "fill_value": "NaN"}, {"units": "K"})) is None
    assert cf_of(layout_of({**V3, "fill_value": 5.0})) is None
    assert cf_of(layout_of({**V2, "fill_value": 5.0})) is not None


@pytest.mark.parametrize(
    "attributes",
    [
        *({"scale_factor": value} for value in ("x", None, [1, 2], {}, True)),
        *({"_FillValue": value} for value in ("?", "AAAA", [], {})),
    ],
)
def test_attributes_that_cannot_be_applied_are_damage(attributes):
    with pytest.raises(Damaged, match=r"CF.*s3://b/zarr\.json"):
        cf_of(layout_of({**V3, "attributes": attributes}), "s3://b/zarr.json")
