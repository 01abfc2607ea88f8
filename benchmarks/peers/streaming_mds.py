"""Mosaic's streaming as documented: its own shards, shuffled, through torch's loader; it copies them to local disk."""

import os
import tempfile
import time

from mds_layout import written
from meter import BUCKET, KEY, REGION, SECRET, Meter
from streaming import StreamingDataLoader, StreamingDataset

meter = Meter()
os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET, AWS_DEFAULT_REGION=REGION)
os.environ["S3_ENDPOINT_URL"] = meter.endpoint
prefix = meter.keys[0].rpartition("/")[0]
written(meter.path(prefix))
# Beside the objects, on the RAM disk: it goes when they go, however this process ends.
with tempfile.TemporaryDirectory(dir=meter.path("").parents[1]) as cache, meter:
    began = time.perf_counter()
    dataset = StreamingDataset(remote=f"s3://{BUCKET}/{prefix}/mds", local=cache, shuffle=True, batch_size=meter.batch)
    for batch in StreamingDataLoader(dataset, batch_size=meter.batch, collate_fn=list):
        meter.told.setdefault("first_s", time.perf_counter() - began)
        for each in batch:
            meter.check(f"{prefix}/{each['number']:06d}.bin", each["image"])
        meter.step()
