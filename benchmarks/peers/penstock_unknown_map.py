"""Penstock's map-style dataset, as in ``penstock_map``, over URLs: no object's size is known before it is read."""

from meter import Meter
from ours import unknown

import penstock as ps

meter = Meter()
dataset = unknown(ps.MapDataset, meter)
with meter:
    for batch in meter.batches(range(len(dataset))):
        for sample in dataset.__getitems__(batch):
            meter.check(sample.key, sample.data)
        meter.step()
