"""Train a segmentation on images and their masks, of two prefixes or buckets; run it again, and it continues.

    python examples/masks.py s3://bucket/images/ s3://bucket/masks/ --run s3://bucket/runs/1/

``images/0001.jpg`` has the mask ``masks/0001.png``, whose pixels are classes.
"""

import argparse

import numpy as np
import torch
from PIL import Image

import penstock as ps

SIZE = (64, 64)


def pair(sample):
    """Return a float32 image of shape (3, 64, 64), and the classes of its pixels, int64 of shape (64, 64)."""
    image = Image.open(sample["image"]).convert("RGB").resize(SIZE)
    # A mean of two classes is another class, so the nearest pixel is taken.
    mask = Image.open(sample["mask"]).resize(SIZE, Image.Resampling.NEAREST)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255, torch.from_numpy(np.array(mask)).long()


def main():
    """Train for the epochs that are left."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("images", help="the folder of images")
    arguments.add_argument("masks", help="the folder of masks")
    arguments.add_argument("--run", required=True, help="where checkpoints go")
    arguments.add_argument("--classes", type=int, default=21)
    arguments.add_argument("--epochs", type=int, default=2)
    options = arguments.parse_args()
    # Both objects of a sample are read at once. An image without a mask is an error that names it.
    catalog = ps.Catalog.join({"image": ps.Catalog.scan(options.images), "mask": ps.Catalog.scan(options.masks)})
    loader = ps.DataLoader(ps.MapDataset(catalog, transform=pair), batch_size=16, shuffle=True)
    model = torch.nn.Conv2d(3, options.classes, 3, padding=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = ps.CheckpointManager(options.run, keep_last=2)
    if run.latest():
        model.load_state_dict(run.restore(loader=loader)["model"])
    for epoch in range(loader.state_dict()["epoch"], options.epochs):
        for images, masks in loader:
            loss = torch.nn.functional.cross_entropy(model(images), masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        run.save(epoch + 1, {"model": model.state_dict()}, loader=loader)
        print(f"epoch {epoch}: loss {loss.item():.3f}, {len(catalog)} pairs")


if __name__ == "__main__":
    main()
