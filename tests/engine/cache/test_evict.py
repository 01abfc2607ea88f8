"""What a full cache takes in: simulated epochs, larger than the cache, smaller, and of another dataset."""

from hashlib import blake2b
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.cache import evict
from penstock.engine.cache.evict import Candidate, choose_victims, rank, rank_candidates, reuse_now, soon, stale_after

SAMPLE = 64


@pytest.fixture
def _a_clock_of_reads(monkeypatch):
    monkeypatch.setattr(evict, "_LEAST_REUSE_S", 1.0)


class Simulated:
    """A cache of equal entries that does as ``disk`` does, without one; its clock counts reads."""

    def __init__(self, room, seed):
        self.room, self.random, self.held, self.clock = room, Random(seed), {}, 0.0
        self.reuse, self.ranking, self.left, self.missed = (0.0, 0.0), [], 0, {}

    def epoch(self, objects):
        """Read all objects once in a new order; return the share of hits."""
        order = self.random.sample(objects, len(objects))
        return sum(map(self.read, order)) / len(order)

    def read(self, name):
        self.clock += 1
        reuse = reuse_now(*self.reuse, self.clock)
        if name in self.held:
            waited = self.clock - self.held[name][0]
            if waited > reuse:
                self.reuse = waited, self.clock
            self.held[name] = self.clock, True
            return True
        again = soon(self.clock - self.missed.get(name, -1e9), reuse)
        self.missed[name] = self.clock
        if len(self.held) < self.room or self.makes_room(-1.0 if again else _rank(name), reuse):
            self.held[name] = self.clock, False
        return False

    def makes_room(self, order, reuse):
        self.ranking = [each for each in self.ranking if self.held.get(each[1].path, (0,))[0] == each[1].used_s]
        if self.left <= 0 or not self.ranking or (order >= self.ranking[0][0] and self.random.random() < 1 / 16):
            names = self.random.sample(list(self.held), min(SAMPLE, len(self.held)))
            sample = [Candidate(*self.held[each], _rank(each), 1, each) for each in names]
            self.ranking, self.left = rank_candidates(sample, self.clock, stale_after(reuse)), SAMPLE // 4
        gone = choose_victims(self.ranking, order, 1)
        del self.ranking[: len(gone)]
        self.left -= len(gone)
        for each in gone:
            del self.held[each.path]
        return bool(gone)


def _rank(name):
    return rank(blake2b(name.encode(), digest_size=8).hexdigest())


def numbers(dataset, count):
    return [f"{dataset}/{number}" for number in range(count)]


@pytest.mark.usefixtures("_a_clock_of_reads")
@pytest.mark.parametrize("room", [800, 500, 250, 100])
def test_of_a_dataset_larger_than_the_cache_a_steady_part_is_served(seed, room):
    cache = Simulated(room, seed)
    shares = [cache.epoch(numbers("a", 1000)) for _ in range(6)]
    assert shares[0] == 0
    assert min(shares[2:]) > 0.7 * room / 1000, f"{room} of 1000: {shares}"
    assert sum(shares[2:]) / 4 > 0.8 * room / 1000, f"{room} of 1000: {shares}"


@pytest.mark.usefixtures("_a_clock_of_reads")
def test_fitting_dataset_is_cached_after_a_larger_dataset_filled_the_cache(seed):
    cache = Simulated(500, seed)
    for _ in range(5):
        cache.epoch(numbers("old", 700))
    shares = [cache.epoch(numbers("new", 450)) for _ in range(10)]
    assert max(shares) > 0.9, shares


@pytest.mark.usefixtures("_a_clock_of_reads")
def test_frequently_read_entries_stay_cached_beside_large_epochs(seed):
    cache, hits = Simulated(400, seed), []
    for epoch in range(6):
        order = cache.random.sample(numbers("train", 2000), 2000)
        for at in range(0, 2000, 200):
            for each in order[at : at + 200]:
                cache.read(each)
            found = [cache.read(each) for each in numbers("validation", 50)]
            hits += found if epoch >= 2 else []
    assert sum(hits) / len(hits) > 0.5


CANDIDATES = st.lists(
    st.builds(
        Candidate, st.floats(0, 99), st.booleans(), st.floats(0, 0.99), st.integers(1, 9), st.text("ab", max_size=3)
    )
)


@given(CANDIDATES, st.floats(-1, 1), st.integers(-1, 50))
def test_no_more_goes_than_is_needed_and_nothing_for_less(candidates, newcomer, need):
    ranking = rank_candidates(candidates, 100.0, 50.0)
    gone = choose_victims(ranking, newcomer, need)
    assert gone == [each for _, each in ranking][: len(gone)]
    assert not gone or sum(each.size_bytes for each in gone) >= need
    assert sum(each.size_bytes for each in gone[:-1]) < max(need, 1)
    assert all(each.used_s < 50.0 or each.rank > newcomer for each in gone)


def test_eviction_takes_long_unused_entries_first_then_never_hit_by_rank():
    made = [(0.0, True, 0.1), (90.0, False, 0.2), (90.0, False, 0.8), (90.0, True, 0.9)]
    some = [Candidate(*each, 1, f"{number}") for number, each in enumerate(made)]
    assert [each.path for _, each in rank_candidates(some, 100.0, 50.0)] == ["0", "2", "1"]
    assert [each.path for _, each in rank_candidates(some[3:] * 2, 100.0, 50.0)] == ["3", "3"]
    assert choose_victims(rank_candidates(some, 100.0, 50.0), 0.5, 3) == []
    assert len(choose_victims(rank_candidates(some, 100.0, 50.0), 0.5, 2)) == 2
    assert len(choose_victims(rank_candidates(some, 100.0, 50.0), 0.99, 1)) == 1


def test_nothing_is_stale_before_anything_was_hit_and_waits_are_forgotten():
    assert stale_after(reuse_now(0.0, 0.0, 1e9)) == float("inf")
    assert reuse_now(100.0, 1000.0, 1000.0) == 100.0
    assert reuse_now(100.0, 1000.0, 1800.0) == 50.0
    assert soon(1.0, 100.0)
    assert not soon(50.0, 100.0)
    assert [rank("0" * 32), rank("f" * 32) < 1.0] == [0.0, True]


def test_hit_share_converges_to_recent_hits_and_misses():
    share = 0.0
    for _ in range(200):
        share = evict.share_after(share, 64, 64)
    assert share > 0.99
    for _ in range(200):
        share = evict.share_after(share, 0, 64)
    assert share < 0.01
    assert evict.share_after(0.5, 0, 0) == 0.5


@pytest.mark.usefixtures("_a_clock_of_reads")
def test_another_dataset_that_fits_too_has_most_of_its_hits_from_the_third_epoch_on(seed):
    cache = Simulated(600, seed)
    earlier, later = ([f"{each}{number}" for number in range(500)] for each in "ab")
    assert [cache.epoch(earlier) for _ in range(20)][-1] == 1
    shares = [cache.epoch(later) for _ in range(5)]
    assert sum(shares) / 5 > 0.45, shares
    assert shares[3] > 0.75, shares
