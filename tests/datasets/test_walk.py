"""Positions become samples in blocks, lazily, and nothing is lost at a block's edge."""

from __future__ import annotations

from itertools import islice

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.datasets.walk import walk
from penstock.order.partition import Partition
from penstock.order.shuffle import Permutation
from penstock.values import Place


@given(st.integers(0, 5000), st.integers(1, 7), st.integers(1, 3), st.integers(0, 4), st.booleans())
def test_ranks_and_workers_together_take_every_sample_once(total, batch, world, workers, shuffled):
    workers = max(1, workers)
    order = Permutation(total, 5, 1) if shuffled else None
    taken = []
    for rank in range(world):
        for worker in range(workers):
            place = Place(rank=rank, world=world, worker=worker, workers=workers)
            for indices in walk(Partition(total=total, batch=batch, place=place), order):
                assert 1 <= len(indices) <= batch
                taken += indices
    assert sorted(taken) == list(range(total))


def test_a_batch_is_the_permutation_of_its_positions():
    order = Permutation(100_000, 1, 2)
    batches = Partition(total=100_000, batch=10, place=Place())
    for number, indices in enumerate(islice(walk(batches, order), 3000)):
        assert indices == order.block(number * 10, number * 10 + 10).tolist()


def test_it_looks_no_further_ahead_than_a_block():
    drawn = []

    def endless():
        for number in range(10**9):
            drawn.append(number)
            yield number, number + 1

    assert next(walk(endless(), None)) == [0]
    assert len(drawn) == 1024
    assert isinstance(next(walk(iter([(0, 1)]), Permutation(1, 0, 0)))[0], int)
    assert not isinstance(next(walk(iter([(0, 1)]), None))[0], np.integer)
