"""obstore's get: one large object into memory."""

from meter import BUCKET, KEY, REGION, SECRET, Meter
from obstore.store import S3Store

meter = Meter()
(key,) = meter.keys
store = S3Store(
    BUCKET,
    endpoint=meter.endpoint,
    region=REGION,
    access_key_id=KEY,
    secret_access_key=SECRET,
    virtual_hosted_style_request=False,
    client_options={"allow_http": True, "allow_invalid_certificates": True},  # it takes no CA file
)
with meter:
    meter.check_big(key, store.get(key).bytes())
