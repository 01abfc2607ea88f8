"""Amazon's map-style dataset under torch's DataLoader with as many workers as the others have threads."""

from amazon import OPTIONS
from meter import BUCKET, Meter
from photos import decoded
from s3torchconnector import S3MapDataset
from torch.utils.data import DataLoader


def transform(reader):
    return reader.key, decoded(reader)


meter = Meter()
dataset = S3MapDataset.from_objects(
    [f"s3://{BUCKET}/{key}" for key in meter.keys], endpoint=meter.endpoint, transform=transform, **OPTIONS
)
loader = DataLoader(dataset, batch_size=meter.batch, num_workers=meter.threads, multiprocessing_context="spawn")
if __name__ == "__main__":
    with meter:
        for keys, _ in loader:
            for key in keys:
                meter.count(key)
