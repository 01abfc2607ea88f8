"""Penstock's manager: a step saved with a digest of each MiB, and committed."""

import torch
from meter import BUCKET, WRITTEN, Meter
from model import RUN, STEP
from ours import store

import penstock as ps

meter = Meter()
(key,) = meter.keys
manager = ps.CheckpointManager(f"s3://{BUCKET}/{WRITTEN}{meter.layout(RUN)}/", store=store(meter))
state = torch.load(meter.path(key))
with meter:
    manager.save(STEP, state)
    meter.count(key)
