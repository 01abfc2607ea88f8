"""The file's rows and rates come back as they were written, and nonsense is an empty row."""

from __future__ import annotations

import random
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.node.rate import Rate
from penstock.engine.node.table import (
    GROUPS,
    HEADER,
    RATES,
    SIZE,
    GroupCounts,
    NodeTable,
    ProcessRow,
    RequestGroup,
    member_at,
    merge_counts,
    rate_at,
)

AMOUNT = st.floats(0, 1e12)
ROWS = st.builds(
    ProcessRow,
    nonce=st.integers(1, 2**64 - 1),
    process=st.integers(1, 2**22),
    seen_at=AMOUNT,
    connections=st.one_of(AMOUNT, st.just(inf)),
    most_connections=AMOUNT,
    size_bytes=AMOUNT,
    most_bytes=AMOUNT,
    rates=st.lists(st.tuples(st.integers(1, 2**64 - 1), st.one_of(AMOUNT, st.just(inf))), max_size=GROUPS).map(tuple),
)
RATE = st.builds(Rate, AMOUNT, AMOUNT, AMOUNT, AMOUNT, AMOUNT, AMOUNT, AMOUNT)
ID = st.integers(1, 2**64 - 1)
GROUP = st.builds(RequestGroup, ID, ID, st.text("aé/:", max_size=60), RATE)


@given(st.dictionaries(st.integers(0, 255), ROWS, max_size=5), st.dictionaries(st.integers(0, 63), GROUP, max_size=5))
def test_a_table_comes_back_as_it_was_written(rows, groups):
    data = bytearray(HEADER + bytes(SIZE - len(HEADER)))
    for place, row in rows.items():
        packed = row.pack()
        data[member_at(place) : member_at(place) + len(packed)] = packed
    for place, group in groups.items():
        packed = group.pack()
        data[rate_at(place) : rate_at(place) + len(packed)] = packed
    assert NodeTable.unpack(bytes(data)) == NodeTable(rows, groups)


def test_any_bytes_are_a_table(seed):
    noise = HEADER + random.Random(seed).randbytes(SIZE - len(HEADER))
    table = NodeTable.unpack(noise)
    for row in table.rows.values():
        assert row.connections >= 0
        assert row.size_bytes >= 0
        assert all(rate >= 0 for _, rate in row.rates)
    assert all(group.rate.base >= 0 for group in table.groups.values())


@pytest.mark.parametrize(
    "wrong", [{"seen_at": inf}, {"connections": nan}, {"size_bytes": -1.0}, {"rates": ((1, nan),)}]
)
def test_a_row_of_nonsense_is_empty(wrong):
    assert ProcessRow.unpack(ProcessRow(nonce=1, **wrong).pack()) == ProcessRow()


def test_a_long_label_is_cut():
    group = RequestGroup.unpack(RequestGroup(1, 2, "é" * 500).pack())
    assert 70 <= len(group.label) <= 81


def test_counted_requests_are_merged_into_their_group():
    groups = merge_counts({}, {7: GroupCounts(1, "reads of a", sent=10, refused=3)}, 100.0)
    assert [(each.id, each.label, each.rate.refused) for each in groups.values()] == [(7, "reads of a", 3)]
    groups |= merge_counts(groups, {7: GroupCounts(1, "", sent=5, refused=1)}, 100.5)
    assert [(each.label, each.rate.sent, each.rate.refused) for each in groups.values()] == [("reads of a", 5, 4)]
    # What no store refused begins no group.
    assert merge_counts(groups, {8: GroupCounts(1, "", sent=5)}, 101.0) == {}


def test_groups_that_nothing_refuses_any_more_are_emptied():
    groups = merge_counts({}, {7: GroupCounts(1, "", refused=3)}, 100.0)
    assert merge_counts(groups, {7: GroupCounts(1, "", sent=3)}, 200.0) == {place: RequestGroup() for place in groups}
    # One that is refused again begins anew.
    again = merge_counts(groups, {7: GroupCounts(1, "", refused=1)}, 200.0)
    assert [each.rate.opened for each in again.values() if each.id] == [200.0]


def test_a_new_group_takes_the_place_of_the_one_refused_longest_ago():
    groups = {
        place: RequestGroup(100 + place, 1, "", Rate(10.0, 1.0, touched=1000.0 + place)) for place in range(RATES)
    }
    changed = merge_counts(groups, {7: GroupCounts(1, "new", refused=1)}, 1100.0)
    assert {place: group.id for place, group in changed.items()} == {0: 7}
