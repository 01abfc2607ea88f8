"""Penstock's map-style dataset: batches through ``__getitems__``, as a DataLoader asks for them."""

from meter import Meter
from ours import opened

import penstock as ps

meter = Meter()
dataset = opened(ps.MapDataset, meter)
with meter:
    for batch in meter.batches(range(len(dataset))):
        for sample in dataset.__getitems__(batch):
            meter.check(sample.key, sample.data)
        meter.step()
