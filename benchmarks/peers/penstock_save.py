"""Penstock's save: what torch.save writes, straight to the store, digests included."""

import torch
from meter import BUCKET, WRITTEN, Meter
from ours import store

import penstock as ps

meter = Meter()
(key,) = meter.keys
options, save, state = store(meter), ps.save, torch.load(meter.path(key))
with meter:
    save(state, f"s3://{BUCKET}/{WRITTEN}{key}", store=options)
    meter.count(key)
