"""What a buffer for the next object should hold is learned from those before."""

import random

import pytest

from penstock.engine.operations.policy import Sizes


def _after(sizes):
    seen = Sizes()
    for size in sizes:
        seen.add(size)
    return seen.bound


SMALL = [(0, 4096), (1, 4096), (4096, 4096), (4097, 8192), (100 << 10, 128 << 10), (1 << 26, 1 << 26)]


@pytest.mark.parametrize(("size", "bound"), [*SMALL, ((1 << 26) + 1, 0), (1 << 40, 0)])
def test_size_bound_after_one_object_equals_bound_after_many_and_vanishes_if_too_large(size, bound):
    assert _after([]) == 0, "nothing is known before the first object"
    assert _after([size]) == _after([size] * 5000) == bound


def test_a_few_large_objects_among_many_small_ones_do_not_count(seed):
    sizes = [100_000] * 990 + [50 << 20] * 10
    random.Random(seed).shuffle(sizes)
    assert _after(sizes) == 128 << 10
    assert _after([100_000] * 964 + [1 << 20] * 60) == 1 << 20


def test_objects_of_another_kind_are_learned_within_some_thousands():
    assert _after([50 << 20] * 3000 + [5000] * 9000) == 8192
