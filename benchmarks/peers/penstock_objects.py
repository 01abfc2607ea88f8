"""Penstock over the same samples as plain objects, permuted, through its loader."""

from meter import Meter
from ours import opened
from sharded import train

import penstock as ps

meter = Meter()
dataset = opened(ps.MapDataset, meter)
prefix = meter.keys[0].rpartition("/")[0]
with meter:
    train(meter, prefix, ps.DataLoader(dataset, meter.batch, shuffle=True))
