"""Parts that peers over tokens share: the dataset, the training loop, and a comparison of every window."""

import time

import numpy as np
from meter import BUCKET
from ours import ready

import penstock as ps

LENGTH = 2048
_SAMPLED = 64  # tokens between two of a window that are compared


def train(meter, **options):
    """Iterate over an epoch of windows in lanes; afterwards, compare with the files that each window came once."""
    urls = [f"s3://{BUCKET}/{key}" for key in meter.keys]
    known = {"length": LENGTH, "dtype": "uint16", "format": "raw"}
    dataset = ps.TokenDataset.from_shards(urls, **known, store=ready(meter), **options)
    found = []
    meter.after = lambda: compare(meter, found)
    with meter:
        loader = ps.DataLoader(dataset, meter.batch, shuffle=ps.order.Lanes())
        began = time.perf_counter()
        for batch in loader:
            meter.told.setdefault("first_s", time.perf_counter() - began)
            found.append(np.array(batch[:, ::_SAMPLED], dtype=np.uint16))
            meter.step()
        stats = loader.stats().total
        meter.told |= {"requests": stats.requests, "wire_bytes": stats.size_bytes}


def compare(meter, found):
    """Compare the sampled tokens of all windows with those of the files, and count the files."""
    files = [np.fromfile(meter.path(key), np.uint16).reshape(-1, LENGTH)[:, ::_SAMPLED] for key in meter.keys]
    ours, theirs = (sorted(map(bytes, np.concatenate(each))) for each in (found, files))
    if ours != theirs:
        raise SystemExit("the windows are not those of the files, each once")
    for key in meter.keys:
        meter.count(key)
