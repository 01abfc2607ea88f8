"""A state names a position of an order, and only of that one: whatever else it may be, it is refused."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StateMismatch, Unusable
from penstock.order.course import Course, Cursor
from penstock.values import Place

COURSE = Course(total=100, batch=6, shuffle=True, seed=7)
WORLD, CATALOG = 2, "c0ffee" * 10
STATE = COURSE.state(Cursor(3, 24), WORLD, CATALOG)

_courses = st.builds(
    Course,
    total=st.integers(0, 10**9),
    batch=st.integers(1, 10**4),
    shuffle=st.booleans(),
    seed=st.integers(-(2**128), 2**128),
    tail=st.sampled_from(["drop", "short", "pad"]),
)


@given(_courses, st.integers(0, 2**40), st.integers(0, 10**6), st.integers(1, 5000))
def test_a_state_comes_back_from_json_as_the_cursor_it_was_made_of(course, epoch, batches, world):
    cursor = course.after(Cursor(epoch), batches, world)
    text = json.dumps(course.state(cursor, world, "f" * 64))
    assert len(text) < 1024
    assert course.resume(json.loads(text), world, "f" * 64) == cursor
    assert type(course.resume(json.loads(text), world, "f" * 64)) is Cursor


def test_numbers_of_numpy_are_as_good_as_pythons():
    course = Course(total=np.int64(100), batch=np.int32(6), shuffle=np.True_, seed=np.int64(7))
    state = json.loads(json.dumps(course.state(Cursor(np.int64(3), np.int64(24)), np.int64(2), CATALOG)))
    assert state == STATE
    assert course.resume(state, 2, CATALOG) == (3, 24)


@given(st.integers(0, 300), st.integers(1, 9), st.integers(1, 4), st.integers(0, 40), st.integers(0, 40))
def test_received_batches_add_up(total, batch, world, first, then):
    course = Course(total=total, batch=batch)
    cursor = course.after(course.after(Cursor(1), first, world), then, world)
    assert cursor == course.after(Cursor(1), first + then, world) == (1, min(total, (first + then) * batch * world))


@given(st.integers(0, 200), st.integers(1, 9), st.integers(1, 4), st.sampled_from(["drop", "short", "pad"]))
def test_after_so_many_batches_the_others_are_left(total, batch, world, tail):
    course = Course(total=total, batch=batch, tail=tail)
    for rank in range(world):
        place = Place(rank, world)
        whole = list(course.batches(Cursor(), place))
        for received in range(len(whole) + 1):
            assert list(course.batches(course.after(Cursor(), received, world), place)) == whole[received:]


def test_nobody_has_received_less_than_nothing():
    with pytest.raises(Unusable, match="-1 batches"):
        COURSE.after(Cursor(), -1, 1)


def test_each_epoch_has_an_order_of_its_own_and_no_shuffle_has_none():
    orders = [COURSE.order(epoch).block(0, 100).tolist() for epoch in range(3)]
    assert all(sorted(order) == list(range(100)) for order in orders)
    assert orders[0] != orders[1] != orders[2] != orders[0]
    assert Course(total=100, batch=6).order(0) is None


@pytest.mark.parametrize("wrong", [{"batch": 0}, {"total": -1}, {"tail": "even"}])
def test_what_cannot_be_is_refused_at_once(wrong):
    with pytest.raises(Unusable):
        Course(**{"total": 10, "batch": 2, **wrong})


@pytest.mark.parametrize(
    ("course", "world", "catalog", "says"),
    [
        (COURSE, WORLD, "another", "catalog"),
        (Course(total=101, batch=6, shuffle=True, seed=7), WORLD, CATALOG, "length"),
        (Course(total=100, batch=6, shuffle=True, seed=8), WORLD, CATALOG, "seed"),
        (Course(total=100, batch=6, seed=7), WORLD, CATALOG, "not shuffled"),
        (Course(total=100, batch=5, shuffle=True, seed=7), WORLD, CATALOG, "allow_new_global_batch=True"),
        (COURSE, 1, CATALOG, "allow_new_global_batch=True"),
    ],
)
def test_a_state_of_another_course_is_refused_and_says_why(course, world, catalog, says):
    with pytest.raises(StateMismatch, match=says):
        course.resume(STATE, world, catalog)


def test_other_ranks_of_the_same_global_batch_go_on_and_another_one_when_asked_for():
    assert Course(total=100, batch=3, shuffle=True, seed=7).resume(STATE, 4, CATALOG) == (3, 24)
    assert COURSE.resume(STATE, 1, CATALOG, allow_new_global_batch=True) == (3, 24)
    for name in ("catalog", "seed", "samples", "penstock"):
        with pytest.raises(StateMismatch):
            COURSE.resume({**STATE, name: "another"}, WORLD, CATALOG, allow_new_global_batch=True)


def test_the_tail_may_change_for_it_moves_no_position():
    assert Course(total=100, batch=6, shuffle=True, seed=7, tail="pad").resume(STATE, WORLD, CATALOG) == (3, 24)


HUGE = 10**5000  # repr() of it raises


HOSTILE = [
    *[None, 7, "state", b"state", [], [1, 2], {}, object(), {"epoch": 1}, Course, np.zeros(3)],
    *[{**STATE, "penstock": version} for version in (0, 2, "1", None, 1.5, [1], HUGE)],
    *[{**STATE, "position": at} for at in (-1, 101, 24.0, "24", None, True, [], math.nan, math.inf, HUGE, -HUGE)],
    *[{**STATE, "epoch": at} for at in (0.5, "3", None, True, [3], math.nan, HUGE, 1 << 63, -(1 << 63))],
    *[{**STATE, "samples": count} for count in (-1, 99, "100", None, math.nan, HUGE, [100])],
    *[{**STATE, "global_batch": batch} for batch in (12.0, "12", None, math.nan, [12])],
    *[{**STATE, "seed": seed} for seed in (8, "7", None, math.nan, [])],
    *[{**STATE, "catalog": digest} for digest in ("", None, 1, CATALOG.upper(), CATALOG * 10**5)],
    *[{**STATE, name: np.array([1, 2])} for name in STATE],
    *[{key: value for key, value in STATE.items() if key != name} for name in STATE],
    {**STATE, "more": 1},
    {**STATE, 5: 1},
]


@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize("state", HOSTILE, ids=map(str, range(len(HOSTILE))))
def test_no_other_state_is_taken_and_no_other_error_raised(state, allowed):
    with pytest.raises(StateMismatch) as caught:
        COURSE.resume(state, WORLD, CATALOG, allow_new_global_batch=allowed)
    assert len(str(caught.value)) < 500


@given(
    st.dictionaries(
        st.sampled_from([*STATE, "x"]),
        st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=4),
    )
)
def test_a_state_with_anything_in_it_is_a_cursor_within_bounds_or_refused(changes):
    try:
        epoch, position = COURSE.resume({**STATE, **changes}, WORLD, CATALOG, allow_new_global_batch=True)
    except StateMismatch:
        return
    assert type(epoch) is type(position) is int
    assert 0 <= position <= COURSE.total


def test_the_cost_of_going_on_does_not_depend_on_where():
    """Of 10^8 samples, at sample 9 * 10^7, only the blocks that are read are computed."""
    course = Course(total=10**8, batch=256, shuffle=True)
    state = course.state(course.after(Cursor(), 9 * 10**7 // 256, 1), 1, "")
    left = course.batches(course.resume(state, 1, ""), Place())
    assert next(iter(left)) == (9 * 10**7 // 256 * 256, 9 * 10**7 // 256 * 256 + 256)
    assert len(left) == math.ceil(10**8 / 256) - 9 * 10**7 // 256
