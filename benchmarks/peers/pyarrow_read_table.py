"""pyarrow's own S3: pq.read_table over ``pyarrow.fs.S3FileSystem``."""

from meter import KEY, REGION, SECRET, Meter
from pyarrow.fs import S3FileSystem
from tables import read

meter = Meter()
scheme, _, host = meter.endpoint.partition("://")
read(meter, S3FileSystem(access_key=KEY, secret_key=SECRET, region=REGION, scheme=scheme, endpoint_override=host))
