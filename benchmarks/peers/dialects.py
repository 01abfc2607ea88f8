"""Penstock's map-style dataset in each store's dialect: the load server takes all of them, and checks no credentials.

What comes back is held to its version as on the store itself: by the ETag, or by Google's generation, which the server
says again.
"""

from meter import BUCKET, KEY, REGION, SECRET, Meter

import penstock as ps

_KEYS = {"access_key": KEY, "secret_key": SECRET}
_WAYS = {
    "gcs_keys": ("gs://{bucket}/", ps.GCSOptions, _KEYS),
    "gcs_token": ("gs://{bucket}/", ps.GCSOptions, {"token": SECRET}),
    "oss": ("oss://{bucket}/", ps.OSSOptions, {"region": REGION, **_KEYS}),
    "azure_key": ("az://{bucket}/", ps.AzureOptions, {"account": "bench", "account_key": "c2VjcmV0"}),
    "azure_token": ("az://{bucket}/", ps.AzureOptions, {"account": "bench", "token": SECRET}),
    "web": ("{endpoint}/{bucket}/", ps.HTTPOptions, {}),
}


def read(way):
    """Read all of the task's objects in batches, and check them."""
    meter = Meter()
    url, kind, own = _WAYS[way]
    own = own if way == "web" else {**own, "endpoint": meter.endpoint}
    store = kind(**own, transport=ps.TransportOptions(connections=256, ca_file=meter.ca))
    base = url.format(bucket=BUCKET, endpoint=meter.endpoint)
    dataset = ps.MapDataset.from_manifest(meter.manifest, base=base, store=store)
    with meter:
        for batch in meter.batches(range(len(dataset))):
            for sample in dataset.__getitems__(batch):
                meter.check(sample.key.partition(f"{BUCKET}/")[2] if way == "web" else sample.key, sample.data)
            meter.step()
