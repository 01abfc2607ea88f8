"""Parts of Penstock's peers that read one batch of many shards, from a saved index to the samples."""

import tempfile
import time
from pathlib import Path

from meter import BUCKET
from ours import ready
from sharded import shards

import penstock as ps


def read(meter, *, resumes):
    """Note the seconds to the first batch of an epoch, or to the next one at its middle; compare its samples."""
    prefix, dataset = shards(meter)
    meter.after = lambda: [meter.count(key) for key in meter.keys if key not in found]
    found = set()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shards.catalog"
        dataset.catalog.save(path)
        with meter:
            began = time.perf_counter()
            catalog = ps.Catalog.open(path, root=f"s3://{BUCKET}/{prefix}/tar/")
            loader = ps.DataLoader(ps.MapDataset(catalog, store=ready(meter)), meter.batch, shuffle=ps.order.Lanes())
            if resumes:
                state = loader.state_dict()
                loader.load_state_dict(state | {"position": state["samples"] // 2 // meter.batch * meter.batch})
            batch = next(iter(loader))
            meter.told["first_s"] = time.perf_counter() - began
            for sample in batch:
                found.add(key := f"{prefix}/{sample.key}.bin")
                meter.check(key, sample["bin"].data)
