"""s3fs: pq.read_table over its file system."""

from fsspec3 import options
from meter import Meter
from s3fs import S3FileSystem
from tables import read

meter = Meter()
read(meter, S3FileSystem(**options(meter)))
