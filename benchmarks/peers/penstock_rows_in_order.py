"""Penstock over rows of Parquet files, in the order of the files, as pyarrow reads them."""

from meter import Meter
from sharded import shards, train

import penstock as ps

meter = Meter()
prefix, dataset = shards(meter, "parquet")
with meter:
    train(meter, prefix, ps.DataLoader(dataset, meter.batch))
