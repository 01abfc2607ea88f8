"""torch's distributed checkpoint through Amazon's writer, from one process."""

import torch
import torch.distributed.checkpoint as dcp
from amazon import storage
from meter import BUCKET, WRITTEN, Meter
from model import TORCHS
from s3torchconnector.dcp import S3StorageWriter

meter = Meter()
(key,) = meter.keys
state = torch.load(meter.path(key))
writer = storage(S3StorageWriter, meter, f"s3://{BUCKET}/{WRITTEN}{meter.layout(TORCHS)}")
with meter:
    dcp.save(state, storage_writer=writer, no_dist=True)
    meter.count(key)
