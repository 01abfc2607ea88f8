"""torch's distributed checkpoint through its own writer over fsspec, from one process."""

import torch
import torch.distributed.checkpoint as dcp
from fsspec3 import options
from meter import BUCKET, WRITTEN, Meter
from model import TORCHS
from torch.distributed.checkpoint._fsspec_filesystem import FsspecWriter

meter = Meter()
(key,) = meter.keys
state = torch.load(meter.path(key))
path = f"s3://{BUCKET}/{WRITTEN}{meter.layout(TORCHS)}"
writer = FsspecWriter(path, sync_files=False, **options(meter))  # there is no file to sync, and s3fs would refuse
with meter:
    dcp.save(state, storage_writer=writer, no_dist=True)
    meter.count(key)
