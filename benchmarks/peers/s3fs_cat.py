"""s3fs: batches through ``cat``, which reads a batch's objects at once."""

from meter import BUCKET, KEY, REGION, SECRET, Meter
from s3fs import S3FileSystem

meter = Meter()
files = S3FileSystem(
    key=KEY,
    secret=SECRET,
    endpoint_url=meter.endpoint,
    client_kwargs={"region_name": REGION},
    config_kwargs={"s3": {"addressing_style": "path"}, "max_pool_connections": meter.batch},
)
with meter:
    for batch in meter.batches(meter.keys):
        bodies = files.cat([f"{BUCKET}/{key}" for key in batch])
        for key in batch:
            meter.check(key, bodies[f"{BUCKET}/{key}"])
