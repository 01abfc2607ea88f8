"""The order of an epoch: a bijection at every size, the same for ever, and as good as random to a statistician."""

import itertools
import timeit

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Unusable
from penstock.order.shuffle import Permutation

SMALL, LARGE = 1000, 100_003  # either side of 65,536, where the algorithm changes
MILLION, TRILLION = 10**6, 10**12


def _order(n, seed=0, epoch=0):
    return Permutation(n, seed, epoch).block(0, n)


def _chi_square(counts):
    """How many standard deviations the counts' chi-square lies from what even chances give."""
    expected = counts.sum() / counts.size
    freedom = counts.size - 1
    return (((counts - expected) ** 2 / expected).sum() - freedom) / (2 * freedom) ** 0.5


class TestBijection:
    @pytest.mark.parametrize(
        "n",
        [
            0,
            1,
            2,
            3,
            4,
            255,
            256,
            257,
            65_535,
            65_536,
            65_537,
            256 * 257,
            257**2,
            257**2 + 1,
            2**18,
            2**18 + 1,
            MILLION,
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


class TestAccess:
    @given(st.sampled_from([0, 1, SMALL, LARGE, TRILLION]), st.data())
    def test_at_block_and_of_agree(self, n, data):
        order = Permutation(n, 3, 4)
        start = data.draw(st.integers(0, n))
        stop = data.draw(st.integers(start, min(n, start + 50)))
        block = order.block(start, stop)
        assert block.shape == (stop - start,)
        assert [order.at(position) for position in range(start, stop)] == block.tolist()
        assert order.of(np.arange(start, stop)[::-1]).tolist() == block[::-1].tolist()

    @pytest.mark.parametrize("n", [0, SMALL, LARGE])
    def test_outside_is_an_index_error(self, n):
        order = Permutation(n, 0, 0)
        for start, stop in ((-1, 0), (0, n + 1), (1, 0)):
            with pytest.raises(IndexError):
                order.block(start, stop)
        for position in (-1, n):
            with pytest.raises(IndexError):
                order.at(position)
            with pytest.raises(IndexError):
                order.of(np.array([position]))

    def test_what_is_handed_out_can_be_written_to(self):
        order = Permutation(SMALL, 0, 0)
        before = order.block(0, 10)
        order.block(0, 10)[:] = 0
        order.of(np.arange(10))[:] = 0
        assert order.block(0, 10).tolist() == before.tolist()


class TestSameForEver:
    """A job resumes on another machine, with another numpy, years later."""

    @pytest.mark.parametrize(
        ("n", "head"),
        [
            (10, [8, 4, 3, 2, 9, 5, 6, 0, 1, 7]),
            (LARGE, [10905, 32379, 90462, 55193, 10840]),
            (TRILLION, [196087516351, 763756775419, 147601449009, 83906496083, 475842890805]),
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
                left, right = right, (left + (mixed(right ^ key) >> 1)) % size
            value = left * width + right
            return value if value < n else sample(value)

        assert order.block(0, 3000).tolist() == [sample(position) for position in range(3000)]


class TestQuality:
    """Each bound is five standard deviations: a sound order fails one of them once in a million seeds."""

    def test_another_epoch_and_another_seed_are_another_order(self):
        """Trap 6. Two independent orders agree in one place on average."""
        for n in (SMALL, LARGE):
            orders = [_order(n, seed, epoch) for seed in range(4) for epoch in range(4)]
            for one, other in itertools.combinations(orders, 2):
                assert (one == other).sum() < 12

    def test_few_samples_take_every_order_equally_often(self):
        orders = [tuple(_order(4, seed, epoch)) for seed in range(48) for epoch in range(100)]
        counts = np.array([orders.count(order) for order in itertools.permutations(range(4))])
        assert abs(_chi_square(counts)) < 5

    @pytest.mark.parametrize("n", [SMALL, LARGE])
    def test_each_sample_may_come_anywhere(self, n):
        """Where a sample stands, over epochs: 20 parts of the samples by 20 parts of the epoch."""
        counts = np.zeros((20, 20))
        for epoch in range(1_000_000 // n):
            parts = _order(n, 11, epoch) * 20 // n
            np.add.at(counts, (np.arange(n) * 20 // n, parts), 1)
        # Each order fills its rows and columns exactly, which leaves 19 * 19 of 399 degrees of freedom.
        freedom = 19 * 19
        expected = counts.sum() / 400
        assert abs(((counts - expected) ** 2 / expected).sum() - freedom) / (2 * freedom) ** 0.5 < 5

    @pytest.mark.parametrize("n", [60_000, MILLION])
    def test_neighbours_know_nothing_of_one_another(self, n):
        order = _order(n, 12)
        for distance in (1, 2, 64, 1024):
            gaps = (order[distance:] - order[:-distance]) % n
            assert abs(_chi_square(np.bincount(gaps * 256 // n, minlength=256))) < 5

    @pytest.mark.parametrize("n", [60_000, MILLION])
    def test_epochs_and_seeds_know_nothing_of_one_another(self, n):
        first = _order(n, 13, 0)
        for other in (_order(n, 13, 1), _order(n, 14, 0)):
            cells = first * 16 // n * 16 + other * 16 // n
            assert abs(_chi_square(np.bincount(cells, minlength=256))) < 5

    def test_the_low_bits_are_as_good_as_the_high_ones(self):
        order = _order(MILLION, 15)
        assert abs(_chi_square(np.bincount(order[:100_000] % 256, minlength=256))) < 5


def test_it_is_quick():
    order = Permutation(10**7, 0, 0)
    seconds = min(timeit.repeat(lambda: order.block(4096, 8192), number=10, repeat=20)) / 10
    assert 4096 / seconds > 5e6
