"""Penstock over the same tar files as two sources of a mixture, each in blocks with half the window."""

from meter import Meter
from sharded import shards, train

import penstock as ps

meter = Meter()
prefix, dataset = shards(meter)
half = len(dataset) // 2
mix = ps.Mix({"first": dataset[:half], "second": dataset[half:]})
with meter:
    train(meter, prefix, ps.DataLoader(mix, meter.batch, shuffle=ps.order.Lanes(window_blocks=80)))
