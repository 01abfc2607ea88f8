"""Penstock's load: a file that torch.save wrote, each tensor into its own memory."""

import torch  # noqa: F401  so that importing is not timed
from meter import BUCKET, Meter
from ours import store

import penstock as ps

meter = Meter()
(key,) = meter.keys
options, load = store(meter), ps.load
with meter:
    meter.check_tensors(load(f"s3://{BUCKET}/{key}", store=options))
