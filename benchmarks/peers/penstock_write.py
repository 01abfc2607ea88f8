"""Penstock's file: one large object from memory, in writes of 8 MiB, digests included."""

from meter import BUCKET, WRITTEN, Meter
from ours import store

import penstock as ps

_WRITE_BYTES = 8 << 20

meter = Meter()
(key,) = meter.keys
options, opened, body = store(meter), ps.open, memoryview(meter.source(key))  # naming it imports what it needs
with meter:
    with opened(f"s3://{BUCKET}/{WRITTEN}{key}", "wb", store=options) as file:
        for start in range(0, len(body), _WRITE_BYTES):
            file.write(body[start : start + _WRITE_BYTES])
    meter.count(key)
