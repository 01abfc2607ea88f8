"""Penstock's manager: a step restored, every byte verified."""

import torch  # noqa: F401  so that importing is not timed
from meter import BUCKET, Meter
from model import RUN, STEP
from ours import store

import penstock as ps

meter = Meter()
manager = ps.CheckpointManager(f"s3://{BUCKET}/{meter.layout(RUN)}/", store=store(meter))
with meter:
    meter.check_tensors(manager.restore(STEP))
