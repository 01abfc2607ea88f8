"""Penstock's Store under zarr: the chunks of an array, as zarr asks for them."""

from chunked import gets
from meter import BUCKET
from ours import store

from penstock.interop.zarr import Store

gets(lambda meter, name: Store(f"s3://{BUCKET}/{name}", store=store(meter), read_only=True))
