"""Never more in flight than the budget says, but for one thing larger than all of it."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.budget import Budget


@given(st.integers(1, 1000), st.integers(1, 10), st.lists(st.integers(0, 2000), max_size=40))
def test_admitted_items_never_exceed_the_budget_limits(limit_bytes, limit_items, sizes):
    budget, held = Budget(limit_bytes, limit_items), []
    for size in sizes:
        before = (budget.items_held, budget.bytes_held)
        while not budget.admitted(size):
            assert held, "nothing is in flight, and anything fits"
            assert (budget.items_held, budget.bytes_held) == before
            budget.release(held.pop(0))
            before = (budget.items_held, budget.bytes_held)
        if size % 2:
            budget.release(size)
            assert (budget.items_held, budget.bytes_held) == before
            budget.admit(size)
        held.append(size)
        assert (budget.items_held, budget.bytes_held) == (len(held), sum(held))
        assert len(held) <= limit_items
        assert sum(held) <= limit_bytes or len(held) == 1
    for size in held:
        budget.release(size)
    assert (budget.items_held, budget.bytes_held) == (0, 0)


@given(st.integers(1, 1 << 40), st.integers(1, 10_000), st.integers(1, 1000))
def test_a_share_is_equal_and_never_empty_nor_more_than_the_whole(bytes_limit, items_limit, parts):
    share = Budget(bytes_limit, items_limit).share(parts)
    assert max(1, bytes_limit // parts) <= share.bytes_limit <= bytes_limit
    assert max(1, items_limit // parts) <= share.items_limit <= items_limit
    assert (share.items_held, share.bytes_held) == (0, 0)
