"""Elements with the same coordinate are found, and what is no coordinate is refused with a word."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.zarr.samples.alignment import Coordinate, align, elements_of, unbroken
from penstock.errors import Unusable


def of(*values, dtype="i8", name="a"):
    return {"time": Coordinate(np.array(values, dtype=dtype), "hours", f"memory://x/{name}")}


def test_elements_of_the_common_coordinates():
    found = align([of(*range(10)), of(*range(-3, 12, 3), name="b"), {}])
    assert found.values["time"].tolist() == [0, 3, 6, 9]
    assert found.elements == ({"time": range(0, 10, 3)}, {"time": range(1, 5)}, {})
    assert found.words == ("time: 4 common coordinates of 10 (0 to 9 hours), 5 (-3 to 9 hours)",)


def test_descending_coordinates_keep_the_order_of_the_first_array():
    found = align([of(8, 5, 3, 1), of(1, 3, 4, 8, name="b")])
    assert found.values["time"].tolist() == [8, 3, 1]
    assert [[*each["time"]] for each in found.elements] == [[0, 2, 3], [3, 1, 0]]


def test_numbers_and_times_of_different_types_are_compared_by_value():
    found = align([of(0.0, 1.0, 1.5, dtype="f4"), of(1, 2, name="b")])
    assert found.values["time"].tolist() == [1.0]
    days, hours = np.array(["2000-01-01", "2000-01-02"], "M8[D]"), np.array(["2000-01-02T00", "2000-01-02T06"], "M8[h]")
    found = align([{"t": Coordinate(days, "", "a")}, {"t": Coordinate(hours, "", "b")}])
    assert found.elements == ({"t": range(1, 2)}, {"t": range(1)})


@pytest.mark.parametrize(
    ("values", "dtype", "words"),
    [
        ((0, 1, 1, 2), "i8", r"has a value twice: 1, 1 \(elements 1 and 2\)"),
        ((0, 2, 1, 3), "i8", r"neither ascends nor descends: 2, 1 \(elements 1 and 2\)"),
        ((0, np.nan, 1), "f8", "has missing values"),
        (("NaT", "2000-01-01"), "M8[s]", "has missing values"),
        (("a", "b"), "U1", "must have numbers or times"),
        ((2**53, 2**53 + 1, 2**53 + 2), "i8", "that float64 cannot hold"),  # one array has floats
    ],
    ids=["twice", "unsorted", "nan", "nat", "text", "precision"],
)
def test_invalid_coordinates_are_refused_by_align(values, dtype, words):
    other = {"i8": "f8"}.get(dtype, dtype)
    with pytest.raises(Unusable, match=words):
        align([of(*values, dtype=dtype), of(*values[:1], dtype=other, name="b")])


def test_disjoint_coordinates_error_names_both_ranges():
    with pytest.raises(Unusable, match=r"memory://x/a: 0 to 2 hours; memory://x/b: 3 to 4 hours"):
        align([of(0, 1, 2), of(3, 4, name="b")])


@given(st.integers(-20, 20), st.integers(-5, 5).filter(bool), st.integers(1, 30), st.data())
def test_elements_of_ranges_are_those_of_lists(start, step, count, data):
    elements = range(start, start + step * count, step)
    chosen = data.draw(
        st.sampled_from([range(count), range(count)[::-1], range(count)[::2]])
        | st.lists(st.integers(0, count - 1), min_size=1)
    )
    found = elements_of(elements, chosen)
    assert [*found] == [elements[each] for each in chosen] == [*elements_of([*elements], chosen)]


def test_positions_next_to_a_gap_are_left_out_as_far_as_samples_reach():
    values = np.array([0, 6, 12, 24, 30])
    assert unbroken(values, range(5), (0, 0)).all()
    assert unbroken(values, range(4), (0, 1)).tolist() == [True, True, False, True]
    assert unbroken(values, range(2, 5), (-2, 0)).tolist() == [True, False, False]
    assert unbroken(values, range(4), (1, 1)).tolist() == [True, True, False, True]


def test_months_are_steps_and_a_missing_month_is_a_gap():
    months = np.array(["2000-01", "2000-02", "2000-03", "2000-05"], "M8[M]").astype("M8[ns]")
    assert unbroken(months, range(3), (0, 1)).tolist() == [True, True, False]
    assert unbroken(months[::-1], range(3), (0, 1)).tolist() == [False, True, True]


def test_extra_value_between_regular_steps_breaks_the_windows_around_it():
    assert unbroken(np.array([0.0, 6, 7, 12, 18, 24]), range(5), (0, 1)).tolist() == [True, False, False, True, True]


@pytest.mark.parametrize("dtype", ["u1", "u4", "u8", "i1", "i8", "f4"])
def test_a_gap_of_a_descending_coordinate_is_one_in_every_type(dtype):
    assert unbroken(np.array([90, 84, 78, 60, 54], dtype), range(4), (0, 1)).tolist() == [True, True, False, True]


def test_duplicate_elements_count_as_unbroken_without_division_by_zero():
    assert unbroken(np.array([5, 5, 5, 9]), range(3), (0, 1)).tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ([2**53 + 1], np.array([2.0**53]), "int64 that float64 cannot hold.*9007199254740993 .element 0"),
        ([2**60 + 1], np.array([2**60], "u8"), "int64 that float64 cannot hold"),
        (np.array(["2000", "5000"], "M8[s]"), np.array(["2000"], "M8[ns]"), r"datetime64\[s\] that .*5000.*element 1"),
    ],
    ids=["integers and floats", "signed and unsigned", "far years"],
)
def test_values_that_would_be_others_where_they_are_compared_are_refused(first, second, words):
    with pytest.raises(Unusable, match=words):
        align([{"t": Coordinate(np.array(each), "", "a")} for each in (first, second)])


def test_large_integers_that_floats_hold_are_compared_with_them():
    day = 86_400 * 10**9
    found = align(
        [{"t": Coordinate(np.array(each), "", "a")} for each in ([18262 * day, 18263 * day], [18263.0 * day])]
    )
    assert found.elements == ({"t": range(1, 2)}, {"t": range(1)})


def test_a_million_elements_without_a_step_take_8_bytes_each():
    elements = elements_of(np.flatnonzero(np.arange(1_500_000) % 3), range(1_000_000))
    assert len(pickle.dumps(elements)) < 8_001_000
    assert np.shares_memory(np.asarray(elements, dtype=np.int64), np.asarray(elements, dtype=np.int64))  # not copied


def test_a_unit_moves_no_cursor():
    assert Coordinate(np.arange(3), "\x1b[2Jhours", "a").shown == r"0 to 2 '\x1b[2Jhours'"
    assert Coordinate(np.arange(3), "°C", "a").shown == "0 to 2 °C"
