"""Penstock: all ranges by one ``cat_ranges`` of its file system of fsspec."""

from meter import BUCKET, Meter
from ours import store

from penstock.interop.fsspec.schemes import kind_of

meter = Meter()
files = kind_of("s3")(store(meter))
with meter:
    ends = [meter.size(key) for key in meter.keys]
    bodies = files.cat_ranges([f"{BUCKET}/{key}" for key in meter.keys], 0, ends, on_error="raise")
    for key, body in zip(meter.keys, bodies, strict=True):
        meter.check(key, body)
