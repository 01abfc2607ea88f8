"""Readings of several datasets give one order; none draws ahead without a bound, and an error ends no other sample."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.reading import joint
from penstock.data.reading.joint import JointMember, JointReading, shares
from penstock.data.reading.reading import Failed, Item, Reading, in_lists
from penstock.engine.contracts.fetching import ReadCounts
from penstock.errors import Damaged
from tests.amounts import examples


class Lists(Reading):
    """Samples are pairs of a name and their number, made up to ``together`` at a time; the one in ``broken`` fails."""

    def __init__(self, name, batches, together=0, broken=None):
        self.counts_of = ReadCounts()
        self.closed = self.began = False
        self._items = self._made(name, batches, together, broken)

    def _made(self, name, batches, together, broken):
        number = 0
        for batch in batches:
            if not batch:
                assert together is None, "only the last of these is paused"
                continue
            yield Item(0, 0, 0, "", lambda: None)
            for slot in range(0, len(batch), together or 1):
                some = batch[slot : slot + (together or 1)]
                self.counts_of.requests += 1

                def make(some=some):
                    made = [
                        Failed(f"{name}{each}", Damaged("broken")) if each == broken else (name, each) for each in some
                    ]
                    return made if together else made[0]

                yield Item(number, slot, len(batch), f"{name}{some[0]}", make, len(some) if together else 0)
            number += 1

    @property
    def counts(self):
        return self.counts_of

    def begin(self):
        self.began = True

    def __next__(self):
        return next(self._items)

    def close(self):
        self.closed = True


def joined(batches, together, **options):
    """Return a joint reading of as many datasets as ``together`` has entries; sample n is n // count of n % count."""
    count = len(together)
    readings = []

    def member(number):
        def reading(inner, workers):  # noqa: ARG001  nothing is fetched
            readings.append(Lists("abc"[number], inner, together[number], **options))
            return readings[-1]

        return JointMember(reading, 1, (number,))

    def split(batch):
        return [each % count for each in batch], [each // count for each in batch]

    return JointReading([member(number) for number in range(count)], batches, split, 1), readings


@given(
    st.lists(st.lists(st.integers(0, 90), min_size=1, max_size=12), max_size=8),
    st.lists(st.sampled_from([0, 1, 3, 16]), min_size=1, max_size=3),
)
@settings(max_examples=examples(200))
def test_samples_keep_their_batches_and_places(batches, together):
    reading, readings = joined(batches, together)
    expected = [[("abc"[each % len(together)], each // len(together)) for each in batch] for batch in batches]
    assert [*in_lists(reading)] == expected
    assert reading.counts.requests == sum(each.counts.requests for each in readings)
    assert all(each.closed for each in readings)


def test_samples_of_a_joint_reading_within_another_keep_their_places():
    members = [
        JointMember(lambda batches, _: joined(batches, [16, 16])[0], 1, (0,)),
        JointMember(lambda batches, _: Lists("c", batches, 16), 1, (1,)),
    ]
    batch = [0, 2, 5, 1, 3, 8, 9, 2]
    reading = JointReading(members, [batch] * 2, lambda given: ([int(each > 7) for each in given], given), 1)
    expected = [("c", each) if each > 7 else ("ab"[each % 2], each // 2) for each in batch]
    assert [*in_lists(reading)] == [expected] * 2


def test_items_cover_each_place_once_batch_by_batch():
    reading, _ = joined([[0, 1, 2, 3, 4, 6, 8, 9, 5], [0, 2, 4]], [16, 16])
    items = [item for item in reading if item.size]
    assert [item.batch for item in items] == [0, 0, 1]
    for batch, size in enumerate((9, 3)):
        found = [item for item in items if item.batch == batch]
        assert {item.size for item in found} == {size}
        assert sorted(slot for item in found for slot in item.slots) == [*range(size)]


def test_samples_of_one_dataset_are_made_together_wherever_they_lie():
    reading, _ = joined([[0, 1] * 8], [16, 0])
    items = [item for item in reading if item.size]
    assert [(item.samples, item.slots) for item in items] == [(8, (0, 2, 4, 6, 8, 10, 12, 14))] + [(0, ())] * 8
    batch = [None] * 16
    for item in reversed(items):
        item.fill(batch, item.make())
    assert batch == [("a", 0), ("b", 0)] * 8


def test_failed_sample_is_skipped_alone():
    reading, _ = joined([[0, 1, 2, 3, 4, 5]], [16, 16], broken=1)
    [made] = in_lists(reading, "skip")
    assert [each if isinstance(each, tuple) and len(each) == 2 and each[0] in "ab" else "skipped" for each in made] == [
        ("a", 0), ("b", 0), "skipped", "skipped", ("a", 2), ("b", 2)
    ]  # fmt: skip


def test_datasets_of_a_batch_begin_together_and_others_later():
    reading, readings = joined([[0, 2], [0, 1]], [0, 0])
    next(reading)
    assert [each.began for each in readings] == [True, False]
    for _ in reading:
        pass
    assert [each.began for each in readings] == [True, True]


def test_dataset_that_is_not_needed_for_long_draws_no_epoch(monkeypatch):
    monkeypatch.setattr(joint, "_AHEAD", 100)
    drawn = []

    def batches():
        for number in range(10_000):
            drawn.append(number)
            yield [2 * number] * 10
        yield [1]

    seen = []

    class Eager(Lists):
        """Looks for its next samples before each item, as a look-ahead does."""

        def __init__(self, inner):
            super().__init__("b", ())
            self._inner = inner

        def __next__(self):
            return Item(0, 0, 1, "", lambda: "b")

    held = []

    def eager(inner, workers):  # noqa: ARG001
        held.append(inner)
        return Eager(inner)

    members = [JointMember(lambda inner, workers: Lists("a", inner), 1, (0,)), JointMember(eager, 1, (1,))]  # noqa: ARG005
    reading = JointReading(members, batches(), lambda batch: ([each % 2 for each in batch], batch), 1)
    for item in itertools.islice((item for item in reading if item.size), 500):
        paused = next(held[0])
        assert paused == []
        seen.append(len(drawn) - item.batch)
    assert max(seen) <= 12


@pytest.mark.parametrize(
    ("lengths", "expected"), [([5], [1]), ([10, 10], [2, 2]), ([90, 10], [1, 10]), ([1000, 1, 0], [1, 16, 16])]
)
def test_share_of_the_read_ahead_follows_the_samples(lengths, expected):
    assert shares(lengths) == expected
