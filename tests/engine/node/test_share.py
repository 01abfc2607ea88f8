"""A total is divided fairly: no process starves, nothing is left over, and never more than the total is given out."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.node.member import share

DEMANDS = st.lists(st.one_of(st.floats(0, 1e6), st.just(inf)), min_size=1, max_size=40)


def shares(total, demands):
    return [share(total, demands, mine) for mine in range(len(demands))]


@given(st.floats(1, 1e6), DEMANDS)
def test_shares_add_up_to_the_total(total, demands):
    assert sum(shares(total, demands)) == pytest.approx(total)


@given(st.floats(1, 1e6), DEMANDS)
def test_no_process_gets_less_than_an_equal_part_or_its_demand(total, demands):
    equal = total / len(demands)
    assert all(got >= min(want, equal) * (1 - 1e-9) for got, want in zip(shares(total, demands), demands, strict=True))


@given(st.floats(1, 1e6), DEMANDS)
def test_larger_demand_never_gets_a_smaller_share(total, demands):
    by_demand = sorted(zip(demands, shares(total, demands), strict=True))
    assert all(low[1] <= high[1] * (1 + 1e-9) + 1e-9 for low, high in pairwise(by_demand))


@pytest.mark.parametrize(
    ("demands", "expected"),
    [
        ([inf], [100]),
        ([inf, inf], [50, 50]),
        ([10, inf, inf], [10, 45, 45]),
        ([10, 20], [45, 55]),
        ([0, 0, 0, 0], [25, 25, 25, 25]),
        ([60, 60], [50, 50]),
    ],
)
def test_shares_of_a_hundred(demands, expected):
    assert shares(100, demands) == pytest.approx(expected)
