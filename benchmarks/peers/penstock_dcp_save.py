"""torch's distributed checkpoint through Penstock's writer, from one process, digests included."""

import torch
import torch.distributed.checkpoint as dcp
from meter import BUCKET, WRITTEN, Meter
from model import OURS
from ours import store

from penstock.checkpoint.dcp import StorageWriter

meter = Meter()
(key,) = meter.keys
state = torch.load(meter.path(key))
writer = StorageWriter(f"s3://{BUCKET}/{WRITTEN}{meter.layout(OURS)}", store=store(meter))
with meter:
    dcp.save(state, storage_writer=writer, no_dist=True)
    meter.count(key)
