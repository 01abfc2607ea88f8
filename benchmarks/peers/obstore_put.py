"""obstore's multipart put: one large object from memory, parts and their number in flight as it chooses."""

from meter import WRITTEN, Meter
from objectstore import store

meter = Meter()
(key,) = meter.keys
bucket, body = store(meter), meter.source(key)
with meter:
    bucket.put(WRITTEN + key, body, use_multipart=True)
    meter.count(key)
