"""How obstore's peers open what they read or write: signed requests and path addressing."""

from meter import BUCKET, KEY, REGION, SECRET
from obstore.store import S3Store


def store(meter, prefix=None):
    return S3Store(
        BUCKET,
        prefix=prefix,
        endpoint=meter.endpoint,
        region=REGION,
        access_key_id=KEY,
        secret_access_key=SECRET,
        virtual_hosted_style_request=False,
        client_options={"allow_http": True, "allow_invalid_certificates": True},  # it takes no CA file
    )
