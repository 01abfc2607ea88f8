"""Penstock's iterable dataset, as in ``penstock_iterable``, over URLs: no object's size is known before it is read."""

from meter import Meter
from ours import unknown

import penstock as ps

meter = Meter()
dataset = unknown(ps.IterableDataset, meter, shuffle=True)
with meter:
    meter.consume((sample.key, sample.data) for sample in dataset)
