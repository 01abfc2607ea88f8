"""Penstock's file: one large object into memory."""

from meter import BUCKET, Meter
from ours import store

import penstock as ps

meter = Meter()
(key,) = meter.keys
options, opened = store(meter), ps.open  # naming it imports what it needs
with meter, opened(f"s3://{BUCKET}/{key}", store=options) as file:
    meter.check_big(key, file.read())
