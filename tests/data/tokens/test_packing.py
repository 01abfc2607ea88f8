"""Documents are packed by integers alone: each piece once, in the row that best-fit finds, the same everywhere."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.tokens.packing import (
    best_fit,
    count_rows,
    cut_runs,
    lay_out,
    plan_packing,
)
from tests.amounts import examples
from tests.data.tokens.lengths import corpus

LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=80).map(np.array)
ROWS = st.one_of(st.integers(1, 20), st.sampled_from([31, 32, 33, 63, 64, 65, 127, 128, 129, 1000]))


def slow_best_fit(sizes, length):
    """Return the row of each piece, placed one by one, by a look at every row."""
    rooms, found = [], []
    for size in sizes:
        fits = [(room, row) for row, room in enumerate(rooms) if room >= size]
        row = min(fits)[1] if fits else len(rooms)
        if not fits:
            rooms.append(length)
        rooms[row] -= size
        found.append(row)
    return found, len(rooms)


@given(st.lists(st.integers(1, 10_000), max_size=120), st.integers(2, 400))
@settings(max_examples=examples(300), deadline=None)
def test_best_fit_by_counts_is_best_fit_piece_by_piece(sizes, length):
    sizes = sorted((size % (length - 1) + 1 for size in sizes), reverse=True)
    distinct = sorted(set(sizes), reverse=True)
    found, taken, rows = best_fit(distinct, [sizes.count(each) for each in distinct], length)
    assert (np.repeat(found, taken).tolist(), rows) == slow_best_fit(sizes, length)


def check_layout(lengths, length, pack):
    layout = lay_out(lengths, length, pack, 3)
    documents, firsts, sizes, rows, places = (each.tolist() for each in layout)
    ends, tokens = {}, 0
    for at in range(len(rows)):
        row, document, size = rows[at], documents[at], sizes[at]
        # Pieces of a row follow one another without a gap, and rows are in order.
        assert places[at] == ends.get(row, 0)
        assert row in (len(ends) - 1, len(ends))
        ends[row] = places[at] + size
        assert size > 0
        assert ends[row] <= length
        if firsts[at] + size < lengths[document]:
            # A cut is where its row ends.
            assert ends[row] == length
            assert pack == "cut" or lengths[document] > length
        tokens += size
    assert len(ends) == count_rows(lengths, length, pack)
    every = sorted((d, f, s) for d, f, s in zip(documents, firsts, sizes, strict=True))
    at = dict.fromkeys(range(len(lengths)), 0)
    for document, first, size in every:
        assert first == at[document]
        at[document] += size
    assert [*at.values()] == lengths.tolist()
    return layout, ends


@given(LENGTHS, ROWS, st.sampled_from(["best-fit", "cut"]))
@settings(max_examples=examples(300), deadline=None)
def test_each_token_is_in_one_piece_and_no_row_is_too_long(lengths, length, pack):
    _, ends = check_layout(lengths, length, pack)
    if pack == "cut":
        assert set([*ends.values()][:-1]) <= {length}
    else:
        rests = sorted((int(each) for each in lengths % length if each), reverse=True)
        assert len(ends) == int((lengths // length).sum()) + slow_best_fit(rests, length)[1]


@pytest.mark.parametrize("pack", ["best-fit", "cut"])
@pytest.mark.parametrize("length", [1, 2, 1023, 1024, 1025, 8191, 8192, 8193])
def test_documents_of_exact_multiples_and_of_a_token_more(length, pack):
    lengths = np.array([length, 2 * length, 2 * length + 1, 1, length - 1 or 1, length + 1, 1])
    _, ends = check_layout(lengths, length, pack)
    assert len(ends) == -(-int(lengths.sum()) // length)


@given(st.lists(st.integers(1, 4000), min_size=1, max_size=400).map(np.array), ROWS, st.integers(1, 5000))
@settings(max_examples=examples(100), deadline=None)
def test_runs_end_near_the_wanted_size(lengths, length, tokens):
    firsts = cut_runs(lengths, length, tokens)
    assert firsts[0] == 0
    assert (np.diff(firsts) > 0).all()
    reach, longest = max(tokens // 4, length // 2 + 1), int(lengths.max())
    sizes = np.add.reduceat(lengths, firsts)
    assert sizes[:-1].min(initial=tokens) >= tokens - reach
    assert sizes.max() <= tokens + reach + longest


@given(
    st.lists(st.lists(st.integers(1, 3_000_000), max_size=40), min_size=1, max_size=5),
    st.sampled_from([512, 2048, 131_072, 1_000_003]),
    st.sampled_from([1, 2, 4, 8]),
)
@settings(max_examples=examples(60), deadline=None)
def test_each_document_is_in_one_block(files, length, item):
    lengths = np.array([each for file in files for each in file], np.int64)
    borders = np.cumsum([0, *map(len, files)])
    plan = plan_packing(lengths, borders, length, item, "best-fit")
    blocks = [plan.documents(block) for block in range(len(plan.bounds) - 1)]
    assert sorted(each for block in blocks for each in block.tolist()) == [*range(len(lengths))]
    assert all((np.diff(each) > 0).all() for each in blocks)
    # No run has documents of two files.
    assert {*borders[:-1].tolist()} - {len(lengths)} <= {*plan.firsts.tolist()}
    rows = [count_rows(lengths[each], length, "best-fit") for each in blocks]
    assert plan.starts.tolist() == np.cumsum([0, *rows]).tolist()


def test_a_small_set_is_one_block():
    lengths = corpus("web", 3_000_000)
    plan = plan_packing(lengths, np.array([0, len(lengths)]), 2048, 4, "best-fit")
    assert len(plan.bounds) == 2
    assert plan.starts[-1] == count_rows(lengths, 2048, "best-fit")


def test_many_small_files_share_blocks():
    lengths = np.full(40_000, 100)
    plan = plan_packing(lengths, np.arange(0, 40_001, 4), 8192, 4, "best-fit")
    assert len(plan.bounds) == 2
    assert plan.starts[-1] == -(-40_000 // 81)


def test_documents_larger_than_blocks_get_separate_blocks():
    lengths = np.full(40, 6_000_000)
    plan = plan_packing(lengths, np.array([0, 40]), 8192, 4, "best-fit")
    assert max(len(plan.documents(block)) for block in range(len(plan.bounds) - 1)) <= 2


# Padding, in ten-thousandths, of corpora of which blocks are a small part.
@pytest.mark.parametrize("length", [2048, 8192, 32_768, 131_072])
@pytest.mark.parametrize(
    ("kind", "tokens", "most"),
    [("web", 60, 50), ("code", 60, 50), ("chat", 40, 50), ("mixed", 60, 50), ("books", 400, 100)],
)
def test_padding_is_below_a_half_percent(kind, tokens, most, length):
    lengths = corpus(kind, tokens * 1_000_000, seed=7)
    plan = plan_packing(lengths, np.array([0, len(lengths)]), length, 4, "best-fit")
    total, rows = int(lengths.sum()), int(plan.starts[-1])
    assert len(plan.bounds) > 2
    assert (rows * length - total) * 10_000 <= most * rows * length


# Of version 1: other bytes are other rows under the same states.
@pytest.mark.parametrize(
    ("length", "pack", "digest"),
    [
        (1000, "best-fit", "c01877d4304ed66f"),
        (4096, "best-fit", "55bdfbc0a521f2eb"),
        (4096, "cut", "a9ec98f611136492"),
    ],
)
def test_plans_are_those_of_this_version_everywhere(length, pack, digest):
    numbers = np.arange(1, 30_001, dtype=np.int64)
    lengths = 1 + (numbers * 2_654_435_761 % 4099) ** 2 // 3000
    plan = plan_packing(lengths, np.array([0, 1, 1, 20_000, 30_000]), length, 2, pack)
    hashed = hashlib.sha256()
    for each in plan:
        hashed.update(each.astype("<i8").tobytes())
    for block in range(len(plan.bounds) - 1):
        for each in lay_out(lengths[plan.documents(block)], length, pack, block):
            hashed.update(each.astype("<i8").tobytes())
    assert hashed.hexdigest()[:16] == digest
