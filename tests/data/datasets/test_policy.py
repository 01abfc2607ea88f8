"""Which errors are a sample's own and may be skipped, and what becomes of the batch."""

from __future__ import annotations

import pickle

import pytest

from penstock.data.order.sampling import Cursor
from penstock.data.reading.reading import Delivery, Failed, Item, Skipped, attempt, remaining
from penstock.errors import Bug, Cancelled, Changed, Damaged, DatasetChanged, NotFound, Truncated, Unreachable, Unusable


def item(outcome: object) -> Item:
    def make() -> object:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return Item(0, 0, 1, "s3://bucket/key", make)


def test_attempt_returns_the_outcome_unchanged_on_success():
    for outcome in (5, None, [], ValueError):
        assert attempt(item(outcome), "raise") is attempt(item(outcome), "skip") is outcome


@pytest.mark.parametrize(
    "error", [ValueError("odd"), NotFound("gone"), Truncated("half"), Changed("new"), OSError(5, "io")]
)
def test_a_samples_own_error_is_raised_or_skipped_with_its_name(error):
    with pytest.raises(type(error)):
        attempt(item(error), "raise")
    skipped = attempt(item(error), "skip")
    assert skipped == Skipped("s3://bucket/key", f"{type(error).__name__}: {error}")
    assert pickle.loads(pickle.dumps(skipped)) == skipped


def several(*made: object) -> Item:
    return Item(0, 2, 9, "s3://bucket/first", lambda: [*made], len(made))


def test_errors_of_samples_that_are_made_together_are_those_samples_own():
    assert attempt(several(1, 2), "raise") == attempt(several(1, 2), "skip") == [1, 2]
    failing = several(1, Failed("s3://bucket/key", NotFound("gone")), 3)
    with pytest.raises(NotFound):
        attempt(failing, "raise")
    assert attempt(failing, "skip") == [1, Skipped("s3://bucket/key", "NotFound: gone"), 3]
    with pytest.raises(Bug):
        attempt(several(1, Failed("s3://bucket/key", Bug("odd"))), "skip")


def test_an_error_of_all_samples_that_are_made_together_is_raised():
    def make() -> object:
        raise ValueError("odd")

    with pytest.raises(ValueError, match="odd"):
        attempt(Item(0, 0, 3, "s3://bucket/first", make, 3), "skip")


def test_a_name_is_made_for_samples_that_are_skipped_alone():
    named = []

    def name():
        named.append(1)
        return "s3://bucket/made"

    assert attempt(item(5)._replace(url=name), "skip") == 5
    assert not named
    skipped = attempt(item(ValueError("odd"))._replace(url=name), "skip")
    assert skipped == Skipped("s3://bucket/made", "ValueError: odd")


def test_a_store_that_is_gone_for_one_sample_may_be_back_for_the_next():
    assert isinstance(attempt(item(Unreachable("gone")), "skip"), Skipped)


@pytest.mark.parametrize(
    "error",
    [
        Bug("ours"),
        Cancelled("closed"),
        DatasetChanged("deleted"),
        Unusable("call"),
        MemoryError(),
        KeyboardInterrupt(),
        SystemExit(3),
        GeneratorExit(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_unrelated_to_a_single_sample_are_never_skipped(error):
    for on_error in ("raise", "skip"):
        with pytest.raises(type(error)):
            attempt(item(error), on_error)


def test_a_batch_keeps_its_order_and_never_refills():
    gone = [Skipped("a", "1"), Skipped("b", "2")]
    assert remaining([gone[0], 3, gone[1], 1]) == ([3, 1], tuple(gone))
    made = [3, None, 0]
    assert remaining(made) == (made, ())


def test_fully_skipped_batch_error_names_urls_and_remaining_count():
    with pytest.raises(Damaged, match=r"no sample of a batch could be read: s3://b/0 \(why\)$"):
        remaining([Skipped("s3://b/0", "why")])
    with pytest.raises(Damaged, match=r"s3://b/7.*and 992 more") as caught:
        remaining([Skipped(f"s3://b/{index}", "why") for index in range(1000)])
    assert "s3://b/8 " not in str(caught.value)


def test_a_delivery_crosses_a_process():
    delivery = Delivery([1, 2], Cursor(3, 4), (Skipped("a", "b"),))
    assert pickle.loads(pickle.dumps(delivery)) == delivery
    assert type(pickle.loads(pickle.dumps(delivery)).cursor) is Cursor
