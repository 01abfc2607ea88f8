"""Penstock's data set over an array, chunks shuffled within windows, in batches of torch tensors."""

from epochs import BATCH, consume, opened
from meter import BUCKET
from ours import import_late, store

from penstock import DataLoader, ZarrDataset  # with torch: neither is timed

import_late()
meter, name = opened()
dataset = ZarrDataset(f"s3://{BUCKET}/{name}", shuffle=True, store=store(meter))
loader = DataLoader(dataset, BATCH)
consume(meter, ((batch.numpy() for batch in loader) for _ in iter(int, 1)))
