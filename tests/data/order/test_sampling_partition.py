"""The contract of an epoch's order: each position once, whatever the number of ranks and workers."""

from itertools import zip_longest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.order.sampling import Partition
from penstock.errors import Unusable
from penstock.values import Place

_totals = st.integers(0, 200)
_few = st.integers(1, 6)
_tails = st.sampled_from(["drop", "short", "pad"])


def _of_worker(total, batch, place, **more):
    return list(Partition(total=total, batch=batch, place=place, **more))


def _of_rank(total, batch, rank, world, workers=1, **more):
    """A rank's batches, as its DataLoader takes them: from each worker in turn."""
    each = [_of_worker(total, batch, Place(rank, world, worker, workers), **more) for worker in range(workers)]
    return [got for turn in zip_longest(*each) for got in turn if got is not None]


def _positions(batches):
    return [position for start, stop in batches for position in range(start, stop)]


@given(_totals, _few, _few, _few, _tails, st.data())
def test_every_remaining_position_comes_exactly_once_and_repeats_lie_past_the_end(
    total, batch, world, workers, tail, data
):
    start = data.draw(st.integers(0, total))
    taken = [
        position
        for rank in range(world)
        for worker in range(workers)
        for position in _positions(
            _of_worker(total, batch, Place(rank, world, worker, workers), start=start, tail=tail)
        )
    ]
    fresh = [position for position in taken if position < total]
    rest = (total - start) % (batch * world)
    assert sorted(fresh) == list(range(start, total - rest if tail == "drop" else total))
    filled = {"drop": 0, "short": max(0, world - rest), "pad": batch * world - rest}[tail] if rest else 0
    assert sorted(set(taken) - set(fresh)) == list(range(total, total + filled))
    assert len(taken) == len(fresh) + filled


@given(_totals, _few, _few, _few, _tails, st.data())
def test_a_ranks_batches_do_not_depend_on_its_workers(total, batch, world, workers, tail, data):
    start = data.draw(st.integers(0, total))
    for rank in range(world):
        alone = _of_rank(total, batch, rank, world, 1, start=start, tail=tail)
        assert _of_rank(total, batch, rank, world, workers, start=start, tail=tail) == alone


@given(_totals, st.sampled_from([1, 2, 6, 12, 24]), _tails, st.data())
def test_global_batches_do_not_depend_on_the_number_of_ranks(total, every, tail, data):
    start = data.draw(st.integers(0, total))

    def fresh(batches):
        return [position for position in _positions(filter(None, batches)) if position < total]

    alone = [fresh([batch]) for batch in _of_rank(total, every, 0, 1, 1, start=start, tail=tail)]
    for world in (each for each in range(1, every + 1) if every % each == 0):
        ranks = [_of_rank(total, every // world, rank, world, 1, start=start, tail=tail) for rank in range(world)]
        assert [fresh(slices) for slices in zip_longest(*ranks)] == alone


@given(_totals, _few, _few, _few, _tails, st.integers(0, 30))
def test_going_on_after_some_global_batches_is_going_on(total, batch, world, workers, tail, done):
    start = done * batch * world
    if start > total:
        return
    for rank in range(world):
        whole = _of_rank(total, batch, rank, world, tail=tail)
        assert _of_rank(total, batch, rank, world, workers, start=start, tail=tail) == whole[done:]


@given(_totals, _few, _few, _few, _tails)
def test_partition_length_equals_the_number_of_yielded_items(total, batch, world, workers, tail):
    for rank in range(world):
        for worker in range(workers):
            place = Place(rank, world, worker, workers)
            part = Partition(total=total, batch=batch, place=place, start=total // 3, tail=tail)
            assert len(part) == sum(1 for _ in part)
            assert list(part) == list(part)


@given(_totals, _few, _few, _tails)
def test_batches_are_full_but_for_the_last_which_is_even(total, batch, world, tail):
    ranks = [_of_rank(total, batch, rank, world, tail=tail) for rank in range(world)]
    complete = total // (batch * world)
    assert all(stop - start == batch for rank in ranks for start, stop in rank[:complete])
    last = [sum(stop - start for start, stop in rank[complete:]) for rank in ranks]
    assert max(last) - min(last) <= 1
    rest = total % (batch * world)
    assert sum(last) == ({"drop": 0, "short": max(rest, world), "pad": batch * world}[tail] if rest else 0)


@given(_totals, _few, _few, _tails)
def test_trap_05_every_rank_has_as_many_batches_and_none_is_empty(total, batch, world, tail):
    ranks = [_of_rank(total, batch, rank, world, tail=tail) for rank in range(world)]
    assert len({len(rank) for rank in ranks}) == 1
    assert all(stop > start for rank in ranks for start, stop in rank)


def test_an_example_to_read():
    """Eleven samples, two ranks of two workers, batches of two: global batches 0-3, 4-7 and the rest, 8-10."""

    def taken(rank, worker, **more):
        return _of_worker(11, 2, Place(rank, 2, worker, 2), **more)

    assert taken(0, 0) == [(0, 2), (8, 9)]
    assert taken(0, 1) == [(4, 6)]
    assert taken(1, 0) == [(2, 4), (9, 11)]
    assert taken(1, 1) == [(6, 8)]
    assert taken(1, 0, tail="drop") == [(2, 4)]
    assert taken(1, 0, tail="pad") == [(2, 4), (10, 12)], "position 11 is the epoch's sample 0 again"
    assert taken(0, 0, start=4) == [(4, 6)], "the first batch after a resume is worker 0's"


def test_partition_starts_directly_at_a_very_large_offset():
    part = Partition(total=10**12, batch=256, place=Place(3, 1024, 1, 8), start=10**12 - 256 * 1024 * 3)
    assert list(part) == [(10**12 - 256 * 1024 * 2 + 768, 10**12 - 256 * 1024 * 2 + 1024)]
    assert next(iter(Partition(total=10**18, batch=1, place=Place()))) == (0, 1)


@pytest.mark.parametrize("wrong", [{"start": -1}, {"start": 11}, {"batch": 0}, {"tail": "even"}, {"total": -1}])
def test_invalid_partition_arguments_are_refused(wrong):
    with pytest.raises(Unusable):
        Partition(**{"total": 10, "batch": 2, "place": Place(), **wrong})
