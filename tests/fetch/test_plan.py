"""Cuts cover every byte once; parts of any object fit into S3's ten thousand."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.fetch.plan import part_bytes, split


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 20), st.integers(1, 1 << 16))
def test_split_covers_everything_once(start, size, most):
    runs = list(split(start, start + size, most))
    assert runs[0][0] == start
    assert runs[-1][1] == start + size
    assert all(one[1] == other[0] for one, other in pairwise(runs))
    lengths = [high - low for low, high in runs]
    assert max(lengths) <= most
    assert max(lengths) - min(lengths) <= 1
    assert len(runs) == max(1, -(-size // most))


@given(st.integers(5 << 20, 1 << 30))
def test_ten_thousand_parts_hold_five_tebibytes(first):
    sizes = [part_bytes(number, first) for number in range(1, 10_001)]
    assert sizes[0] == first
    assert sizes == sorted(sizes)
    held = 0
    for size in sizes:
        if held >= 5 << 40:
            break
        assert size <= 5 << 30, "S3's largest part"
        held += size
    assert held >= 5 << 40
