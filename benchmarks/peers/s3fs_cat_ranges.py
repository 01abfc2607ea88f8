"""s3fs: all ranges by one ``cat_ranges``."""

from fsspec3 import options
from meter import BUCKET, Meter
from s3fs import S3FileSystem

meter = Meter()
files = S3FileSystem(**options(meter, meter.batch))
with meter:
    ends = [meter.size(key) for key in meter.keys]
    bodies = files.cat_ranges([f"{BUCKET}/{key}" for key in meter.keys], [0] * len(ends), ends, on_error="raise")
    for key, body in zip(meter.keys, bodies, strict=True):
        meter.check(key, body)
