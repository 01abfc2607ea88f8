"""Cuts cover every byte once; joins lose none; parts of any object fit into S3's ten thousand."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.fetch.plan import merge, part_bytes, split


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


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 50)), max_size=20),
    st.integers(0, 30),
    st.integers(1, 200),
)
def test_merge_keeps_every_byte_and_fetches_little_more(pairs, gap, most):
    spans = sorted((start, start + length) for start, length in pairs)
    merged = merge(spans, gap, most)
    for start, stop in spans:
        assert any(low <= start and stop <= high for low, high in merged)
    wanted = {byte for start, stop in spans for byte in range(start, stop)}
    for low, high in merged:
        assert high - low <= max(most, *(stop - start for start, stop in spans))
        missed = [byte for byte in range(low, high) if byte not in wanted]
        runs = sum(1 for byte in missed if byte - 1 not in missed)
        assert len(missed) <= gap * runs
    assert merge(merged, gap, most) == merged or len(merge(merged, gap, most)) <= len(merged)


def test_merge_joins_what_is_near_and_only_that():
    assert merge([(0, 10), (12, 20), (30, 40)], 2, 100) == [(0, 20), (30, 40)]
    assert merge([(0, 10), (10, 20)], 0, 15) == [(0, 10), (10, 20)]
    assert merge([(0, 10), (2, 5)], 0, 100) == [(0, 10)]


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
