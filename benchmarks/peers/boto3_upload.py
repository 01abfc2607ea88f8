"""boto3's upload_fileobj: one large object from memory, in parts from ten threads."""

import io

from boto import client
from meter import BUCKET, WRITTEN, Meter

meter = Meter()
(key,) = meter.keys
s3, body = client(meter), meter.source(key)
with meter:
    s3.upload_fileobj(io.BytesIO(body), BUCKET, WRITTEN + key)
    meter.count(key)
