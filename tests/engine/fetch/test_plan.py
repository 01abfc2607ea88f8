"""Cuts cover every byte once; parts of any object fit into S3's ten thousand."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.contracts.driver import Limits
from penstock.engine.read.spanread import split_range
from penstock.engine.write.parts import cut, part_bytes
from penstock.errors import Unusable
from penstock.stores.s3 import services

S3 = services.S3.limits


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 20), st.integers(1, 1 << 16))
def test_split_covers_everything_once(start, size, most):
    runs = list(split_range(start, start + size, most))
    assert runs[0][0] == start
    assert runs[-1][1] == start + size
    assert all(one[1] == other[0] for one, other in pairwise(runs))
    lengths = [high - low for low, high in runs]
    assert max(lengths) <= most
    assert max(lengths) - min(lengths) <= 1
    assert len(runs) == max(1, -(-size // most))


@given(st.integers(5 << 20, 1 << 30))
def test_ten_thousand_parts_hold_five_tebibytes(first):
    sizes = [part_bytes(number, first, S3) for number in range(1, 10_001)]
    assert sizes[0] == first
    assert sizes == sorted(sizes)
    held = 0
    for size in sizes:
        if held >= 5 << 40:
            break
        assert size <= 5 << 30, "S3's largest part"
        held += size
    assert held >= 5 << 40


@given(st.integers(1, 1 << 30), st.integers(1, 50_000), st.integers(1 << 20, 1 << 40))
def test_parts_keep_to_the_stores_limits(first, most_parts, largest):
    limits = Limits(most_parts=most_parts, most_part_bytes=largest)
    sizes = [part_bytes(number, first, limits) for number in range(1, most_parts + 1, max(1, most_parts // 50))]
    assert sizes == sorted(sizes)
    assert sizes[0] == min(first, largest)
    assert sizes[-1] <= largest


def test_parts_are_equal_if_the_store_wants_that_and_the_first_fits_a_single_put():
    equal = replace(S3, equal_parts=True)
    assert {part_bytes(number, 16 << 20, equal) for number in (1, 900, 901, 10_000)} == {16 << 20}
    assert part_bytes(1, 64 << 20, Limits(put_bytes=8 << 20)) == 8 << 20


def test_a_part_too_many_is_refused_before_it_is_sent():
    with pytest.raises(Unusable, match=r"at most 10000 parts here: pass a larger WriteOptions\(part_bytes="):
        part_bytes(10_001, 5 << 20, S3)
    assert part_bytes(1 << 40, 5 << 20, Limits()) == 5 << 20


def test_an_object_is_cut_into_parts_that_make_it_up():
    limits = Limits(most_parts=100)
    sizes = [*cut(1000, 7, limits)]
    assert sum(sizes) == 1000
    assert sizes[0] == 7
    assert [*cut(0, 7, limits)] == []
