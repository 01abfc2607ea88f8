"""Train on images with captions in sidecar files: 0001.jpg and 0001.txt beside it.

python examples/captions.py s3://bucket/captions/
"""

import argparse

import numpy as np
import torch
from PIL import Image

import penstock as ps


class Captioned(ps.MapDataset):
    """Images and their captions; a batch reads its images concurrently, then its captions."""

    def __getitems__(self, indices):
        """Return a list of (image, caption) in the order of the indices."""
        images, captions = super().__getitems__(indices), self.captions.__getitems__(indices)
        return [(decode(image), bytes(caption.data).decode()) for image, caption in zip(images, captions, strict=True)]


def decode(sample):
    """Return a uint8 tensor of shape (3, 64, 64)."""
    return torch.from_numpy(np.array(Image.open(sample).convert("RGB").resize((64, 64)))).permute(2, 0, 1)


def stems(catalog):
    """Return the keys without their extensions, in the catalog's order, which is the keys' order."""
    return [entry.key.rpartition(".")[0] for entry in catalog]


def main() -> None:
    """Read one epoch of pairs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="the folder of images and captions")
    parser.add_argument("--batch-size", type=int, default=64)
    arguments = parser.parse_args()

    dataset = Captioned.from_prefix(arguments.url, include="**/*.jpg")
    dataset.captions = ps.MapDataset.from_prefix(arguments.url, include="**/*.txt")
    if lonely := set(stems(dataset.catalog)) ^ set(stems(dataset.captions.catalog)):
        raise SystemExit(f"{len(lonely)} images or captions have no partner, such as {min(lonely)}")

    for images, captions in ps.DataLoader(dataset, arguments.batch_size, shuffle=True):
        print(tuple(images.shape), captions[0])


if __name__ == "__main__":
    main()
