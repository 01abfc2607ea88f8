"""What ``shuffle=`` may be."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.data.order.block_permutation import BlockShuffle
from penstock.data.order.orders import CatalogOrder, FullShuffle, order_of
from penstock.data.order.protocol import Order
from penstock.data.order.shuffle import Permutation
from penstock.errors import Unusable


@pytest.mark.parametrize("order", [CatalogOrder(), FullShuffle(), BlockShuffle(4)], ids=repr)
def test_orders_of_ours_keep_the_contract(order):
    assert isinstance(order, Order)
    assert order_of(order) is order
    assert order.positions(10) == 10
    assert sorted(order.epoch(10, 3, 1)(np.arange(10)).tolist()) == list(range(10))


@pytest.mark.parametrize("shuffle", [True, np.True_, 1])
def test_true_is_a_full_shuffle(shuffle):
    assert order_of(shuffle) == FullShuffle()
    assert order_of(shuffle).epoch(50, 3, 2)(np.arange(50)).tolist() == Permutation(50, 3, 2).block(0, 50).tolist()


@pytest.mark.parametrize("shuffle", [False, np.False_, 0])
def test_false_is_the_catalogs_order(shuffle):
    assert order_of(shuffle) == CatalogOrder()


@pytest.mark.parametrize("wrong", ["yes", None, 2, 1024, [1, 2], np.arange(3), object(), "True"])
def test_invalid_shuffle_value_is_refused_with_the_accepted_values(wrong):
    with pytest.raises(Unusable, match=r"shuffle must be True, False or an order such as ps\.order\.BlockShuffle"):
        order_of(wrong)


def test_order_class_instead_of_an_instance_is_refused():
    with pytest.raises(Unusable, match="the class BlockShuffle: make an instance"):
        order_of(BlockShuffle)
