"""Train on images with captions in sidecar files: 0001.jpg and 0001.txt beside it.

python examples/captions.py s3://bucket/captions/
"""

import argparse

import numpy as np
import torch
from PIL import Image

import penstock as ps


def pair(sample):
    """Return a uint8 tensor of shape (3, 64, 64), and the caption."""
    image = Image.open(sample["jpg"]).convert("RGB").resize((64, 64))
    return torch.from_numpy(np.array(image)).permute(2, 0, 1), sample["txt"].read().decode()


def main() -> None:
    """Read one epoch of pairs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="the folder of images and captions")
    parser.add_argument("--batch-size", type=int, default=64)
    arguments = parser.parse_args()

    # Both objects of a sample are read at once. An image without a caption is an error that names it.
    dataset = ps.MapDataset.from_prefix(arguments.url, group="stem", fields=("jpg", "txt"), transform=pair)
    for images, texts in ps.DataLoader(dataset, arguments.batch_size, shuffle=True):
        print(tuple(images.shape), texts[0])


if __name__ == "__main__":
    main()
