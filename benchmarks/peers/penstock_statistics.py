"""Statistics of an array: each chunk read and decoded once, as often as an epoch reads it."""

import time

import numpy as np
import zarr
from epochs import EPOCHS, opened
from meter import BUCKET
from ours import store

from penstock import ZarrDataset  # with torch: not timed

meter, name = opened()
dataset = ZarrDataset({"fields": f"s3://{BUCKET}/{name}"}, store=store(meter))
found = []


def compare():
    values = zarr.open_array(meter.path(name), mode="r")
    blocks = [values[at : at + 64].astype("f8") for at in range(0, values.shape[0], 64)]
    mean = sum(map(np.sum, blocks)) / values.size
    std = (sum(((each - mean) ** 2).sum() for each in blocks) / values.size) ** 0.5
    for each in found:
        if each.count != values.size or not np.allclose([each.mean, each.std], [mean, std], rtol=1e-11):
            raise SystemExit(f"not the statistics of the array: {each}, and not {mean}, {std}")


with meter:
    meter.epochs = meter.told["epochs"] = EPOCHS
    meter.after = compare
    for _ in range(EPOCHS):
        found.append(dataset.statistics()["fields"])
        meter.told.setdefault("first_s", time.perf_counter() - meter.began)
        for key in meter.keys:
            meter.count(key)
