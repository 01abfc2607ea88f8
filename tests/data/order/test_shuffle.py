"""The order of an epoch: a bijection at every size, the same for ever, and as good as random to a statistician."""

import collections
import itertools
import math
import pickle
import timeit

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.order import shuffle
from penstock.data.order.block_permutation import BlockPermutation
from penstock.data.order.shuffle import MOST, Permutation, key_of_sets, permute_within
from penstock.errors import Unusable
from tests.data.order.chances import (
    CELLS,
    correlated,
    even,
    gaps,
    likely,
    p_of,
    p_of_all,
    p_of_coincidences,
    placed,
    tied,
    unrelated,
)
from tests.data.order.plain import within

SMALL, LARGE = 1000, 100_003  # either side of 65,536, where the algorithm changes
MILLION, TRILLION = 10**6, 10**12
# On both sides: primes, squares, squares and one, powers of two; and how many seeds are tried.
SIZES = [
    *((1009, 64), (1024, 64), (1025, 64), (4095, 64), (65_025, 4), (65_026, 4), (65_521, 4), (65_535, 4)),
    *((65_536, 4), (65_537, 4), (66_049, 4), (66_050, 4), (LARGE, 4), (131_072, 4), (1_000_003, 1)),
]


def _order(n, seed=0, epoch=0):
    return Permutation(n, seed, epoch).block(0, n)


class TestInverse:
    @pytest.mark.parametrize("n", [1, 2, 255, 65_535, 65_536, 65_537, 257**2 + 1, 10**12, MOST])
    def test_the_position_of_a_sample_is_where_the_sample_is(self, n):
        order = Permutation(n, 3, 1)
        for position in {0, n // 3, n - 1}:
            assert order.position(order.at(position)) == position

    @pytest.mark.parametrize("sample", [-1, 5])
    def test_a_sample_that_there_is_not_is_an_index_error(self, sample):
        with pytest.raises(IndexError):
            Permutation(5, 0, 0).position(sample)


class TestBijection:
    @pytest.mark.parametrize(
        "n",
        [
            *(0, 1, 2, 3, 4, 255, 256, 257, 65_535),
            *(65_536, 65_537, 256 * 257, 257**2, 257**2 + 1, 2**18, 2**18 + 1, MILLION),
        ],
    )
    def test_every_sample_once(self, n):
        order = _order(n)
        assert order.dtype == np.int64
        assert np.array_equal(np.sort(order), np.arange(n))

    @given(st.integers(0, 200_000), st.integers(), st.integers())
    def test_every_sample_once_for_any_seed_and_epoch(self, n, seed, epoch):
        assert np.bincount(_order(n, seed, epoch), minlength=n).tolist() == [1] * n

    @pytest.mark.parametrize("n", [TRILLION, 2**40 + 1, 2**62])
    def test_far_too_many_to_try_all(self, n):
        order = Permutation(n, 1, 2)
        for start in (0, n // 3, n - 10_000):
            samples = order.block(start, start + 10_000)
            assert len(np.unique(samples)) == 10_000
            assert samples.min() >= 0
            assert samples.max() < n

    def test_more_than_that_is_refused(self):
        for n in (-1, 2**62 + 1):
            with pytest.raises(Unusable):
                Permutation(n, 0, 0)


ORDERS = {
    "empty": Permutation(0, 1, 2),
    "small": Permutation(SMALL, 1, 2),
    "large": Permutation(LARGE, 1, 2),
    "blocks": BlockPermutation([3, 0, 5, 1, 0, 0, 4, 2, 7, 6], 1, 2, 3),
}


class TestAccess:
    """Of single samples and of blocks of samples."""

    @given(
        st.one_of(
            st.sampled_from([0, 1, SMALL, LARGE, TRILLION]).map(lambda n: Permutation(n, 3, 4)),
            st.builds(BlockPermutation, st.lists(st.integers(0, 500), max_size=30), st.just(3), st.just(4)),
        ),
        st.data(),
    )
    def test_at_block_and_of_agree(self, order, data):
        start = data.draw(st.integers(0, order.n))
        stop = data.draw(st.integers(start, min(order.n, start + 50)))
        block = order.block(start, stop)
        assert block.shape == (stop - start,)
        assert [order.at(position) for position in range(start, stop)] == block.tolist()
        assert order.of(np.arange(start, stop)[::-1]).tolist() == block[::-1].tolist()
        if order.n <= LARGE:
            assert order.block(0, order.n)[start:stop].tolist() == block.tolist()

    @pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
    def test_outside_is_an_index_error(self, order):
        for start, stop in ((-1, 0), (0, order.n + 1), (1, 0)):
            with pytest.raises(IndexError):
                order.block(start, stop)
        for position in (-1, order.n):
            with pytest.raises(IndexError):
                order.at(position)
            with pytest.raises(IndexError):
                order.of(np.array([0, position]))

    @pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
    def test_a_pickled_order_is_the_same_and_what_it_returns_is_a_copy(self, order):
        before = order.block(0, order.n)
        assert np.array_equal(pickle.loads(pickle.dumps(order)).block(0, order.n), before)
        kept = before.tolist()
        before[:] = 0
        order.of(np.arange(order.n))[:] = 0
        assert order.block(0, order.n).tolist() == kept

    def test_a_scope_is_another_order(self):
        orders = [
            Permutation(SMALL, 0, 0, scope).block(0, SMALL) for scope in ("", "blocks ", "window 0 ", "window 1 ")
        ]
        for one, other in itertools.combinations(orders, 2):
            assert (one == other).sum() < 12


class TestSameForEver:
    """A job resumes on another machine, with another numpy, years later."""

    @pytest.mark.parametrize(
        ("n", "head"),
        [
            (10, [8, 4, 3, 2, 9, 5, 6, 0, 1, 7]),
            (LARGE, [95942, 39829, 55106, 46759, 50113]),
            (TRILLION, [925349394900, 576150220686, 797086472431, 537464223090, 452721017382]),
        ],
    )
    def test_known_orders(self, n, head):
        assert Permutation(n, 7, 2).block(0, len(head)).tolist() == head

    def test_against_plain_integers(self):
        """The definition once more, without numpy and one sample at a time."""
        n, wrap = LARGE, (1 << 64) - 1
        order = Permutation(n, 5, 6)
        keys = [int(key) for key in order._keys[:6]]
        height, width = 317, 316  # ceil(sqrt(100,003)) and as many columns as it takes

        def mixed(value):
            value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & wrap
            value = (value ^ (value >> 27)) * 0x94D049BB133111EB & wrap
            return value ^ (value >> 31)

        def sample(value):
            left, right = divmod(value, width)
            for key, size in zip(keys, itertools.cycle((height, width))):
                left, right = right, (left + ((mixed(right ^ key) >> 32) * size >> 32)) % size
            value = left * width + right
            return value if value < n else sample(value)

        assert order.block(0, 3000).tolist() == [sample(position) for position in range(3000)]


class TestQuality:
    """Seeds are fixed, so a test that passes passes for ever; four rounds of Feistel instead of six fail here."""

    @pytest.mark.parametrize(("n", "seeds"), SIZES)
    def test_positions_neighbours_epochs_and_seeds_are_as_independent_as_chance_makes_them(self, n, seeds):
        assert _unlikely(_order, n, seeds) == set()

    def test_which_a_plain_congruence_fails(self):
        def congruence(n, seed=0, epoch=0):
            return (np.arange(n) * 611 + seed * 7919 + epoch * 104_729) % n

        assert {"sample by position", "successor by sample", "gaps at a distance of 1"} < _unlikely(congruence, 1009, 8)

    @pytest.mark.parametrize(("n", "orders"), [(61, 4000), (SMALL, 4000), (65_537, 100), (LARGE, 100)])
    def test_orders_of_two_epochs_or_seeds_agree_as_often_as_chance_makes_them(self, n, orders):
        """Trap 6. Fixed points, matches and successors that stay together: Poisson's law with mean 1 for each."""
        made = [_order(n, seed, epoch) for seed in range(orders // 4) for epoch in range(4)]
        pairs = [*zip(made[::2], made[1::2], strict=True), *zip(made[:-4], made[4:], strict=True)]
        assert likely(p_of_coincidences([(order == np.arange(n)).sum() for order in made]))
        assert likely(p_of_coincidences([(np.diff(order) == 1).sum() for order in made]))
        assert likely(p_of_coincidences([(one == other).sum() for one, other in pairs]))

    def test_few_samples_take_every_order_equally_often(self):
        orders = [tuple(_order(4, seed, epoch)) for seed in range(48) for epoch in range(100)]
        counts = np.array([orders.count(order) for order in itertools.permutations(range(4))])
        assert likely(p_of(even(counts)))

    @pytest.mark.parametrize("n", [5, 16, 17])
    def test_each_sample_lies_at_each_position_equally_often(self, n):
        counts = np.zeros((n, n))
        for epoch in range(10_000):
            counts[np.arange(n), _order(n, 11, epoch)] += 1
        assert likely(p_of(placed(counts, n)))

    @pytest.mark.parametrize("n", [65_536, 65_537, LARGE, MILLION, TRILLION])
    def test_samples_at_positions_are_uniform_and_pairwise_independent(self, n):
        ends = np.array([0, 1, n // 2, n - 2, n - 1])
        found = np.array([Permutation(n, 17, epoch).of(ends) for epoch in range(2000)]).T
        for samples in found:
            assert likely(p_of(even(np.bincount(samples * 64 // n, minlength=64))))
        for one, other in itertools.combinations(found, 2):
            assert likely(p_of(tied(one, other, n)))

    @pytest.mark.parametrize("n", [TRILLION, 2**62])
    def test_very_large_permutations_pass_uniformity_and_independence_checks(self, n):
        one, other = Permutation(n, 12, 0).block(n // 3, n // 3 + LARGE), Permutation(n, 12, 1).block(0, LARGE)
        for samples in (one, one % 4093 * (n // 4093)):  # the high digits, the low ones
            part = samples // (n // 256 + 1)
            assert likely(p_of(even(np.bincount(part, minlength=256))))
            assert likely(p_of(unrelated(part[1:] // 16, part[:-1] // 16)))
            assert likely(p_of(unrelated(part // 16, other // (n // 16 + 1))))


def _unlikely(make, n, seeds):
    """What these orders do that chance does not."""
    deviations = collections.defaultdict(list)
    for seed in range(seeds):
        for name, deviation in _deviations(make, n, seed):
            deviations[name].append(deviation)
    return {name for name, each in deviations.items() if not likely(p_of_all(each))}


def _deviations(make, n, seed):
    order, places = make(n, seed), np.arange(n)
    height = math.isqrt(n - 1) + 1
    width = -(-n // height)  # the network's rectangle: that far apart, positions share a column
    yield "sample by position", tied(places, order, n)
    yield "sample by position, rank correlation", correlated(places, order)
    yield "low bits", unrelated(places % CELLS, order % CELLS)
    yield "column by column", unrelated(places % width * CELLS // width, order % width * CELLS // width)
    yield "successor by sample", tied(order[:-1], order[1:], n)
    for name, distance in {"1": 1, "2": 2, "64": 64, "a row": width, "a column": height}.items():
        yield f"gaps at a distance of {name}", gaps(order, distance)
    for name, other in {"epoch": (seed, 1), "seed": (seed + 1, 0), "both": (seed + 1, -1)}.items():
        samples = make(n, *other)
        yield f"another {name}", tied(order, samples, n)
        yield f"another {name}, rank correlation", correlated(order, samples)


@pytest.mark.parametrize("n", [1, 2, 1000, 65_535])
def test_hashes_that_are_equal_but_for_their_low_bits_are_sorted_whole(n, monkeypatch):
    expected = Permutation(n, 3, 4).block(0, n)
    # Only the top two bits are compared, so that most neighbours are equal in them.
    monkeypatch.setattr(shuffle, "_SAMPLE_BITS", np.uint64(62))
    assert Permutation(n, 3, 4).block(0, n).tolist() == expected.tolist()
    assert sorted(expected.tolist()) == [*range(n)]


def test_permutation_yields_over_five_million_indices_per_second():
    order = Permutation(10**7, 0, 0)
    seconds = min(timeit.repeat(lambda: order.block(4096, 8192), number=10, repeat=20)) / 10
    assert 4096 / seconds > 5e6


class TestSets:
    """Permutations of many sets at once, of which nothing is kept."""

    @staticmethod
    def permuted(sizes, names, seed=0, epoch=0):
        """Return the whole of each set, permuted, one after the other."""
        each = np.repeat(sizes, sizes), np.repeat(names, sizes)
        places = np.concatenate([np.arange(size) for size in sizes])
        return permute_within(places, *each, key_of_sets(seed, epoch, "window"))

    def test_every_set_is_permuted_whatever_others_come_with_it(self):
        sizes = np.array([1, 2, 3, 63, 64, 65, 4095, 4096, 4097, 65_537, 1, 64])
        names = np.arange(len(sizes)) * 10**15
        found = np.split(self.permuted(sizes, names), np.cumsum(sizes)[:-1])
        for size, name, one in zip(sizes, names, found, strict=True):
            assert np.array_equal(np.sort(one), np.arange(size))
            assert np.array_equal(one, self.permuted([size], [name]))

    @pytest.mark.parametrize("size", [1, 7, 63, 64, 100, 257, 10**6, 10**12, MOST])
    def test_against_plain_integers(self, size, seed):
        places = np.random.default_rng(seed).integers(size, size=50)
        for name in (0, 1, 2**62):
            found = permute_within(places, np.full(50, size), np.full(50, name), key_of_sets(5, 6, "group"))
            assert found.tolist() == [within(place, size, name, 5, 6, "group") for place in places.tolist()]

    @pytest.mark.parametrize("size", [2, 3, 4, 5])
    def test_every_order_of_a_handful_is_equally_likely(self, size):
        orders = self.permuted(np.full(20_000, size), np.arange(20_000)).reshape(-1, size)
        numbers = (orders * size ** np.arange(size)).sum(axis=1)
        _, counts = np.unique(numbers, return_counts=True)
        assert len(counts) == math.factorial(size)
        assert likely(p_of(even(counts)))

    @pytest.mark.parametrize("size", [40, 63, 64, 65, 81, 100, 257, 1000])
    def test_positions_neighbours_sets_and_epochs_are_as_chance_makes_them(self, size):
        sets = 400_000 // size
        made = [self.permuted(np.full(sets, size), np.arange(sets), 0, epoch).reshape(sets, size) for epoch in (0, 1)]
        orders = made[0]
        table = np.zeros((size, size))
        np.add.at(table, (orders, np.arange(size)), 1)
        assert likely(p_of(placed(table, size)))
        apart = np.bincount(((orders[:, 1:] - orders[:, :-1]) % size).ravel(), minlength=size)[1:]
        assert likely(p_of(even(apart)))
        fixed = np.concatenate([(one == other).sum(axis=1) for one, other in ((orders[:-1], orders[1:]), made)])
        assert likely(p_of_coincidences(fixed))
        ends = np.zeros((size, size))
        np.add.at(ends, (orders[:, 0], orders[:, -1]), 1)
        counts = ends[~np.eye(size, dtype=bool)]
        if counts.mean() > 5:
            assert likely(p_of(even(counts)))
