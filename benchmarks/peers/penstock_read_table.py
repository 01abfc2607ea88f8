"""Penstock: pq.read_table over its file system of fsspec."""

from meter import Meter
from ours import ready
from tables import read

from penstock.interop.fsspec.schemes import kind_of

meter = Meter()
read(meter, kind_of("s3")(ready(meter)))
