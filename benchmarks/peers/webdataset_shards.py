"""WebDataset as documented: shards over http, shuffled, with a buffer of 1,000 samples."""

import time

import webdataset as wds
from meter import BUCKET, Meter

meter = Meter()
prefix = meter.keys[0].rpartition("/")[0]
count = len(list(meter.path(f"{prefix}/tar").glob("*.tar")))
url = f"{meter.endpoint}/{BUCKET}/{prefix}/tar/{{00000..{count - 1:05d}}}.tar"
dataset = wds.WebDataset(url, shardshuffle=count, nodesplitter=wds.split_by_node, empty_check=False)
dataset = dataset.shuffle(1000).to_tuple("__key__", "bin", "cls").batched(meter.batch, collation_fn=list)
with meter:
    began = time.perf_counter()
    for batch in wds.WebLoader(dataset, batch_size=None):
        meter.told.setdefault("first_s", time.perf_counter() - began)
        for key, body, _ in batch:
            meter.check(f"{prefix}/{key}.bin", body)
        meter.step()
