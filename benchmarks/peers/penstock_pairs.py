"""Penstock over pairs of objects: both are one sample."""

from meter import Meter
from ours import opened, ready
from sharded import train

import penstock as ps

meter = Meter()
catalog = opened(ps.MapDataset, meter).catalog.with_groups("stem")
dataset = ps.MapDataset(catalog, store=ready(meter))
with meter:
    train(meter, "", ps.DataLoader(dataset, meter.batch, shuffle=True))
