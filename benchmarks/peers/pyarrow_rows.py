"""pyarrow over rows of local Parquet files, as documented: batches as lists of dicts, in the order of the files."""

import time

import pyarrow.parquet as pq
from meter import Meter

meter = Meter()
prefix = meter.keys[0].rpartition("/")[0]
paths = sorted(meter.path(f"{prefix}/parquet").glob("*.parquet"))
with meter:
    began = time.perf_counter()
    for path in paths:
        for batch in pq.ParquetFile(path).iter_batches(meter.batch):
            rows = batch.to_pylist()
            meter.told.setdefault("first_s", time.perf_counter() - began)
            for row in rows:
                meter.check(f"{prefix}/{row['image']['path']}", row["image"]["bytes"])
            meter.step()
