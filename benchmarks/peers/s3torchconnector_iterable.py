"""Amazon's iterable dataset, as documented."""

from amazon import opened
from meter import Meter
from s3torchconnector import S3IterableDataset

meter = Meter()
dataset = opened(S3IterableDataset, meter)
with meter:
    meter.consume((reader.key, reader.read()) for reader in dataset)
