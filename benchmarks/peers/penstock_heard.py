"""Penstock's map-style dataset, as in ``penstock_map``, while a listener that does nothing hears every event."""

from meter import Meter
from ours import opened

import penstock as ps
from penstock.events import subscribe

meter = Meter()
dataset = opened(ps.MapDataset, meter)
subscribe(lambda _event: None)
with meter:
    for batch in meter.batches(range(len(dataset))):
        for sample in dataset.__getitems__(batch):
            meter.check(sample.key, sample.data)
