"""torch.save into Amazon's checkpoint writer."""

import torch
from amazon import OPTIONS
from meter import BUCKET, WRITTEN, Meter
from s3torchconnector import S3Checkpoint

meter = Meter()
(key,) = meter.keys
state = torch.load(meter.path(key))
checkpoint = S3Checkpoint(endpoint=meter.endpoint, **OPTIONS)
with meter:
    with checkpoint.writer(f"s3://{BUCKET}/{WRITTEN}{key}") as file:
        torch.save(state, file)
    meter.count(key)
