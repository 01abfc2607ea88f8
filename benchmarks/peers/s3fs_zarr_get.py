"""s3fs under zarr's FsspecStore: the chunks of an array, as zarr asks for them."""

from chunked import gets
from fsspec3 import options
from meter import BUCKET
from zarr.storage import FsspecStore


def made(meter, name):
    return FsspecStore.from_url(f"s3://{BUCKET}/{name}", storage_options=options(meter, meter.threads), read_only=True)


gets(made)
