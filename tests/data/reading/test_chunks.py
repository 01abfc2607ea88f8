"""Chunks are held from their first sample to their last; other tests are those of runs and of Zarr's readings."""

import numpy as np

import penstock as ps
from penstock.data.reading import runs
from penstock.data.reading.runs import fitted_order, runs_of
from tests.data.shards.archives import tar


def test_chunk_is_let_go_after_its_last_sample_and_read_once(tmp_path):
    (tmp_path / "a.tar").write_bytes(tar([(f"{at}.bin", bytes(1000)) for at in range(200)]))
    dataset = ps.MapDataset.from_shards(tmp_path / "a.tar")
    order = fitted_order(ps.order.BlockShuffle(block_bytes=20_000, window_blocks=2), dataset.catalog)
    reading = dataset.ordered(order).reading([[at] for at in range(200)], 1)
    held = 0
    for item in reading:
        item.make()
        held = max(held, len(reading._pending))
    assert held >= 1
    assert not reading._pending
    assert reading.counts.requests == len(runs_of(dataset.catalog, order).starts) - 1


def test_chunks_of_two_windows_are_read_once_while_chunks_are_decoded_ahead(tmp_path, monkeypatch):
    # Only the windows, and nothing beyond: as with windows of more than 64 MiB.
    monkeypatch.setattr(runs, "_AHEAD_BYTES", 0)
    (tmp_path / "a.tar").write_bytes(tar([(f"{at}.bin", bytes(1000 + at % 2000)) for at in range(2000)]))
    dataset = ps.MapDataset.from_shards(tmp_path / "a.tar")
    order = fitted_order(ps.order.Lanes(block_bytes=10_000, window_blocks=50), dataset.catalog)
    samples = order.epoch(2000, seed=0, epoch=0)(np.arange(2000)).tolist()
    reading = dataset.ordered(order).reading((samples[at : at + 32] for at in range(0, 2000, 32)), 1)
    for item in reading:
        item.make()
        while (chunk := reading.ahead()) is not None:
            chunk.make()
    assert reading.counts.requests == len(runs_of(dataset.catalog, order).starts) - 1


def test_next_window_is_requested_once_there_is_memory_for_it_and_not_when_it_is_due(tmp_path, monkeypatch):
    # Two windows of 100 blocks, and 40 blocks of the third.
    monkeypatch.setattr(runs, "_AHEAD_BYTES", 400_000)
    (tmp_path / "a.tar").write_bytes(tar([(f"{at}.bin", bytes(1000)) for at in range(6000)]))
    dataset = ps.MapDataset.from_shards(tmp_path / "a.tar")
    order = fitted_order(ps.order.Lanes(block_bytes=10_000, window_blocks=100), dataset.catalog)
    samples = order.epoch(6000, seed=0, epoch=0)(np.arange(6000)).tolist()
    reading = dataset.ordered(order).reading((samples[at : at + 32] for at in range(0, 6000, 32)), 1)
    for item in reading:
        item.make()
        for read in [*reading._ahead._reads]:
            reading._ahead._inbox.wait(read)
        while (chunk := reading.ahead()) is not None:
            chunk.make()
        if item.size:
            assert reading._ahead._reads or not reading._to_read, "chunks are known, and none is being read"


def _begun(folder):
    """Return a reading that has sent its first requests, and the number of chunks that its first batch needs."""
    (folder / "a.tar").write_bytes(tar([(f"{at}.bin", bytes(1000)) for at in range(2000)]))
    dataset = ps.MapDataset.from_shards(folder / "a.tar")
    order = fitted_order(ps.order.Lanes(block_bytes=10_000, window_blocks=100), dataset.catalog)
    samples = order.epoch(2000, seed=0, epoch=0)(np.arange(2000)).tolist()
    needed = len({*runs_of(dataset.catalog, order).of(np.array(samples[:20])).tolist()})
    reading = dataset.ordered(order).reading((samples[at : at + 20] for at in range(0, 2000, 20)), 1)
    reading.begin()
    return reading, needed


def test_first_batch_is_not_read_beside_the_rest_of_its_window(tmp_path):
    reading, needed = _begun(tmp_path)
    assert len(reading._ahead._reads) == needed < 21
    taken = 0
    while not (item := next(reading)).size or item.batch == 0:
        item.make()
        taken += not item.size
        # Once half of its chunks are there, so that the wire is not idle before the second batch.
        assert (len(reading._ahead._reads) + taken > needed) == (2 * taken >= needed)
    assert len(reading._ahead._reads) + taken > 3 * needed
    reading.close()


def test_chunks_of_the_first_batch_that_have_arrived_are_decoded_before_its_samples(tmp_path):
    reading, needed = _begun(tmp_path)
    for read in reading._ahead._reads:
        reading._ahead._inbox.wait(read)
    items = [next(reading) for _ in range(needed + 1)]
    assert [item.size for item in items] == [0] * needed + [20], "threads decode them at the same time"
    reading.close()
