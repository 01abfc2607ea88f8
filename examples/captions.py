"""Train on images with captions in sidecar files: 0001.jpg and 0001.txt beside it.

python examples/captions.py s3://bucket/captions/
"""

import argparse

import numpy as np
import torch
from PIL import Image

import penstock as ps


class Captioned(ps.MapDataset):
    """Images and their captions, paired by name; a batch reads its images concurrently, then its captions."""

    def __init__(self, catalog, *, captions, **options):
        """Pair each image of ``catalog`` with its caption in the catalog ``captions``, which may hold others, too."""
        super().__init__(catalog, **options)
        self.captions = ps.MapDataset.from_catalog(partners(catalog, captions), store=options.get("store"))

    def __getitems__(self, indices):
        """Return a list of (image, caption) in the order of the indices."""
        images, captions = super().__getitems__(indices), self.captions.__getitems__(indices)
        return [(decode(image), bytes(caption.data).decode()) for image, caption in zip(images, captions, strict=True)]


def decode(sample):
    """Return a uint8 tensor of shape (3, 64, 64)."""
    return torch.from_numpy(np.array(Image.open(sample).convert("RGB").resize((64, 64)))).permute(2, 0, 1)


def partners(images, captions):
    """Return a catalog with the caption of each image, in the order of the images: 0001.txt for 0001.jpg."""
    rows = {entry.key.rpartition(".")[0]: row for row, entry in enumerate(captions)}
    stems = [entry.key.rpartition(".")[0] for entry in images]
    if lonely := [stem for stem in stems if stem not in rows]:
        raise SystemExit(f"{len(lonely)} images have no caption, such as {lonely[0]}")
    return captions[[rows[stem] for stem in stems]]


def main() -> None:
    """Read one epoch of pairs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="the folder of images and captions")
    parser.add_argument("--batch-size", type=int, default=64)
    arguments = parser.parse_args()

    captions = ps.Catalog.scan(arguments.url, include="**/*.txt")
    dataset = Captioned.from_prefix(arguments.url, include="**/*.jpg", captions=captions)
    for images, texts in ps.DataLoader(dataset, arguments.batch_size, shuffle=True):
        print(tuple(images.shape), texts[0])


if __name__ == "__main__":
    main()
