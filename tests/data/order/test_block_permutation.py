"""An order with locality: a bijection of few open blocks at a time, the same for ever, and random as far as it says."""

from __future__ import annotations

import itertools
import math
import pickle
import tracemalloc
from collections import Counter
from itertools import islice

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.data.order import block_permutation, shuffle
from penstock.data.order.block_permutation import BlockPermutation, BlockShuffle, EqualBlockPermutation, groups_of
from penstock.data.order.lanes import LanePermutation, Lanes
from penstock.data.order.sampling import Cursor, SamplingPlan, batch_indices
from penstock.data.order.shuffle import Permutation
from penstock.errors import Unusable
from penstock.values import Place
from tests.amounts import examples
from tests.data.order.chances import correlated, even, gaps, likely, p_of, p_of_all, placed, tied, unrelated
from tests.data.order.plain import EqualLanes, windowed, within

SIZES = st.lists(st.one_of(st.integers(0, 5), st.integers(0, 500)), max_size=30)
WINDOWS = st.integers(1, 35)
UNEQUAL = [3, 0, 5, 1, 0, 0, 4, 2, 7, 6]


def _order(sizes, seed=0, epoch=0, window=3):
    order = BlockPermutation(sizes, seed, epoch, window)
    return order.block(0, order.n)


def _blocks(sizes, samples):
    """Which block each sample lies in."""
    return np.repeat(np.arange(len(sizes)), sizes)[samples]


class TestBijection:
    @given(SIZES, WINDOWS, st.integers(), st.integers())
    def test_every_sample_once(self, sizes, window, seed, epoch):
        order = _order(sizes, seed, epoch, window)
        assert order.dtype == np.int64
        assert np.array_equal(np.sort(order), np.arange(sum(sizes)))

    @pytest.mark.parametrize("window", [1, 2, 7])
    def test_every_sample_once_where_windows_are_too_large_for_a_table(self, window):
        sizes = [70_000, 0, 1, 65_535, 65_536, 40_000, 90_001]
        assert np.array_equal(np.sort(_order(sizes, window=window)), np.arange(sum(sizes)))

    def test_far_too_many_to_try_all(self):
        sizes = np.full(1000, 10**12)
        order = BlockPermutation(sizes, 0, 0, 5)
        samples = order.block(7 * 10**14, 7 * 10**14 + 10_000)
        assert len(np.unique(samples)) == 10_000
        assert len(np.unique(samples // 10**12)) == 5

    @pytest.mark.parametrize("sizes", [[], [0], [0, 0, 0], np.zeros(5, dtype=np.uint8)])
    def test_blocks_without_samples_give_an_empty_order(self, sizes):
        order = BlockPermutation(sizes, 0, 0)
        assert order.n == 0
        assert order.block(0, 0).tolist() == []
        with pytest.raises(IndexError):
            order.at(0)

    @pytest.mark.parametrize(
        "sizes",
        [[1, -1], [1.0], [[1, 2]], 3, [True], ["1"], [2**62, 1 << 20], [2**63], np.array([2**63], dtype=np.uint64)],
    )
    def test_sizes_that_are_none_are_refused(self, sizes):
        with pytest.raises(Unusable, match="sizes of blocks"):
            BlockPermutation(sizes, 0, 0)
        for window in (0, -1):
            with pytest.raises(Unusable, match="window"):
                BlockPermutation([1], 0, 0, window)


class TestAccess:
    @given(SIZES, WINDOWS, st.integers(0, 99))
    def test_positions_may_come_in_any_order_and_twice(self, sizes, window, seed):
        order = BlockPermutation(sizes, 3, 4, window)
        positions = np.random.default_rng(seed).integers(max(order.n, 1), size=min(order.n, 40))
        assert order.of(positions).tolist() == order.block(0, order.n)[positions].tolist()

    def test_modifying_input_sizes_does_not_change_the_order(self):
        sizes = np.array(UNEQUAL)
        order = BlockPermutation(sizes, 0, 0)
        sizes[:] = 0
        assert order.block(0, order.n).tolist() == BlockPermutation(UNEQUAL, 0, 0).block(0, order.n).tolist()

    @pytest.mark.parametrize("kind", [list, tuple, lambda sizes: np.array(sizes, dtype=np.uint16)])
    def test_sizes_may_be_any_integers(self, kind):
        assert _order(kind(UNEQUAL)).tolist() == _order(UNEQUAL).tolist()


class TestLocality:
    @given(SIZES, WINDOWS)
    def test_at_no_position_are_more_blocks_open_than_a_window_has(self, sizes, window):
        order = _order(sizes, 1, 2, window)
        of = _blocks(sizes, order)
        opened, closed = np.zeros(of.size + 1, dtype=int), np.zeros(of.size + 1, dtype=int)
        for block in np.unique(of):
            (places,) = np.nonzero(of == block)
            opened[places[0]] += 1
            closed[places[-1] + 1] += 1
        assert np.cumsum(opened - closed).max() <= window

    @given(st.lists(st.integers(1, 50), min_size=1, max_size=30), WINDOWS)
    def test_reading_ahead_by_less_than_a_window_touches_at_most_two(self, sizes, window):
        of = _blocks(sizes, _order(sizes, 1, 2, window))
        distance = min(sizes) * (len(sizes) // math.ceil(len(sizes) / window))  # no window has fewer samples
        for start in range(0, of.size, 7):
            assert len(np.unique(of[start : start + distance])) <= 2 * window

    def test_a_window_of_one_keeps_blocks_whole_and_mixes_them(self):
        of = _blocks([50] * 20, order := _order([50] * 20, window=1))
        runs = [block for block, _ in itertools.groupby(of)]
        assert len(runs) == 20
        assert runs != sorted(runs)
        assert all(np.any(np.diff(part) < 0) for part in np.split(order, 20))

    @pytest.mark.parametrize("window", [20, 21, 10**9])
    def test_a_window_of_all_blocks_is_a_full_shuffle(self, window):
        of = _blocks([50] * 20, order := _order([50] * 20, window=window))
        assert order.tolist() == _order([50] * 20, window=20).tolist()
        assert likely(p_of(unrelated(np.arange(1000) // 50, of)))

    @pytest.mark.parametrize("size", [10, 50])
    def test_no_block_is_left_alone_at_the_end(self, size):
        """Of 17 blocks in windows of 16 one would come alone, as a run of alike samples perhaps."""
        of = _blocks([size] * 17, _order([size] * 17, window=16))
        assert len(np.unique(of[-9 * size :])) >= 9


class TestSameForEver:
    """A job resumes on another machine, with another numpy, years later."""

    def test_known_orders(self):
        known = [19, 4, 15, 17, 18, 21, 14, 7, 16, 6, 20, 3, 13, 5]
        known += [23, 10, 25, 26, 12, 9, 11, 22, 24, 8, 27, 2, 1, 0]
        assert _order(UNEQUAL, 7, 2, 3).tolist() == known
        assert _order([2, 2, 2, 2], -1, 10**20, 1).tolist() == [5, 4, 2, 3, 0, 1, 7, 6]
        head = BlockPermutation(np.arange(10**5), 7, 2, 64).block(3_000_000_000, 3_000_000_005)
        assert head.tolist() == [1708448247, 2878476875, 2878498958, 3152859462, 4723094574]

    @settings(max_examples=examples(100))
    @given(SIZES, WINDOWS)
    @example([500] * 30, 35)
    @example([0, 0, 400, 300, 0, 500, 500, 0], 3)
    def test_against_plain_lists(self, sizes, window):
        assert _order(sizes, 8, 9, window).tolist() == windowed(sizes, 8, 9, window)

    def test_block_permutation_distinguishes_seeds_true_and_1(self):
        """As for a ``Permutation``, and whichever was asked for first."""
        for seed in (True, 1):
            mixed = [within(place, 100, 0, seed, 0, "window") for place in range(100)]
            assert _order([100], seed).tolist() == mixed


class TestQuality:
    """Thresholds are those of ``tests/data/order/chances.py``; seeds are fixed."""

    def test_another_epoch_and_another_seed_are_another_order(self):
        """Trap 6. One match on average, if not by Poisson's law: a block may be in the same window in both."""
        made = [_order([25] * 40, seed, epoch, 4) for seed in range(150) for epoch in range(4)]
        pairs = [*zip(made[::2], made[1::2], strict=True), *zip(made[:-4], made[4:], strict=True)]
        fixed = np.array([(order == np.arange(1000)).sum() for order in made])
        matches = np.array([(one == other).sum() for one, other in pairs])
        for counts in (fixed, matches):
            assert likely(p_of((counts.mean() - 1) / counts.std() * counts.size**0.5))

    def test_each_block_comes_to_each_window_and_each_sample_to_each_place_equally_often(self):
        windows, places = np.zeros((12, 4)), np.zeros((48, 12))
        for epoch in range(2000):
            order = _order([4] * 12, 3, epoch, 3)
            windows[order[order % 4 == 0] // 4, np.flatnonzero(order % 4 == 0) // 12] += 1
            places[order, np.arange(48) % 12] += 1
        assert likely(p_of(placed(windows, 12)))
        assert likely(p_of_all([even(each) for each in places]))

    @pytest.mark.parametrize(("size", "window"), [(300, 4), (1250, 8), (20_000, 4), (160, 64)])
    def test_samples_of_a_group_of_blocks_are_as_mixed_as_chance_mixes_them(self, size, window):
        whole = {"position": [], "neighbour": [], "rank": [], "group": [], "epoch": [], "step": []}
        blocks, groups = 4 * window, BlockPermutation([size] * 4 * window, 0, 0, window).groups
        n = size * window // groups

        def mixed(seed, epoch, number):
            """Return the numbers of a group's samples within it, in their order."""
            order = _order([size] * blocks, seed, epoch, window)
            group = np.split(Permutation(blocks, seed, epoch, "blocks ").block(0, blocks), 4 * groups)[number]
            within = np.full(blocks, -1)
            within[group] = np.arange(group.size)
            found = within[order // size] * size + order % size
            return found[within[order // size] >= 0]

        for seed in range(max(6, 60_000 // n)):
            mine, other, later = mixed(seed, 0, groups), mixed(seed, 0, groups + 1), mixed(seed, 1, groups)
            whole["position"].append(tied(np.arange(n), mine, n))
            whole["neighbour"].append(gaps(mine, 1))
            whole["rank"].append(correlated(np.arange(n), mine))
            whole["group"].append(tied(mine, other, n))
            whole["epoch"].append(tied(mine, later, n))
            # In the middle each step has as many samples as a group, a part of each group of its window.
            order = _order([size] * blocks, seed, 0, window)
            begins = groups * n + sum(n * part // groups for part in range(groups))
            step = order[begins : begins + n] // size
            whole["step"].append(unrelated(np.unique(step, return_inverse=True)[1] % 16, np.arange(n) * 16 // n))
        assert {name for name, each in whole.items() if not likely(p_of_all(each))} == set()


class TestCost:
    def test_memory_grows_with_blocks_and_not_with_samples(self):
        sizes = np.full(1000, 60_000)
        tracemalloc.start()
        try:
            order = BlockPermutation(sizes, 0, 0, 1)
            for start in range(0, order.n, 1_000_000):
                order.block(start, start + 1000)
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert kept < 1000 * 24 + 4 * 8 * 60_000 + 100_000

    def test_the_end_is_reached_as_quickly_as_the_beginning(self, counted):
        order = BlockPermutation(np.full(10_000, 10_000), 0, 0)
        for start in (0, order.n - 256):
            counted.clear()
            order.block(start, start + 256)
            assert 0 < counted["hashes"] < 28 * 256
            assert 0 < counted["cells"] < 4 * 10 * 64  # of few steps

    def test_neighbours_share_the_tables_of_their_steps(self, counted):
        order = BlockPermutation(np.full(100_000, 1000), 0, 0)
        counted.clear()
        for start in range(0, 10 * 4096, 4096):
            order.block(start, start + 4096)
        assert counted["hashes"] <= 28 * 10 * 4096
        assert counted["cells"] <= 10 * 4096 // 4


def _equal(n, size):
    return [size] * (n // size) + ([n % size] if n % size else [])


class TestEqualBlocks:
    """The order is that of ``BlockPermutation`` with the same sizes, so all above holds of it, too."""

    @given(st.integers(0, 600), st.integers(1, 90), WINDOWS, st.integers(), st.integers())
    def test_equal_block_permutation_matches_general_permutation_of_same_sizes(self, n, size, window, seed, epoch):
        equal = EqualBlockPermutation(n, size, seed, epoch, window)
        assert equal.block(0, n).tolist() == _order(_equal(n, size), seed, epoch, window).tolist()

    def test_equal_block_permutation_matches_general_permutation_with_many_blocks(self):
        n, size = 3 * 70_000 - 2, 3
        equal = EqualBlockPermutation(n, size, 5, 1, 16)
        assert np.array_equal(equal.block(0, n), _order(_equal(n, size), 5, 1, 16))

    @pytest.mark.parametrize("size", [10, 11, 2**62, 10**30])
    def test_a_block_larger_than_the_dataset_is_all_of_it(self, size):
        assert sorted(EqualBlockPermutation(10, size, 0, 0).block(0, 10).tolist()) == list(range(10))
        order = EqualBlockPermutation(2**62, 2**61 + 1, 0, 0)
        assert len(np.unique(order.block(2**61 - 50, 2**61 + 50))) == 100

    def test_memory_does_not_grow_with_the_number_of_samples(self):
        tracemalloc.start()
        order = EqualBlockPermutation(10**12 + 1, 1000, 0, 0)
        samples = order.block(5 * 10**11, 5 * 10**11 + 4096)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 << 20
        assert len(np.unique(samples)) == 4096
        assert len(np.unique(samples // 1000)) <= 32

    @pytest.mark.parametrize(("n", "size", "window"), [(10, 0, 1), (10, 1, 0), (2**62, 1, 16), (2**63, 2**40, 16)])
    def test_invalid_or_too_large_equal_block_parameters_are_refused(self, n, size, window):
        with pytest.raises(Unusable):
            EqualBlockPermutation(n, size, 0, 0, window)


@pytest.mark.parametrize(
    ("samples", "blocks", "window", "groups"),
    [
        (0, 0, 1, 1),
        (1000, 1000, 16, 1),  # small windows are used up at once: a step has a table, which costs time
        (10_000, 1000, 100, 3),
        (15 * 1333, 1333, 160, 8),
        (10**6, 2, 2, 2),  # a group has one block at least
        (10**6, 100, 1, 1),
        (2**62, 2**31, 2**31, 8),
    ],
)
def test_a_window_has_up_to_eight_groups_if_a_step_then_has_samples_enough(samples, blocks, window, groups):
    assert groups_of(samples, blocks, window) == groups


def test_blocks_are_finished_a_few_at_a_time():
    """Memory is let go of, and the next blocks are read, while a window is in use and not only when it ends."""
    size, window, blocks = 32, 64, 640
    order = BlockPermutation([size] * blocks, 0, 0, window)
    of = order.block(0, order.n) // size
    ends = np.sort(of.size - 1 - np.unique(of[::-1], return_index=True)[1])  # where each block has its last sample
    step = size * window // 8
    for start in range(2 * step, of.size - 6 * step, step // 3):
        finished = np.count_nonzero((ends >= start) & (ends < start + 2 * step))
        assert window // 8 <= finished <= 3 * window // 8


def test_batches_hold_samples_of_all_blocks_of_the_window():
    order = BlockPermutation([32] * 640, 0, 0, 64)
    of = order.block(0, order.n) // 32
    distinct = [len(np.unique(of[start : start + 256])) for start in range(0, of.size - 255, 256)]
    chance = 64 * (1 - (1 - 1 / 64) ** 256)
    assert np.mean(distinct) >= 0.98 * chance


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=60),
    st.integers(1, 40),
    st.integers(1, 7),
    st.lists(st.integers(1, 2000), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
)
def test_places_asked_for_in_parts_and_in_any_order_are_those_asked_for_at_once(sizes, window, lanes, cuts, random):
    def order():
        return LanePermutation(BlockPermutation(sizes, 1, 2, window), lanes)

    at_once, asked = order().block(0, sum(sizes)), order()
    places = np.array(random.sample(range(sum(sizes)), sum(sizes)), dtype=np.int64)
    for part in [*np.split(np.arange(sum(sizes)), np.cumsum(cuts)), *np.split(places, np.cumsum(cuts))]:
        assert asked.of(part).tolist() == at_once[part].tolist()


@pytest.mark.parametrize("lanes", [1, 5])
def test_earlier_calls_are_of_no_consequence(lanes):
    def order():
        return LanePermutation(BlockPermutation([100] * 90, 1, 2, 20), lanes)

    kept, places = order(), [*range(0, 9000, 137)]
    forwards = [kept.at(position) for position in places]
    backwards = [kept.at(position) for position in reversed(places)]
    assert forwards == backwards[::-1] == [order().at(position) for position in places]


@pytest.mark.parametrize("world", [1, 8, 64, 512, 4096, 1 << 15])
def test_a_position_costs_no_more_however_many_ranks_there_are(counted, world):
    """Ranks take batches far apart, so that no two are of one step: tables of a step were made for 32 samples."""
    plan = SamplingPlan(samples=10**12, batch=32, order=BlockShuffle(1000), seed=1)
    first = next(batch_indices(plan, Cursor(0, 0), Place(world // 2, world)))
    assert len(first) == 32
    counted.clear()
    for batch in islice(batch_indices(plan, Cursor(0, 0), Place(world // 2, world)), 272):
        counted["positions"] += len(batch)
    looked_up = 512 + 2 * 4096
    assert counted["positions"] == 272 * 32 == looked_up
    assert counted["hashes"] <= 28 * looked_up
    assert counted["cells"] <= 8 * looked_up


@pytest.mark.parametrize("lanes", [8, 64, 512, 4096, 1 << 15])
def test_a_position_costs_no_more_however_many_lanes_a_rank_has(counted, lanes):
    plan = SamplingPlan(samples=10**12, batch=max(64, lanes // 8), order=Lanes(1000, lanes=lanes), seed=1)
    for batch in islice(batch_indices(plan, Cursor(0, 0), Place(3, 8)), 64):
        counted["positions"] += len(batch)
    assert counted["hashes"] <= 2 * 28 * max(counted["positions"], 512 + 4096)
    assert counted["cells"] <= 2 * 80 * max(counted["positions"], 512 + 4096)
    if lanes <= 64:  # lanes that follow one another share tables
        assert counted["cells"] <= 8 * max(counted["positions"], 512 + 4096)


@pytest.fixture
def counted(monkeypatch):
    """Count hashes, and cells of the tables of steps."""
    counts: Counter[str] = Counter()

    def count(name, function):
        def counting(values, *others):
            found = function(values, *others)
            counts[name] += found.size
            return found

        return counting

    monkeypatch.setattr(shuffle, "mixed", count("hashes", shuffle.mixed))
    monkeypatch.setattr(block_permutation, "_taken", count("cells", block_permutation._taken))
    return counts


@pytest.mark.parametrize("lanes", [1, 3, 4096])
@pytest.mark.parametrize(
    ("blocks", "size", "window"),
    [(3000, 40, 64), (1 << 31, 1000, 16), (1 << 40, 1 << 20, 160), (1 << 40, 300, 1), (1 << 58, 16, 1 << 58)],
)
def test_far_places_of_very_many_blocks_against_plain_integers(blocks, size, window, lanes, seed):
    plain = EqualLanes(blocks, size, 5, 6, window, lanes)
    order = LanePermutation(EqualBlockPermutation(plain.n, size, 5, 6, window), lanes)
    generator = np.random.default_rng(seed)
    positions = np.concatenate((generator.integers(plain.n, size=60), [0, 1, plain.n - 2, plain.n - 1]))
    assert order.of(positions).tolist() == [plain.at(position) for position in positions.tolist()]


def test_two_to_the_40_blocks_are_read_once_each():
    """Over a run of places, blocks are as many as their samples fill."""
    order = EqualBlockPermutation((1 << 40) * 1000, 1000, 0, 0, 16)
    samples = order.block(5 * 10**14, 5 * 10**14 + 100_000)
    assert len(np.unique(samples)) == 100_000
    assert len(np.unique(samples // 1000)) <= 100 + 2 * 16


class TestBlockShuffle:
    @given(st.integers(0, 500), st.integers(1, 90), WINDOWS, st.integers(), st.integers())
    def test_every_epoch_has_every_sample_once(self, n, size, window, seed, epoch):
        order = BlockShuffle(size, window)
        assert order.positions(n) == n
        assert sorted(order.epoch(n, seed, epoch)(np.arange(n)).tolist()) == list(range(n))

    def test_single_size_and_list_of_sizes_give_the_same_order(self):
        one, each = BlockShuffle(30, 3), BlockShuffle([30, 30, 30, 10], 3)
        every = np.arange(100)
        assert one.epoch(100, 7, 2)(every).tolist() == each.epoch(100, 7, 2)(every).tolist()

    def test_sizes_may_be_an_array_which_is_copied(self):
        sizes = np.array([3, 4])
        order = BlockShuffle(sizes)
        sizes[:] = 0
        assert order == BlockShuffle([3, 4])
        assert hash(order) == hash(BlockShuffle((3, 4)))
        assert pickle.loads(pickle.dumps(order)) == order

    def test_sizes_that_are_not_the_datasets_are_refused(self):
        with pytest.raises(Unusable, match="hold 7 samples, and the dataset has 8"):
            BlockShuffle([3, 4]).positions(8)

    @pytest.mark.parametrize(
        ("wrong", "says"),
        [
            *(((each,), "block") for each in (0, -1, 1.5, "8", True, [1.5], [[1]], [-1, 2])),
            *(((10, each), "window_blocks") for each in (0, -1, 1.5)),
        ],
    )
    def test_blocks_and_windows_that_are_none_are_refused(self, wrong, says):
        with pytest.raises(Unusable, match=says):
            BlockShuffle(*wrong)

    def test_each_argument_is_part_of_the_identity(self):
        orders = [BlockShuffle(8), BlockShuffle(9), BlockShuffle(8, 2), BlockShuffle([8]), BlockShuffle([9])]
        assert len({order.identity for order in orders}) == len(orders)
        assert BlockShuffle(1000, 16).identity == "blocks 3: 1000 samples, window 16"  # as states hold it
        assert max(len(order.identity) for order in orders) <= 200
