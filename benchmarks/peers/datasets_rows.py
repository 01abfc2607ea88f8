"""datasets over rows of Parquet files, as documented: streamed over http, with a buffer of 1,000 rows."""

import time

from datasets import load_dataset
from meter import BUCKET, Meter

meter = Meter()
prefix = meter.keys[0].rpartition("/")[0]
names = sorted(each.name for each in meter.path(f"{prefix}/parquet").glob("*.parquet"))
urls = [f"{meter.endpoint}/{BUCKET}/{prefix}/parquet/{name}" for name in names]
# Images stay bytes: nobody decodes here.
dataset = load_dataset("parquet", data_files={"train": urls}, split="train", streaming=True).decode(enable=False)
dataset = dataset.shuffle(seed=1, buffer_size=1000)
with meter:
    began = time.perf_counter()
    for number, row in enumerate(dataset, 1):
        meter.check(f"{prefix}/{row['number']:06d}.bin", row["image"]["bytes"])
        if number % meter.batch == 0:
            meter.told.setdefault("first_s", time.perf_counter() - began)
            meter.step()
