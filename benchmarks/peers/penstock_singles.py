"""Penstock over the objects of pairs one by one: as many requests and bytes in batches of as many objects."""

from meter import Meter
from ours import opened
from sharded import train

import penstock as ps

meter = Meter()
dataset = opened(ps.MapDataset, meter)
with meter:
    train(meter, "", ps.DataLoader(dataset, 2 * meter.batch, shuffle=True))
