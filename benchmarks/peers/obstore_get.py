"""obstore's get: one large object into memory."""

from meter import Meter
from objectstore import store

meter = Meter()
(key,) = meter.keys
bucket = store(meter)
with meter:
    meter.check_big(key, bucket.get(key).bytes())
