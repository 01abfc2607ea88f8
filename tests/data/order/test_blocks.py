"""``ps.order.BlockShuffle``: its arguments, its identity, and every sample once."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.order.blocks import BlockShuffle
from penstock.errors import Unusable

WINDOWS = st.integers(1, 35)


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

    @pytest.mark.parametrize("wrong", [0, -1, 1.5, "8", True, [1.5], [[1]], [-1, 2]])
    def test_blocks_that_are_none_are_refused(self, wrong):
        with pytest.raises(Unusable, match="block"):
            BlockShuffle(wrong)

    @pytest.mark.parametrize("wrong", [0, -1, 1.5])
    def test_windows_that_are_none_are_refused(self, wrong):
        with pytest.raises(Unusable, match="window_blocks"):
            BlockShuffle(10, wrong)

    def test_each_argument_is_part_of_the_identity(self):
        orders = [BlockShuffle(8), BlockShuffle(9), BlockShuffle(8, 2), BlockShuffle([8]), BlockShuffle([9])]
        assert len({order.identity for order in orders}) == len(orders)
        assert BlockShuffle(1000, 16).identity == "blocks 2: 1000 samples, window 16"  # as states hold it
        assert max(len(order.identity) for order in orders) <= 200
