"""Penstock over the same objects as two sources of a mixture, each permuted, through its loader."""

from meter import Meter
from ours import opened
from sharded import train

import penstock as ps

meter = Meter()
dataset = opened(ps.MapDataset, meter)
prefix = meter.keys[0].rpartition("/")[0]
half = len(dataset) // 2
mix = ps.Mix({"first": dataset[:half], "second": dataset[half:]})
with meter:
    train(meter, prefix, ps.DataLoader(mix, meter.batch, shuffle=True))
