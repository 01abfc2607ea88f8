"""Resize the images of a prefix with Ray Data into tar shards with their classes, ready for training.

python examples/ray/preprocess.py s3://bucket/photos/ s3://bucket/small/ --size 256 --address auto
"""

import argparse
import io

import ray
from PIL import Image

import penstock as ps
import penstock.ray


def smaller(batch, size):
    """Return a batch with smaller images; ``bytes`` is the object that ``key`` names: photos/cat/0001.jpg."""
    batch["bytes"] = [resized(data, size) for data in batch["bytes"]]
    # The number of the class, as a field beside the image.
    batch["cls"] = batch.pop("label")
    return batch


def resized(data, size):
    """Return an image of at most ``size`` pixels a side, in the format that it had."""
    image, made = Image.open(io.BytesIO(data)), io.BytesIO()
    form = image.format
    image.thumbnail((size, size))
    image.save(made, form)
    return made.getvalue()


def main():
    """Read, resize, write; then open the result as training does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", help="the folder that holds the classes' folders")
    parser.add_argument("dest", help="prefix for the shards")
    parser.add_argument("--size", type=int, default=256, help="most pixels of a side")
    parser.add_argument("--samples", type=int, default=10_000, help="most samples of a shard")
    parser.add_argument("--address", default="auto", help="of the Ray cluster")
    options = parser.parse_args()
    ray.init(address=options.address, logging_level="ERROR")
    dest = f"{options.dest.rstrip('/')}/"
    # Saved, so that each task opens the file, and reads its range of it.
    ps.Catalog.scan(options.source, labels="folder").save(f"{dest}source.catalog")
    rows = penstock.ray.read(f"{dest}source.catalog").map_batches(smaller, fn_kwargs={"size": options.size})
    print(penstock.ray.write(rows, dest, samples=options.samples))
    dataset = ps.MapDataset.from_catalog(f"{dest}index.catalog")
    print(f"{len(dataset):,} samples, the first with {', '.join(dataset[0].fields)}")


if __name__ == "__main__":
    main()
