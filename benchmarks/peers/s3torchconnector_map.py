"""Amazon's map-style dataset, as documented, one object after another; or from several threads."""

from amazon import opened
from meter import Meter, in_threads
from s3torchconnector import S3MapDataset

meter = Meter()
dataset = opened(S3MapDataset, meter)


def read(indices):
    for index in indices:
        reader = dataset[index]
        meter.check(reader.key, reader.read())


with meter:
    if meter.threads > 1:
        in_threads(meter.threads, read, range(len(dataset)))
    else:
        read(range(len(dataset)))
