"""torch's distributed checkpoint through Penstock's reader, in its own layout, every byte verified; four ranks."""

from meter import BUCKET
from model import OURS
from ours import store
from ranks import load

from penstock.checkpoint.dcp import StorageReader

load(lambda meter: StorageReader(f"s3://{BUCKET}/{meter.layout(OURS)}", store=store(meter)))
