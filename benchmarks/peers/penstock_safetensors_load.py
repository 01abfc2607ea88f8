"""Penstock's load of safetensors: each tensor into its own memory, every byte verified."""

import torch  # noqa: F401  so that importing is not timed
from meter import BUCKET, Meter
from model import SAFETENSORS
from ours import store

import penstock as ps

meter = Meter()
options, load = store(meter), ps.load_safetensors
with meter:
    meter.check_tensors(load(f"s3://{BUCKET}/{meter.layout(SAFETENSORS)}", store=options))
