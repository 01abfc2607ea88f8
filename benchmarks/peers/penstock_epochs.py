"""Penstock's data set over an array, chunks shuffled within windows, in batches of torch tensors."""

from epochs import BATCH, consume, opened
from meter import BUCKET
from ours import store

import penstock as ps

meter, name = opened()
dataset = ps.ZarrDataset(f"s3://{BUCKET}/{name}", shuffle=True, store=store(meter))
loader = ps.DataLoader(dataset, BATCH)
consume(meter, ((batch.numpy() for batch in loader) for _ in iter(int, 1)))
