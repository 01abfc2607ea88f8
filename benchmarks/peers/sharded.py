"""Parts that Penstock's peers over shards share: the catalog, made before the stopwatch, and the training loop."""

import time

from meter import BUCKET
from ours import ready

import penstock as ps


def shards(meter, kind="tar"):
    """Return the folder of the load, and a dataset of the samples in its tar or Parquet files."""
    prefix = meter.keys[0].rpartition("/")[0]
    names = sorted(each.name for each in meter.path(f"{prefix}/{kind}").glob(f"*.{kind}"))
    urls = [f"s3://{BUCKET}/{prefix}/{kind}/{name}" for name in names]
    return prefix, ps.MapDataset.from_shards(urls, store=ready(meter))


def train(meter, prefix, loader):
    """Iterate over an epoch, and note the seconds to the first batch."""
    began = time.perf_counter()
    for batch in loader:
        meter.told.setdefault("first_s", time.perf_counter() - began)
        for sample in batch:
            if "json" in sample:
                for each in map(sample.__getitem__, sample.fields):
                    meter.check(each.key, each.data)
            elif "image" in sample:
                meter.check(f"{prefix}/{sample['number']:06d}.bin", sample["image"].data)
            elif sample.fields:
                meter.check(f"{prefix}/{sample.key}.bin", sample["bin"].data)
            else:
                meter.check(sample.key, sample.data)
        meter.step()
    stats = loader.stats().total
    meter.told |= {"requests": stats.requests, "wire_bytes": stats.size_bytes}
