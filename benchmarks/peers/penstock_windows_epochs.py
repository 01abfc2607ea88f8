"""Penstock's data set over an array, mixing no more chunks at a time than the peers do."""

from math import prod

from epochs import BATCH, WINDOW, consume, document, opened
from meter import BUCKET
from ours import import_late, store

from penstock import DataLoader, ZarrDataset  # with torch: neither is timed

import_late()
meter, name = opened()
metadata = document(meter, name)
inner = metadata["codecs"][0] if metadata["codecs"][0]["name"] == "sharding_indexed" else metadata["chunk_grid"]
window_bytes = WINDOW * prod(inner["configuration"]["chunk_shape"]) * 4
dataset = ZarrDataset(f"s3://{BUCKET}/{name}", shuffle=True, window_bytes=window_bytes, store=store(meter))
loader = DataLoader(dataset, BATCH)
consume(meter, ((batch.numpy() for batch in loader) for _ in iter(int, 1)))
