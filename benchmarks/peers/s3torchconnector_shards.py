"""Amazon's connector as documented for archives: sequential readers, and tarfile over them."""

import tarfile

from amazon import OPTIONS
from meter import BUCKET, Meter
from s3torchconnector import S3IterableDataset

meter = Meter()
prefix = meter.keys[0].rpartition("/")[0]
names = sorted(each.name for each in meter.path(f"{prefix}/tar").glob("*.tar"))
urls = [f"s3://{BUCKET}/{prefix}/tar/{name}" for name in names]
dataset = S3IterableDataset.from_objects(urls, endpoint=meter.endpoint, **OPTIONS)
with meter:
    for reader in dataset:
        with tarfile.open(fileobj=reader, mode="r|") as archive:
            meter.consume(
                (f"{prefix}/{each.name}", archive.extractfile(each).read())
                for each in archive
                if each.name.endswith("bin")
            )
