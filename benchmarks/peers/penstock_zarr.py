"""Penstock's Store under zarr: an array read whole."""

from chunked import whole
from meter import BUCKET
from ours import store

from penstock.interop.zarr import Store

whole(lambda meter, name: Store(f"s3://{BUCKET}/{name}", store=store(meter), read_only=True))
