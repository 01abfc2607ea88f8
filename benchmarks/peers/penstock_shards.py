"""Penstock over tar files: blocks of neighbours in one request, mixed in windows (``ps.order.Lanes``)."""

from meter import Meter
from sharded import shards, train

import penstock as ps

meter = Meter()
prefix, dataset = shards(meter)
with meter:
    train(meter, prefix, ps.DataLoader(dataset, meter.batch, shuffle=ps.order.Lanes()))
