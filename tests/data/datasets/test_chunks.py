"""Chunks are held from their first sample to their last; other tests are those of runs and of Zarr's readings."""

import penstock as ps
from penstock.data.datasets.runs import fitted_order, runs_of
from tests.data.shards.archives import tar


def test_chunk_is_let_go_after_its_last_sample_and_read_once(tmp_path):
    (tmp_path / "a.tar").write_bytes(tar([(f"{at}.bin", bytes(1000)) for at in range(200)]))
    dataset = ps.MapDataset.from_shards(tmp_path / "a.tar")
    order = fitted_order(ps.BlockShuffle(block_bytes=20_000, window_blocks=2), dataset.catalog)
    reading = dataset.ordered(order).reading([[at] for at in range(200)], 1)
    held = 0
    for item in reading:
        item.make()
        held = max(held, len(reading._pending))
    assert held >= 1
    assert not reading._pending
    assert reading.counts.requests == len(runs_of(dataset.catalog, order).starts) - 1
