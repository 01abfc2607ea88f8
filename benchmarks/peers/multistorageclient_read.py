"""NVIDIA's multi-storage-client with its Rust client, from as many threads as its user starts."""

import os

from meter import BUCKET, KEY, REGION, SECRET, Meter, in_threads
from multistorageclient import StorageClient, StorageClientConfig

os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET)
meter = Meter()
options = {
    "base_path": BUCKET,
    "endpoint_url": meter.endpoint,
    "region_name": REGION,
    "rust_client": {"allow_http": True},
}
profile = {"storage_provider": {"type": "s3", "options": options}}
client = StorageClient(StorageClientConfig.from_dict({"profiles": {"bench": profile}}, profile="bench"))


def read(keys):
    for key in keys:
        meter.check(key, client.read(key))


with meter:
    in_threads(meter.threads, read, meter.keys)
