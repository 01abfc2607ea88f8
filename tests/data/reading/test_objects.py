"""Samples as their bytes come: in order, each with its own error, until someone closes."""

from __future__ import annotations

import threading
from time import sleep

import pytest

import penstock as ps
from penstock.data.reading.objects import MergedReading, ObjectReading, lists, singles
from penstock.data.reading.reading import Failed
from penstock.errors import Cancelled, NotFound, Unusable
from penstock.testing.faults import FAULTS, FaultServer, Match
from tests.children import forked
from tests.data.datasets.transforms import number, numbered

COUNT = 20
BATCHES = [[3, 1, 2], [0], [9, 9], [19, 4, 5, 6]]


@pytest.fixture
def folder(tmp_path):
    return numbered(tmp_path / "data", COUNT)


@pytest.fixture
def dataset(folder):
    return ps.MapDataset.from_prefix(folder, transform=number)


def each(item):
    """Return what an item makes, as a list: one sample, or several of a batch."""
    return item.make() if item.samples else [item.make()]


def test_items_say_where_they_belong(dataset):
    with ObjectReading(dataset, iter(BATCHES), 1) as reading:
        items = [(item.batch, item.slot, item.length, item.size, item.name[-3:], each(item)) for item in reading]
    at, found = 0, {}
    for which, slot, count, size, name, made in items:
        stop = slot + count
        batch = BATCHES[which]
        assert (size, name, made) == (len(batch), f"{batch[slot]:03d}", batch[slot:stop])
        assert slot == found.get(which, 0)
        found[which] = stop
        at += len(made)
    assert at == sum(map(len, BATCHES))


@pytest.mark.parametrize(("pause_s", "most"), [(0, 16), (0.002, 1)])
def test_quick_samples_are_made_together_and_slow_ones_alone(folder, pause_s, most):
    dataset = ps.MapDataset.from_prefix(folder, transform=lambda _: sleep(pause_s))
    with ObjectReading(dataset, [[*range(COUNT)]] * 20, 1) as reading:
        sizes = [len(each(item)) for item in reading]
    assert sum(sizes) == 20 * COUNT
    assert max(sizes) == most if most == 1 else 1 < max(sizes) <= most


def test_nothing_is_drawn_before_the_first_next(dataset):
    drawn = []
    reading = ObjectReading(dataset, map(lambda batch: drawn.append(batch) or batch, BATCHES), 1)  # noqa: C417
    assert drawn == []
    next(reading)
    assert drawn
    reading.close()


def test_items_may_be_made_late_in_any_order_on_any_thread(dataset):
    items = list(ObjectReading(dataset, iter(BATCHES), 1))
    found = {}

    def make(item):
        found[item.batch, item.slot] = item.make()

    threads = [threading.Thread(target=make, args=(item,)) for item in reversed(items)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [[found[number, slot] for slot in range(len(batch))] for number, batch in enumerate(BATCHES)] == BATCHES


def test_an_error_in_the_middle_is_its_own_samples_and_the_others_come(dataset, tmp_path):
    for gone in ("001", "009"):
        (tmp_path / "data" / gone).unlink()
    found = []
    for item in ObjectReading(dataset, iter(BATCHES), 1):
        try:
            found += [made.error.url[-3:] if isinstance(made, Failed) else made for made in each(item)]
        except NotFound as error:
            found.append(error.url[-3:])
    assert found == [3, "001", 2, 0, "009", "009", 19, 4, 5, 6]


def test_a_broken_order_is_raised_where_it_breaks(dataset):
    def broken():
        yield [1, 2]
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        list(ObjectReading(dataset, broken(), 1))
    with pytest.raises(IndexError):
        list(ObjectReading(dataset, [[1], [COUNT]], 1))


def test_empty_batch_list_yields_no_samples(dataset):
    assert list(ObjectReading(dataset, [], 1)) == list(lists(dataset, [], 1)) == list(singles(dataset, [], 1)) == []


def test_closing_ends_it_and_twice_does_nothing(dataset):
    reading = ObjectReading(dataset, iter(BATCHES), 1)
    first = next(reading)
    reading.close()
    reading.close()
    assert list(reading) == []
    assert first.make() == 3


def test_close_from_another_thread_wakes_a_waiting_reader():
    """The server never answers; without the close, the wait would last until the test's own limit."""
    with FaultServer.within() as server:
        server.put("bucket", "000", b"0")
        dataset = ps.MapDataset.from_prefix("s3://bucket/", store=server.store)
        server.fail(FAULTS["stall"], when=Match(verb="get", times=None))
        reading = ObjectReading(dataset, iter([[0]]), 1)
        waiting, outcome = threading.Event(), []

        def wait() -> None:
            waiting.set()
            try:
                outcome.append(next(reading).make())
            except (Cancelled, StopIteration) as error:
                outcome.append(error)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        assert waiting.wait(60)
        while thread.is_alive() and not server.seen("get", "bucket"):
            thread.join(0.01)
        reading.close()
        thread.join(60)
        assert not thread.is_alive()
        assert isinstance(outcome[0], Cancelled | StopIteration)


def test_a_reading_begun_before_a_fork_is_refused_in_the_child(dataset):
    reading = ObjectReading(dataset, iter(BATCHES), 1)
    next(reading)

    def child():
        with pytest.raises(Unusable, match="fork"):
            next(reading)

    with forked(child) as status:
        assert status() == 0
    assert next(reading).make() == 1


def test_lists_are_whole_batches_and_singles_their_samples(dataset):
    assert list(lists(dataset, iter(BATCHES), 1)) == BATCHES
    assert list(singles(dataset, iter(sum(BATCHES, [])), 1)) == sum(BATCHES, [])
    assert list(lists(dataset, iter(BATCHES), 3)) == BATCHES


def test_repeated_samples_are_marked_by_every_reading_method(folder):
    dataset = ps.MapDataset.from_prefix(folder, transform=lambda sample: sample.repeat)
    batch = [1, ps.order.Repeat(1), 2]
    assert next(lists(dataset, [batch], 1)) == list(singles(dataset, batch, 1)) == [False, True, False]
    assert [made for item in ObjectReading(dataset, [batch], 1) for made in each(item)] == [False, True, False]


def test_merged_datasets_are_waited_for_apart(tmp_path):
    quick, slow = (ps.MapDataset.from_prefix(numbered(tmp_path / name, 8), transform=number) for name in ("a", "b"))
    batches = [[(7, 0), (2, 5), (7, 1)], [], [(2, 0)]]
    with MergedReading({2: slow, 7: quick}, iter(batches), 1) as reading:
        made = [value for item in reading for value in each(item)]
    assert made == [0, 5, 1, 0]
    assert reading.waited_s.keys() == {2, 7}
    assert sum(reading.waited_s.values()) == pytest.approx(reading.counts.waiting_s)
