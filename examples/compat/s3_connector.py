"""Amazon's S3 connector on MinIO: iterable datasets and checkpoints; the import is changed, and nothing else."""

import os

import torch
from torch.utils.data import DataLoader

from penstock.compat.s3torchconnector import S3Checkpoint, S3ClientConfig, S3Exception, S3IterableDataset

URI = "s3://mnist/train"
CHECKPOINT_URI = "s3://mnist/checkpoints/epoch0.ckpt"
REGION = os.environ["AWS_REGION"]


def key(s3object):
    return s3object.key


iterable_dataset = S3IterableDataset.from_prefix(URI, region=REGION)
for item in iterable_dataset:
    print(item.bucket, item.key, len(item.read()))

# Each worker reads its own part.
sharded = S3IterableDataset.from_prefix(URI, region=REGION, transform=key, enable_sharding=True)
keys = [each for batch in DataLoader(sharded, batch_size=16, num_workers=2) for each in batch]
print(f"{len(keys)} objects, {len(set(keys))} of them different")

model = torch.nn.Linear(10, 2)
checkpoint = S3Checkpoint(region=REGION, s3client_config=S3ClientConfig(force_path_style=True))
with checkpoint.writer(CHECKPOINT_URI) as writer:
    torch.save(model.state_dict(), writer)
with checkpoint.reader(CHECKPOINT_URI) as reader:
    state_dict = torch.load(reader, weights_only=True)
model.load_state_dict(state_dict)
print("loaded", sorted(state_dict))

try:
    checkpoint.reader("s3://mnist/checkpoints/none").read()
except S3Exception as error:
    print("no such object:", type(error).__name__)
