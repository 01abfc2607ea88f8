"""Amazon's checkpoint reader under torch.load."""

import torch
from amazon import OPTIONS
from meter import BUCKET, Meter
from s3torchconnector import S3Checkpoint

meter = Meter()
(key,) = meter.keys
checkpoint = S3Checkpoint(endpoint=meter.endpoint, **OPTIONS)
with meter, checkpoint.reader(f"s3://{BUCKET}/{key}") as file:
    meter.check_tensors(torch.load(file))
