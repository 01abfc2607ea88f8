"""Amazon's checkpoint reader: one large object into memory."""

from amazon import OPTIONS
from meter import BUCKET, Meter
from s3torchconnector import S3Checkpoint

meter = Meter()
(key,) = meter.keys
checkpoint = S3Checkpoint(endpoint=meter.endpoint, **OPTIONS)
with meter, checkpoint.reader(f"s3://{BUCKET}/{key}") as file:
    meter.check_big(key, file.read())
