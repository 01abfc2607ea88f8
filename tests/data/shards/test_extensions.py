"""Extension types of Arrow keep their meaning, whatever libraries have registered, or are refused by name."""

import io
import json
import subprocess
import sys
import uuid

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import penstock as ps
from penstock.data.shards.extensions import extension_of, plain_array, plain_type
from penstock.errors import Damaged, Unsupported, Unusable
from tests.refusals import refused

X = np.arange(24, dtype="f4").reshape(4, 2, 3)
LISTS = "datasets.features.features.Array2DExtensionType"


def named(name, storage, about=b""):
    """Return a table of a column whose extension type nobody has registered."""
    metadata = {b"ARROW:extension:name": name.encode(), b"ARROW:extension:metadata": about}
    return pa.table([storage], schema=pa.schema([pa.field("x", storage.type, metadata=metadata)]))


def read(tmp_path, table, **how):
    parquet.write_table(table, tmp_path / "t.parquet")
    return [sample["x"] for sample in ps.MapDataset.from_shards(tmp_path / "t.parquet", **how)]


def test_tensors_have_their_shape(tmp_path):
    found = read(tmp_path, pa.table({"x": pa.FixedShapeTensorArray.from_numpy_ndarray(X)}))
    assert [each.dtype for each in found] == [np.dtype("f4")] * 4
    assert np.array_equal(found, X)


@pytest.mark.parametrize("axes", [(1, 0, 2), (0, 2, 1), (2, 1, 0)])
def test_tensors_whose_axes_are_swapped_are_those_that_were_written(tmp_path, axes):
    whole = np.arange(48, dtype="i8").reshape(2, 2, 3, 4).transpose(0, *(axis + 1 for axis in axes))
    assert np.array_equal(read(tmp_path, pa.table({"x": pa.FixedShapeTensorArray.from_numpy_ndarray(whole)})), whole)


def test_order_of_axes_that_programs_take_differently_is_refused(tmp_path):
    whole = np.arange(48).reshape(2, 2, 3, 4).transpose(0, 2, 3, 1)
    with pytest.raises(Unsupported, match="programs interpret them differently"):
        read(tmp_path, pa.table({"x": pa.FixedShapeTensorArray.from_numpy_ndarray(whole)}))


def test_rows_without_a_tensor_are_none_and_elements_without_a_value_are_damage(tmp_path):
    kind = pa.fixed_shape_tensor(pa.int32(), [2])
    storage = pa.array([[1, 2], None, [3, None]], kind.storage_type)
    found = read(tmp_path, pa.table({"x": pa.ExtensionArray.from_storage(kind, storage)})[:2])
    assert found[0].tolist() == [1, 2]
    assert found[1] is None
    with pytest.raises(Damaged, match="the column 'x' has 1 elements in a tensor"):
        read(tmp_path, pa.table({"x": pa.ExtensionArray.from_storage(kind, storage)})[2:])


@pytest.mark.parametrize(
    ("name", "about", "data", "shape"),
    [
        ("arrow.variable_shape_tensor", b"{}", pa.list_(pa.float32()), pa.list_(pa.int32(), 2)),
        ("ray.data.arrow_variable_shaped_tensor", b"2", pa.large_list(pa.float32()), pa.list_(pa.int64())),
    ],
)
def test_tensors_of_varying_shapes(tmp_path, name, about, data, shape):
    kind = pa.struct([("data", data), ("shape", shape)])
    rows = [{"data": [1, 2, 3, 4, 5, 6], "shape": [2, 3]}, {"data": [7], "shape": [1, 1]}, None]
    found = read(tmp_path, named(name, pa.array(rows, kind), about))
    assert [None if each is None else each.tolist() for each in found] == [[[1, 2, 3], [4, 5, 6]], [[7]], None]
    with pytest.raises(Damaged, match=r"6 elements in a tensor of the shape \[2, 2\]"):
        read(tmp_path, named(name, pa.array([{"data": [1, 2, 3, 4, 5, 6], "shape": [2, 2]}], kind), about))


def test_order_of_axes_of_tensors_of_varying_shapes(tmp_path):
    kind = pa.struct([("data", pa.list_(pa.float32())), ("shape", pa.list_(pa.int32(), 2))])
    rows = pa.array([{"data": [1, 2, 3, 4, 5, 6], "shape": [2, 3]}], kind)
    (found,) = read(tmp_path, named("arrow.variable_shape_tensor", rows, b'{"permutation": [1, 0]}'))
    assert found.tolist() == [[1, 4], [2, 5], [3, 6]]


def test_tensors_of_ray(tmp_path):
    storage = pa.array(X.reshape(4, 6).tolist(), pa.list_(pa.float32()))
    assert np.array_equal(read(tmp_path, named("ray.data.arrow_tensor", storage, b"[2, 3]")), X)


@pytest.mark.parametrize("shape", [[2, 3], [None, 3]])
def test_arrays_of_hugging_face_have_their_shape(tmp_path, shape):
    storage = pa.array(X.tolist(), pa.list_(pa.list_(pa.float32())))
    found = read(tmp_path, named(LISTS, storage, json.dumps([shape, "float32"]).encode()))
    assert found[0].dtype == np.dtype("f4")
    assert np.array_equal(found, X)


@pytest.mark.parametrize(
    ("rows", "says"), [([[[1.0, 2.0], [3.0]]], "different lengths"), ([[[1.0, 2.0]]], r"has the shape \[1, 2\]")]
)
def test_lists_of_other_shapes_than_stated_are_damage(tmp_path, rows, says):
    table = named(LISTS, pa.array(rows, pa.list_(pa.list_(pa.float32()))), b'[[2, 2], "float32"]')
    refused(Damaged, says, read, tmp_path, table)


def test_scalars_keep_their_meaning(tmp_path):
    value = uuid.uuid4()
    stored = pa.array([value.bytes, None], pa.binary(16))
    assert read(tmp_path, pa.table({"x": pa.ExtensionArray.from_storage(pa.uuid(), stored)})) == [value, None]
    stored = pa.array([3, 0, None], pa.int8())
    assert read(tmp_path, pa.table({"x": pa.ExtensionArray.from_storage(pa.bool8(), stored)})) == [True, False, None]
    stored = pa.array(['{"a": 1}'])
    table = pa.table({"x": pa.ExtensionArray.from_storage(pa.json_(), stored)})
    assert read(tmp_path, table) == ['{"a": 1}']
    whole = ps.MapDataset.from_shards(tmp_path / "t.parquet", fields="x")
    assert whole[0].read() == b'{"a": 1}'


@pytest.mark.parametrize(
    "table",
    [
        named("my.own", pa.array([b"a"])),
        pa.table({"x": pa.ExtensionArray.from_storage(pa.opaque(pa.binary(), "geometry", "db"), pa.array([b"a"]))}),
    ],
)
def test_type_of_unknown_meaning_is_refused_unless_the_column_is_named(tmp_path, table):
    refused(Unsupported, r"of the extension type (my\.own|arrow\.opaque), which is unsupported", read, tmp_path, table)
    assert [each.read() for each in read(tmp_path, table, fields=("x",))] == [b"a"]


def test_types_within_lists_are_refused_unless_the_column_is_named(tmp_path):
    storage = pa.array([[b"a" * 16]], pa.list_(pa.binary(16)))
    table = pa.table({"x": storage.cast(pa.list_(pa.uuid()))})
    refused(Unsupported, "extension type list", read, tmp_path, table)
    assert read(tmp_path, table, fields=("x",)) == [[b"a" * 16]]


@pytest.mark.parametrize(
    "about", [b"", b"[", b"{}", b'{"shape": 3}', b'{"shape": [-1]}', b'{"shape": [2, 3], "permutation": [0, 0]}']
)
def test_damaged_description_of_a_type_is_damage(about):
    field = pa.field(
        "x",
        pa.list_(pa.int8(), 6),
        metadata={b"ARROW:extension:name": b"arrow.fixed_shape_tensor", b"ARROW:extension:metadata": about},
    )
    refused(Damaged, r"cannot read the type arrow\.fixed_shape_tensor of the column 'x'", extension_of, field)


REGISTERED = """
import pyarrow as pa, json, sys, penstock as ps
class Array2D(pa.ExtensionType):
    def __init__(self, shape=(2, 3)):
        self.shape = shape
        super().__init__(pa.list_(pa.list_(pa.float32())), "datasets.features.features.Array2DExtensionType")
    def __arrow_ext_serialize__(self):
        return json.dumps((self.shape, "float32")).encode()
    @classmethod
    def __arrow_ext_deserialize__(cls, storage, about):
        return cls(tuple(json.loads(about)[0]))
if "register" in sys.argv:
    pa.register_extension_type(Array2D())
dataset = ps.MapDataset.from_shards(sys.argv[1])
print(dataset.catalog.format.columns, dataset[1]["x"].tolist())
"""


def test_columns_and_values_do_not_depend_on_registered_types(tmp_path):
    storage = pa.array(X.tolist(), pa.list_(pa.list_(pa.float32())))
    parquet.write_table(named(LISTS, storage, b'[[2, 3], "float32"]'), tmp_path / "t.parquet")
    told = [
        subprocess.run(
            [sys.executable, "-c", REGISTERED, tmp_path / "t.parquet", *more], check=True, capture_output=True
        ).stdout
        for more in ((), ("register",))
    ]
    assert told[0] == told[1]
    assert f"as {LISTS} of shape [2, 3]" in told[0].decode()


def test_shapes_that_differ_between_files_are_refused(tmp_path):
    for shape in ([2, 3], [3, 2]):
        kind = pa.fixed_shape_tensor(pa.float32(), shape)
        storage = pa.FixedSizeListArray.from_arrays(X.ravel(), 6)
        parquet.write_table(
            pa.table({"x": pa.ExtensionArray.from_storage(kind, storage)}), tmp_path / f"{shape}.parquet"
        )
    with pytest.raises(Unusable, match=r"of shape \[3, 2\] in this file, and has the type .* of shape \[2, 3\]"):
        ps.MapDataset.from_shards(f"{tmp_path}/")


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.uuid()),
        pa.large_list(pa.bool8()),
        pa.list_(pa.uuid(), 2),
        pa.struct([("a", pa.list_(pa.json_())), ("b", pa.int8())]),
        pa.map_(pa.string(), pa.uuid()),
    ],
)
def test_plain_types_have_the_storage_of_what_is_in_them(kind):
    plain = plain_type(kind)
    assert "extension" not in str(plain)
    assert type(plain) is type(kind)
    assert plain_array(pa.array([None], plain)).type == plain


def test_file_without_extension_types_is_read_as_before():
    file = io.BytesIO()
    parquet.write_table(pa.table({"x": [1]}), file)
    assert extension_of(parquet.read_schema(file).field("x")) is None
