"""Slices are Python's, and every range is read once, whatever is merged."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from penstock.interop.fsspec.files import exact, make_span, merge_ranges
from penstock.values import ObjectMeta, Span

DATA = bytes(range(20))


@pytest.mark.parametrize("start", [None, 0, 3, 19, 25, -1, -5, -30])
@pytest.mark.parametrize("end", [None, 0, 4, 20, 30, -1, -18, -30])
def test_a_slice_is_that_of_python(start, end):
    span = exact(ObjectMeta("k", 20, "e"), start, end)
    assert DATA[span.start : span.stop] == DATA[start:end]
    assert span.whole == (DATA[start:end] == DATA)
    quick = make_span("k", start, end)
    if quick is not None:
        stop = quick.stop if quick.stop is not None else len(DATA)
        assert DATA[quick.start : stop] == DATA[start:end]


def test_only_slices_that_need_the_size_ask_for_it():
    asking = [(5, None), (-5, -1), (-5, 10), (0, -1)]
    assert [make_span("k", *each) for each in asking] == [None] * 4
    assert make_span("k", None, None) == Span("k")
    assert make_span("k", -5, None) == Span("k", -5)


def test_ranges_within_the_gap_are_one_run_and_others_are_not():
    spans = [Span("a", 100, 110), Span("a", 0, 10), Span("b", 10, 20), Span("a", 12, 20), Span("a"), Span("b", 15, 18)]
    runs = [*merge_ranges(spans, 2)]
    assert sorted(at for run in runs for at in run.members) == list(range(6))
    assert {run.span[:3] for run in runs} == {("a", 0, 20), ("a", 100, 110), ("b", 10, 20), ("a", 0, None)}
    assert len([*merge_ranges(spans, 90)]) == 3
    assert [*merge_ranges([], 5)] == []


def test_every_span_lies_in_the_run_that_holds_it(seed):
    drawn = random.Random(seed)
    for _ in range(200):
        starts = [drawn.randrange(100) for _ in range(drawn.randrange(1, 20))]
        spans = [Span(drawn.choice("ab"), start, start + drawn.randrange(1, 30)) for start in starts]
        gap = drawn.randrange(10)
        runs = [*merge_ranges(spans, gap)]
        assert sorted(at for run in runs for at in run.members) == list(range(len(spans)))
        for run in runs:
            for at in run.members:
                assert run.span.key == spans[at].key
                assert run.span.start <= spans[at].start <= spans[at].stop <= run.span.stop
        for one, other in pairwise(runs):
            assert one.span.key != other.span.key or other.span.start - one.span.stop > gap


def test_merged_run_does_not_exceed_the_efficient_request_size():
    mib = 1 << 20
    runs = [*merge_ranges([Span("k", at * mib, (at + 1) * mib) for at in range(9)], 0)]
    assert [run.span.stop - run.span.start for run in runs] == [4 * mib, 4 * mib, mib]
