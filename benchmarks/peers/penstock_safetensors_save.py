"""Penstock's save of safetensors, digests included."""

import torch
from meter import BUCKET, WRITTEN, Meter
from model import SAFETENSORS
from ours import store

import penstock as ps

meter = Meter()
(key,) = meter.keys
options, save, state = store(meter), ps.save_safetensors, torch.load(meter.path(key))
with meter:
    save(state, f"s3://{BUCKET}/{WRITTEN}{meter.layout(SAFETENSORS)}", store=options)
    meter.count(key)
