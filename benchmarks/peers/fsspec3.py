"""How s3fs's peers open what they read or write: signed requests and path addressing."""

from meter import KEY, REGION, SECRET


def options(meter, connections=10):
    return {
        "key": KEY,
        "secret": SECRET,
        "endpoint_url": meter.endpoint,
        "client_kwargs": {"region_name": REGION},
        "config_kwargs": {"s3": {"addressing_style": "path"}, "max_pool_connections": connections},
    }
