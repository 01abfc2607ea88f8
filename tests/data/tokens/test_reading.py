"""Runs are read ahead once, samples are cut from them, and an error of a run is one of its samples."""

import numpy as np
import pytest

import penstock as ps
from penstock.data.order.orders import FullShuffle
from penstock.data.reading.reading import in_lists
from penstock.data.tokens.reading import TokenReading
from penstock.data.tokens.runs import runs_of
from penstock.errors import Changed


@pytest.fixture
def folder(tmp_path):
    for number in range(3):
        np.arange(number * 100_000, number * 100_000 + 50_000, dtype="u4").tofile(tmp_path / f"{number}.bin")
    return tmp_path


def opened(folder):
    return ps.TokenDataset.from_shards(f"{folder}/", length=100, dtype="u4").windows


def batches(count, size=32):
    return [[*range(at, min(at + size, count))] for at in range(0, count, size)]


def reading(runs, order, made=None, together=1000):
    return TokenReading(runs, order, 1, made, together, None)


@pytest.mark.parametrize("made", [None, lambda _, view: view.copy()])
@pytest.mark.parametrize("together", [1, 7, 1000])
def test_samples_are_cut_from_runs_read_once(folder, made, together):
    windows = opened(folder)
    items = reading(runs_of(windows, ps.order.BlockShuffle(60)), batches(len(windows)), made, together)
    found = [np.asarray(each) for batch in in_lists(items) for each in batch]
    assert [each[0] for each in found] == [file * 100_000 + at * 100 for file in range(3) for at in range(500)]
    assert all((np.diff(each.astype(int)) == 1).all() for each in found)
    assert items.counts.size_bytes == 3 * 50_000 * 4
    assert items.counts.requests == 27  # a block that begins in one file and ends in the next takes two


def test_full_shuffle_reads_each_sample_in_a_request(folder):
    windows = opened(folder)
    items = reading(runs_of(windows, FullShuffle()), [[7, 1200, 3]])
    assert [each[0] for [*batch] in in_lists(items) for each in batch] == [700, 220_000, 300]
    assert items.counts.requests == 3


def test_tokens_of_made_samples_are_let_go(folder):
    windows = opened(folder)
    items = reading(runs_of(windows, ps.order.BlockShuffle(60)), batches(len(windows)))
    most = 0
    for item in items:
        item.make()
        most = max(most, len(items._tokens))
    assert 0 < most < 27
    assert not items._tokens
    assert not items._known


def test_samples_of_a_replaced_file_fail_and_others_do_not(folder):
    windows = opened(folder)
    np.zeros(50_000, "u4").tofile(folder / "1.bin")
    items = reading(runs_of(windows, ps.order.BlockShuffle(60)), batches(len(windows), 500))
    found = [each for item in items for each in item.make() or ()]
    assert [hasattr(each, "error") for each in found] == [False] * 500 + [True] * 500 + [False] * 500
    assert isinstance(found[700].error, Changed)
    assert found[700].name.endswith("/1.bin")
