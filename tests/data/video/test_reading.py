"""Runs of clips of one file or several: each sample is in one run, within its block; bytes reach their samples."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.data.order.orders import CatalogOrder, FullShuffle
from penstock.data.reading.reading import in_lists
from penstock.data.video.reading import ClipContents, ClipReading, ClipRuns, fit_order
from penstock.errors import Damaged
from penstock.source import open_source
from penstock.values import Span
from tests.amounts import examples

ITEM, EACH = 10, 40  # bytes of a sample in each file; samples of a file


class Pairs(ClipContents):
    """Samples with a piece of each of two files, as those of two cameras are."""

    def __init__(self, count):
        self.source, self.base = open_source("memory://pairs/")[0], ""
        self.count = count

    def __len__(self):
        return self.count

    @property
    def digest(self):
        return str(self.count)

    @property
    def total_bytes(self):
        return 2 * ITEM * self.count

    def block_sizes(self, block_bytes):
        each = max(block_bytes // ITEM, 1)
        borders = [
            at for first in range(0, self.count, EACH) for at in range(first, min(first + EACH, self.count), each)
        ]
        return np.diff([*borders, self.count])

    def spans_of(self, first, stop):
        assert first // EACH == (stop - 1) // EACH
        file, start = divmod(first, EACH)
        return [
            Span(f"{camera}{file}", start * ITEM, (start + stop - first) * ITEM, "") for camera in ("left", "right")
        ]

    def url_of(self, sample):
        return f"memory://pairs/left{sample // EACH}"


ORDERS = [
    *(False, True, ps.order.Lanes(), ps.order.Lanes(7, 2), ps.order.BlockShuffle(9, 3)),
    *(ps.order.Lanes(block_bytes=60, window_blocks=2), ps.order.Lanes(100, shuffle=False)),
]


@given(st.integers(1, 130), st.sampled_from(ORDERS))
@settings(max_examples=examples(100))
def test_each_sample_is_in_one_run_of_one_file(count, order):
    contents = Pairs(count)
    runs = ClipRuns(contents, fit_order(order, contents))
    numbers = runs.of(np.arange(count))
    assert numbers.tolist() == sorted(numbers.tolist())
    assert {*numbers.tolist()} == {*range(runs.count)}
    spans = [runs.spans(run) for run in range(runs.count)]
    assert [span for each in spans for span in each] == [*runs]
    assert sum(each[0].stop - each[0].start for each in spans) == count * ITEM
    batches = [[*range(at, min(at + 8, count))] for at in range(0, count, 8)]
    assert [*runs.used(batches)] == [*runs]
    limits = runs.limits(1, 0)
    assert limits.samples > 4096
    assert limits.chunk_bytes > 64 << 20


@pytest.fixture
def pairs():
    contents = Pairs(100)
    for file in range(3):
        for camera in ("left", "right"):
            data = b"".join(f"{camera[0]}{file * EACH + at:09}".encode() for at in range(EACH))
            with ps.open(f"memory://pairs/{camera}{file}", "wb") as out:
                out.write(data)
    return contents


def cut(sample, held):
    if sample == 17:
        raise Damaged("cannot decode")
    file, at = divmod(sample, EACH)
    return [bytes(held[f"{camera}{file}"].take(at * ITEM, at * ITEM + ITEM)) for camera in ("left", "right")]


@pytest.mark.parametrize("order", [CatalogOrder(), FullShuffle(), ps.order.Lanes(block_samples=9, window_blocks=2)])
def test_samples_are_made_of_the_bytes_of_all_files(pairs, order):
    batches = [[3, 99, 40], [41, 39, 0], [3, 98, 2]]
    reading = ClipReading(ClipRuns(pairs, order), batches, 1, cut, None)
    found = [*in_lists(reading)]
    assert found == [[[f"{side}{at:09}".encode() for side in "lr"] for at in batch] for batch in batches]
    assert not reading._known


def test_sample_that_cannot_be_made_is_named(pairs):
    reading = ClipReading(ClipRuns(pairs, CatalogOrder()), [[16, 17]], 1, cut, None)
    [[first, skipped]] = in_lists(reading, "skip")
    assert first[0] == b"l000000016"
    assert skipped.url == "memory://pairs/left0"
