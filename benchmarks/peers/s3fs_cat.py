"""s3fs: batches through ``cat``, which reads a batch's objects at once."""

from fsspec3 import options
from meter import BUCKET, Meter
from s3fs import S3FileSystem

meter = Meter()
files = S3FileSystem(**options(meter, meter.batch))
with meter:
    for batch in meter.batches(meter.keys):
        bodies = files.cat([f"{BUCKET}/{key}" for key in batch])
        for key in batch:
            meter.check(key, bodies[f"{BUCKET}/{key}"])
