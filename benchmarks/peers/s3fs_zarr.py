"""s3fs under zarr's FsspecStore: an array read whole."""

from chunked import whole
from fsspec3 import options
from meter import BUCKET
from zarr.storage import FsspecStore


def made(meter, name):
    return FsspecStore.from_url(f"s3://{BUCKET}/{name}", storage_options=options(meter, meter.threads), read_only=True)


whole(made)
