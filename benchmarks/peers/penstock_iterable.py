"""Penstock's iterable dataset, shuffled, reading ahead."""

from meter import Meter
from ours import opened

import penstock as ps

meter = Meter()
dataset = opened(ps.IterableDataset, meter, shuffle=True)
with meter:
    meter.consume((sample.key, sample.data) for sample in dataset)
