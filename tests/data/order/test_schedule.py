"""Every sample gets its turn, its chunks before it; a chunk goes after its last sample; bytes stay below a limit."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.order.schedule import Schedule
from tests.amounts import examples


def size_of(chunk):
    return 1 + chunk % 3


@st.composite
def tables(draw):
    count, width = draw(st.integers(1, 150)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    table = rng.integers(0, draw(st.integers(1, 40)), (count, width))
    table[:, 1:][rng.random((count, width - 1)) < 0.3] = -1
    for row in table:
        for at in range(1, width):
            row[at] = -1 if row[at] in row[:at] else row[at]
    return table


def cut(count, batch):
    return [list(range(at, min(at + batch, count))) for at in range(0, count, batch)]


@settings(max_examples=examples(60))
@given(tables(), st.integers(1, 17), st.integers(1, 40), st.integers(1, 100), st.randoms(use_true_random=False))
def test_all_samples_have_their_chunks_and_bytes_stay_below_the_limit(table, batch, most_bytes, most_samples, random):
    batches = cut(len(table), batch)
    schedule = Schedule(batches, table.__getitem__, size_of, most_bytes=most_bytes, most_samples=most_samples)
    one = max(sum(size_of(each) for each in row if each >= 0) for row in table.tolist())
    live, turns = set(), []
    while True:
        while random.random() < 0.3 and schedule.extend():
            pass
        if schedule.position == schedule.frontier and not schedule.extend(must=True):
            break
        while schedule.queue and schedule.queue[0].position <= schedule.position:
            chunk = schedule.queue.popleft().chunk
            assert chunk not in live
            live.add(chunk)
        assert schedule.held_bytes <= max(most_bytes, one)
        most = schedule.queue[0].position if schedule.queue else schedule.frontier
        turn = schedule.turn(random.randint(1, most - schedule.position))
        turns += [(turn.batch, turn.slot + at, turn.size, sample) for at, sample in enumerate(turn.samples)]
        needed = [chunk for sample in turn.samples for chunk in {*table[sample].tolist()} if chunk >= 0]
        assert live.issuperset(needed)
        live -= {chunk for chunk, samples in Counter(needed).items() if schedule.done(chunk, samples)}
    assert (live, schedule.held_bytes) == (set(), 0)
    wanted = [
        (number, slot, len(each), sample) for number, each in enumerate(batches) for slot, sample in enumerate(each)
    ]
    assert turns == wanted


@pytest.mark.parametrize("batch", [1, 7, 32])
def test_a_chunk_is_read_once_where_its_samples_fit(batch):
    table = np.arange(1000)[:, None] // 10
    schedule = Schedule(cut(1000, batch), table.__getitem__, lambda _: 1, most_bytes=4, most_samples=1000)
    reads = []
    while schedule.position < schedule.frontier or schedule.extend(must=True):
        schedule.extend()
        reads += [need.chunk for need in schedule.queue]
        schedule.queue.clear()
        schedule.done(int(table[schedule.turn().samples[0], 0]))
    assert reads == list(range(100))


def test_nothing_is_drawn_before_it_is_looked_at_nor_much_beyond():
    drawn = []

    def batches():
        for number in range(1000):
            drawn.append(number)
            yield [number] * 10

    schedule = Schedule(batches(), lambda some: some[:, None], lambda _: 1, most_bytes=5, most_samples=100)
    assert drawn == []
    while schedule.extend():
        pass
    assert schedule.frontier == 50
    assert len(drawn) <= 411


def test_samples_without_chunks_have_their_turns():
    schedule = Schedule(
        [[0, 1], [2]], lambda some: np.empty((len(some), 0), int), lambda _: 1, most_bytes=1, most_samples=9
    )
    turns = []
    while schedule.position < schedule.frontier or schedule.extend(must=True):
        turns.append(schedule.turn().samples[0])
    assert turns == [0, 1, 2]


def test_batches_that_are_not_known_yet_are_asked_for_again_and_ended_ones_are_not():
    class Batches:
        def __init__(self):
            self.given = [[0], [], [1]]

        def __iter__(self):
            return self

        def __next__(self):
            if self.given is None:
                raise AssertionError("asked for after the end")
            if not self.given:
                self.given = None
                raise StopIteration
            return self.given.pop(0)

    schedule = Schedule(Batches(), np.arange(2)[:, None].__getitem__, size_of, most_bytes=10, most_samples=10)
    assert [schedule.extend() for _ in range(4)] == [True, True, False, False]
    assert schedule.frontier == 2
