"""torch's distributed checkpoint through its own reader over fsspec; four ranks."""

from fsspec3 import options
from meter import BUCKET
from model import TORCHS
from ranks import load
from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader

load(lambda meter: FsspecReader(f"s3://{BUCKET}/{meter.layout(TORCHS)}", **options(meter)))
