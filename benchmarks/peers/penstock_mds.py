"""Penstock over Mosaic's MDS: blocks of neighbours in one request, mixed in windows (``ps.order.Lanes``); no local
disk."""

from mds_layout import written
from meter import BUCKET, Meter
from ours import ready
from sharded import train

import penstock as ps

meter = Meter()
prefix = meter.keys[0].rpartition("/")[0]
written(meter.path(prefix))
dataset = ps.MapDataset.from_shards(f"s3://{BUCKET}/{prefix}/mds/index.json", store=ready(meter))
with meter:
    train(meter, prefix, ps.DataLoader(dataset, meter.batch, shuffle=ps.order.Lanes()))
