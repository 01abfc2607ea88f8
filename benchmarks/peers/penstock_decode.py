"""Penstock's loader without worker processes: objects arrive on the I/O thread, threads decode and collate."""

from meter import Meter
from ours import opened
from photos import decoded

import penstock as ps

meter = Meter()


def transform(sample):
    meter.check(sample.key, sample.data)
    return decoded(sample)


dataset = opened(ps.IterableDataset, meter, shuffle=True, transform=transform)
loader = ps.DataLoader(dataset, meter.batch, decode_threads=meter.threads)
with meter:
    for _ in loader:
        pass
