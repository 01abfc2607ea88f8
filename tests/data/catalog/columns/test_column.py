"""Columns of the user's come back as they went in, through parts, sums, files and pickles."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.catalog.catalog import Catalog, Entry
from penstock.data.catalog.columns import column
from penstock.data.catalog.columns.column import Strings, blocks, decode, encode, pack_narrow, taken
from penstock.errors import Unusable
from tests.refusals import refused


def _catalog(count, base="train/"):
    return Catalog.build("s3://bucket/", base, [Entry(f"{base}{number:02}", number) for number in range(count)])


_values = st.integers(0, 9).flatmap(
    lambda count: st.fixed_dictionaries(
        {
            "n": st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=count, max_size=count),
            "x": st.lists(st.floats(allow_nan=False), min_size=count, max_size=count),
            "b": st.lists(st.booleans(), min_size=count, max_size=count),
            "a text": st.lists(st.text("aé\0 ", max_size=3), min_size=count, max_size=count),
        }
    )
)


def _seen(catalog):
    return {name: np.asarray(column).tolist() for name, column in catalog.columns.items()}


class TestValues:
    @given(_values, st.slices(9), st.integers(0, 9))
    def test_they_come_back_through_parts_sums_files_and_pickles(self, values, part, cut):
        arrays = {
            "n": np.array(values["n"], np.int64),
            "x": np.array(values["x"], float),
            "b": np.array(values["b"], bool),
        }
        catalog = _catalog(len(values["n"])).with_columns(**values | arrays)
        assert _seen(catalog) == values
        assert [catalog.row(index) for index in range(len(catalog))] == [
            dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)
        ]
        chosen = {name: column[part] for name, column in values.items()}
        some = catalog[part]
        assert _seen(some) == chosen
        some.save("memory://columns/x.catalog")
        assert _seen(Catalog.open("memory://columns/x.catalog", root="s3://bucket/train/")) == chosen
        assert _seen(Catalog.open("memory://columns/x.catalog", root="memory://copy/")) == chosen
        assert _seen(pickle.loads(pickle.dumps(some))) == chosen
        whole = catalog[:cut] + catalog[cut:]
        copied = catalog[:cut] + pickle.loads(pickle.dumps(catalog))[cut:]
        assert _seen(whole) == _seen(copied) == values
        assert list(copied) == list(catalog)

    @pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "uint64", "float32", "float64", ">i4"])
    def test_a_type_stays_as_small_as_it_was(self, dtype):
        column = _catalog(3).with_columns(x=np.array([0, 1, 1], dtype)).columns["x"]
        assert column.dtype == np.dtype(dtype).newbyteorder("<")
        assert column.tolist() == [0, 1, 1]
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 1

    def test_tensors_lists_tuples_and_text_arrays_are_columns(self):
        catalog = _catalog(2).with_columns(t=torch.tensor([1.5, 2]), l=[1, 2], u=np.array(["a", "b"]), o=("x", "x"))
        assert catalog.columns["t"].dtype == np.float32
        assert list(catalog.columns["u"]) == ["a", "b"]
        assert catalog.columns["o"].categories == ("x",)

    def test_a_column_is_replaced_by_name_and_others_stay(self):
        catalog = _catalog(2).with_columns(a=[1, 2], b=[3, 4])
        assert _seen(catalog.with_columns(a=[5, 6])) == {"a": [5, 6], "b": [3, 4]}
        assert _seen(catalog) == {"a": [1, 2], "b": [3, 4]}
        assert _seen(catalog[[1]].with_columns(c=["x"])) == {"a": [2], "b": [4], "c": ["x"]}

    def test_columns_stay_out_of_the_digest(self):
        assert _catalog(2).with_columns(a=[1, 2]).digest == _catalog(2).digest

    def test_without_columns_a_row_is_empty(self):
        assert (_catalog(1).columns, _catalog(1).row(0)) == ({}, {})


def test_a_column_of_many_texts_makes_them_only_when_they_are_asked_for():
    catalog = _catalog(3).with_columns(caption=["a", "b", "c"], x=[1, 2, 3])
    assert catalog.columns["x"].tolist() == [1, 2, 3]
    assert catalog.row(1) == {"caption": "b", "x": 2}
    assert catalog._table.columns["caption"]._categories is None


class TestCategorical:
    @pytest.fixture
    def split(self):
        return _catalog(4).with_columns(split=["train", "test", "train", "val"]).columns["split"]

    def test_categorical_comparisons_return_boolean_masks(self, split):
        assert (split == "train").tolist() == [True, False, True, False]
        assert (split != "train").tolist() == [False, True, False, True]
        assert split.isin({"val", "test", "none"}).tolist() == [False, True, False, True]
        assert (split == 1).tolist() == [False] * 4

    def test_categorical_supports_sequence_and_array_access(self, split):
        assert (len(split), split[1], split[-1]) == (4, "test", "val")
        assert np.asarray(split).tolist() == ["train", "test", "train", "val"]
        assert split.codes.tolist() == [1, 0, 1, 2]
        assert repr(split) == "<Categorical of 4 rows, 3 categories>"

    def test_categorical_column_can_be_added_to_a_different_catalog(self, split):
        assert list(_catalog(4, "other/").with_columns(s=split).columns["s"]) == list(split)


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ([1], "has 1 values, the catalog 2 objects"),
        (["a", "b", "c"], "has 3 values, the catalog 2 objects"),
        ([[1, 2], [3, 4]], r"has shape \(2, 2\)"),
        ([[1], [2, 3]], "cannot be made an array"),
        (7, r"has shape \(\)"),
        ("ab", r"has shape \(\)"),
        ((each for each in (1, 2)), r"has shape \(\)"),
        ([1, "a"], "int beside str"),
        ([1, None], "holds object"),
        ([b"a", b"b"], "holds"),
        ([1 + 2j, 0], "holds complex128"),
        (np.array(["2026-01-01", "2026-01-02"], "datetime64[D]"), "datetime64"),
        (["\ud800", "b"], "not valid UTF-8"),
        ([{"a": 1}, {}], "holds object"),
    ],
)
def test_invalid_column_values_are_refused_with_the_reason(values, word):
    refused(Unusable, f"column 'x' {word}|column 'x' .*{word}", _catalog(2).with_columns, x=values)


class TestSum:
    def test_classes_and_texts_are_united_by_name(self):
        one = Catalog.build("s3://b/", "p/a/", [Entry("p/a/dog/1", 1)]).with_labels("folder").with_columns(s=["x"])
        two = Catalog.build("s3://b/", "p/b/", [Entry("p/b/cat/1", 1)]).with_labels("folder").with_columns(s=["w"])
        both = one + two
        assert (both.base, both.classes, both.labels.tolist(), list(both.columns["s"])) == (
            "p/", ("cat", "dog"), [1, 0], ["x", "w"],
        )  # fmt: skip
        assert both.digest == Catalog.build("s3://b/", "p/", list(both)).digest

    def test_numbers_take_the_type_that_holds_both(self):
        both = _catalog(1).with_columns(x=np.array([1], np.int8)) + _catalog(1, "o/").with_columns(x=[0.5])
        assert both.columns["x"].tolist() == [1.0, 0.5]
        assert both.base == ""

    def test_parts_of_one_catalog_are_added_without_a_copy(self):
        catalog = _catalog(9)
        both = catalog[::2] + catalog[1::2]
        assert both._table is catalog._table
        assert both.sizes.tolist() == [0, 2, 4, 6, 8, 1, 3, 5, 7]

    @pytest.mark.parametrize(
        ("other", "word"),
        [
            (Catalog.build("s3://elsewhere/", "", []), "a catalog has one bucket"),
            (_catalog(1, "o/"), r"the columns x.*with_columns"),
            (_catalog(1, "o/").with_columns(x=["a"]), "numbers in one catalog, texts in the other"),
            (_catalog(1, "o/").with_columns(x=np.array([1], np.uint64)), "no integer type can hold"),
            (_catalog(1, "o/").with_columns(x=[1]).with_labels(["a"]), "only one of the catalogs has classes"),
        ],
    )
    def test_sum_of_incompatible_catalogs_is_refused_with_the_reason(self, other, word):
        with pytest.raises(Unusable, match=word):
            _catalog(1).with_columns(x=[1]) + other

    def test_adding_a_list_to_a_catalog_raises_type_error(self):
        with pytest.raises(TypeError):
            _catalog(1) + [Entry("a", 1)]  # noqa: RUF005


# -- integers in the narrowest type


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([], "|i1"),
        ([-1, 127], "|i1"),
        ([0, 255], "|u1"),
        ([-1, 128], "<i2"),
        ([-1, (1 << 31) - 1], "<i4"),
        ([0, (1 << 32) - 1], "<u4"),
        ([-1, 1 << 31], "<i8"),
        ([0, (1 << 63) - 1], "<i8"),
    ],
)
def test_the_narrowest_type_holds_all_values(values, dtype):
    found = pack_narrow(np.array(values, np.int64)).values
    assert found.dtype.str == dtype
    assert found.tolist() == values


# -- strings end to end


def _column(values):
    ends = np.cumsum([0, *map(len, values)], dtype=np.uint64)
    return Strings(memoryview(b"".join(values)), memoryview(ends))


@pytest.mark.parametrize("block", [1, 3, 1 << 16])
@given(data=st.data())
def test_any_rows_come_end_to_end(block, data):
    values = data.draw(st.lists(st.binary(max_size=3), min_size=1, max_size=9))
    rows = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=9) | st.slices(len(values)))
    chosen = range(len(values))[rows] if isinstance(rows, slice) else np.array(rows, np.int64)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(column, "_BLOCK", block)
        ends, joined = _column(values).joined(chosen)
    assert [joined[start:stop].tobytes() for start, stop in pairwise(ends)] == [values[row] for row in chosen]


@given(st.slices(7), st.integers(1, 4))
def test_rows_of_an_array_are_taken_in_blocks_as_in_whole(part, size):
    values, rows = np.arange(7) * 10, range(7)[part]
    assert taken(values, rows).tolist() == [row * 10 for row in rows]
    assert [row for block in blocks(rows, size) for row in block] == list(rows)


def test_offsets_that_lead_outside_are_refused():
    for ends in ([1, 2], [0, 1], [0, 3, 2], [0, 9]):
        refused(ValueError, "lead outside", Strings(memoryview(b"ab"), memoryview(np.array(ends, np.uint64))).check)


def test_non_utf8_file_name_survives_decode_and_encode():
    assert encode(decode(b"caf\xe9.jpg")) == b"caf\xe9.jpg"
