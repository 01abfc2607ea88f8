"""torch's distributed checkpoint through Penstock's reader, in its own layout, every byte verified; four ranks."""

from meter import BUCKET
from model import OURS
from ours import store
from penstock.checkpoint.dcp import StorageReader
from ranks import load

load(lambda meter: StorageReader(f"s3://{BUCKET}/{meter.layout(OURS)}", store=store(meter)))
