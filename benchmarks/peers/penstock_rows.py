"""Penstock over rows of Parquet files: row groups read and decoded once, and as many rows mixed as datasets does."""

from meter import Meter
from sharded import shards, train

import penstock as ps

ORDER = ps.order.Lanes(block_bytes=1 << 20, window_blocks=70)  # 1,000 rows of 70 KB

meter = Meter()
prefix, dataset = shards(meter, "parquet")
with meter:
    train(meter, prefix, ps.DataLoader(dataset, meter.batch, shuffle=ORDER))
