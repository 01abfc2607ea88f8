"""Penstock's loader under a training whose steps take a little longer than decoding a batch: how busy is it kept?

MLPerf Storage's accelerator utilisation: the time computed (here slept) by all the time, without the first step.
"""

import time

from meter import Meter, in_threads
from ours import opened
from photos import decoded, path

import penstock as ps

LONGER = 1.1  # than the same threads need to decode a batch from the RAM disk, measured just before

meter = Meter()


def transform(sample):
    meter.check(sample.key, sample.data)
    return decoded(sample)


sample_keys = meter.keys[: 4 * meter.batch]
began = time.perf_counter()
in_threads(meter.threads, lambda keys: [decoded(path(meter, key)) for key in keys], sample_keys)
step_s = (time.perf_counter() - began) / len(sample_keys) * meter.batch * LONGER

dataset = opened(ps.IterableDataset, meter, shuffle=True, transform=transform)
batches = iter(ps.DataLoader(dataset, meter.batch, decode_threads=meter.threads))
next(batches)
time.sleep(step_s)
with meter:
    for _ in batches:
        meter.sleep(step_s)
