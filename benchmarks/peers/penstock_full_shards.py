"""Penstock over tar files: a full permutation, one request a sample."""

from meter import Meter
from sharded import shards, train

import penstock as ps

meter = Meter()
prefix, dataset = shards(meter)
with meter:
    train(meter, prefix, ps.DataLoader(dataset, meter.batch, shuffle=True))
