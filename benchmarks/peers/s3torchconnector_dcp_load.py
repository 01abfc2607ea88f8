"""torch's distributed checkpoint through Amazon's reader, in torch's layout, which is its own; four ranks."""

from amazon import storage
from meter import BUCKET
from model import TORCHS
from ranks import load
from s3torchconnector.dcp import S3StorageReader

load(lambda meter: storage(S3StorageReader, meter, f"s3://{BUCKET}/{meter.layout(TORCHS)}"))
