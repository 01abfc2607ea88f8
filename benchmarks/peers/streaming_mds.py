"""Mosaic's streaming as documented: its own shards, shuffled, through torch's loader; it copies them to local disk."""

import os
import sys
import tempfile
import time
from importlib.machinery import ModuleSpec
from types import ModuleType

from mds_layout import written
from meter import BUCKET, KEY, REGION, SECRET, Meter

try:
    import torchvision  # noqa: F401
except RuntimeError:
    # PyPI's wheel does not load beside a torch without CUDA. Only datasets of images need it, of which none is read.
    for name in ("", ".datasets", ".transforms", ".transforms.functional"):
        module = sys.modules[f"torchvision{name}"] = ModuleType(f"torchvision{name}")
        module.__spec__, module.VisionDataset, module.to_tensor = ModuleSpec(module.__name__, None), object, None
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
