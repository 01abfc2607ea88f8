"""A program of the steps that the README of mosaicml-streaming shows for reading; the import is changed."""

import os
from pathlib import Path

from torch.utils.data import DataLoader

from penstock.compat.streaming import StreamingDataLoader, StreamingDataset

# Remote path where full dataset is persistently stored
remote = os.environ.get("REMOTE", "s3://my-bucket/path-to-dataset")

# Local working dir where dataset is cached during operation
local = "path-to-dataset"

# Create streaming dataset
dataset = StreamingDataset(local=local, remote=remote, shuffle=True, batch_size=8)

# Let's see what is in sample #13...
sample = dataset[13]
img = sample["image"]
cls = sample["class"]
print(img.size, cls, Path(local).exists())


def collate(samples):
    return [each["class"] for each in samples]


# Create PyTorch DataLoader
dataloader = DataLoader(dataset, batch_size=8, num_workers=2, collate_fn=collate)
print(sum(len(batch) for batch in dataloader), len(dataset))

# Stop in the middle of an epoch, and go on
loader = StreamingDataLoader(dataset, batch_size=8, collate_fn=collate)
batches = iter(loader)
seen = next(batches) + next(batches)
state = loader.state_dict()
later = StreamingDataLoader(
    StreamingDataset(local=local, remote=remote, shuffle=True, batch_size=8), batch_size=8, collate_fn=collate
)
later.load_state_dict(state)
print(sorted(seen + [each for batch in later for each in batch]) == sorted(range(40)))
