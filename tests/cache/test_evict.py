"""What a full cache takes in: simulated epochs, larger than the cache, smaller, and of another dataset."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from penstock.cache.evict import Candidate, admits, share_after, victims

SAMPLE = 16


class Simulated:
    """A cache of equal entries that does as ``disk`` does, without one."""

    def __init__(self, room, random):
        self.room, self.random, self.held, self.names, self.share, self.clock = room, random, {}, [], 0.0, 0

    def epoch(self, objects):
        """Read all objects once in a new order; return the share of hits."""
        order = self.random.sample(objects, len(objects))
        hits = noted = reads = 0
        for each in order:
            self.clock += 1
            hit = each in self.held
            hits, noted, reads = hits + hit, noted + hit, reads + 1
            if hit:
                self.held[each] = self.clock
            elif len(self.held) < self.room or admits(self.share, self.random.random()):
                self.take_in(each)
            if reads == 64:
                self.share, noted, reads = share_after(self.share, noted, reads, len(self.held)), 0, 0
        return hits / len(order)

    def take_in(self, name):
        if len(self.held) >= self.room:
            sample = [Candidate(self.held[each], 1, each) for each in self.random.sample(list(self.held), SAMPLE)]
            del self.held[victims(sample, 1)[0].name]
        self.held[name] = self.clock


def numbers(dataset, count):
    return [f"{dataset}/{number}" for number in range(count)]


def test_of_a_dataset_larger_than_the_cache_a_steady_part_is_served(seed):
    for room in (500, 250):
        cache = Simulated(room, Random(seed))
        shares = [cache.epoch(numbers("a", 1000)) for _ in range(8)]
        assert shares[0] == 0
        assert min(shares[2:]) > 0.85 * room / 1000, f"{room} of 1000: {shares}"


def test_one_scan_of_other_objects_takes_little_from_a_training(seed):
    cache = Simulated(500, Random(seed))
    for _ in range(5):
        cache.epoch(numbers("a", 1000))
    before = cache.epoch(numbers("a", 1000))
    mixed = numbers("a", 1000) + numbers("scan", 500)
    cache.epoch(mixed)
    assert cache.epoch(numbers("a", 1000)) > 0.8 * before


@given(
    st.lists(st.builds(Candidate, st.floats(0, 9), st.integers(1, 9), st.text("ab", max_size=3))), st.integers(-1, 50)
)
def test_the_oldest_go_and_no_more_than_needed(candidates, need):
    chosen = victims(candidates, need)
    assert chosen == sorted(candidates)[: len(chosen)]
    assert sum(each.size_bytes for each in chosen[:-1]) < max(need, 1)
    assert sum(each.size_bytes for each in chosen) >= need or len(chosen) == len(candidates)


def test_the_share_of_hits_follows_what_happens():
    share = 0.0
    for _ in range(100):
        share = share_after(share, 64, 64, 1000)
    assert share > 0.99
    for _ in range(100):
        share = share_after(share, 0, 64, 1000)
    assert share < 0.01
    assert share_after(0.5, 0, 0, 10) == 0.5
