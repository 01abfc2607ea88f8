"""What a shuffled order costs: its first batch where a job resumes, then each sample; making the order included."""

import itertools
import json
import sys
import time

import numpy as np
from meter import memory

from penstock.data.order.block_permutation import BlockPermutation
from penstock.data.order.sampling import Partition
from penstock.data.order.shuffle import Permutation
from penstock.values import Place

BATCH, AT_ONCE, MEASURED = 256, 4096, 1_000_000
task = json.loads(sys.argv[1])
samples = task["samples"]
sizes = np.full(samples // task["block"], task["block"]) if "block" in task else None  # the catalog's, so not timed


def order(epoch):
    return Permutation(samples, 0, epoch) if sizes is None else BlockPermutation(sizes, 0, epoch)


before = memory("VmRSS")
began = time.perf_counter()
start, stop = next(iter(Partition(total=samples, batch=BATCH, place=Place(), start=samples * 9 // 10)))
first = order(0).block(start, stop)
first_s = time.perf_counter() - began

each = min(samples, MEASURED)  # of an epoch, from its middle on where there is more
start = (samples - each) // 2
began = time.perf_counter()
for epoch in range(1, 1 + MEASURED // each):
    shuffled = order(epoch)
    for at, end in itertools.pairwise([*range(start, start + each, AT_ONCE), start + each]):
        shuffled.block(at, end)
sample_us = (time.perf_counter() - began) / MEASURED * 1e6
assert len(set(first.tolist())) == BATCH
print(json.dumps({"sample_us": sample_us, "first_s": first_s, "beyond_mib": (memory("VmHWM") - before) / (1 << 20)}))
