"""Train on a mixture of two sources, and change their weights in the middle of the run.

    python examples/mixture.py s3://bucket/photos/ s3://bucket/shards/ --run s3://bucket/runs/1/
    python examples/mixture.py s3://bucket/photos/ s3://bucket/shards/ --run s3://bucket/runs/1/ --weights 1 3

The second command continues where the first stopped, with other weights: each source goes on where it was.
"""

import argparse

import numpy as np
import torch
from PIL import Image

import penstock as ps


def decode(sample):
    """Turn an object, or a sample of a shard with the fields ``png`` and ``cls``, into 32 by 32 numbers and a class."""
    image = Image.open(sample["png"] if sample.fields else sample).convert("L").resize((32, 32))
    label = int(sample["cls"].read()) if sample.fields else sample.label
    return torch.from_numpy(np.array(image)).flatten() / 255, label


def main():
    """Train for the epochs that are left."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("objects", help="a prefix of images in folders, one for each class")
    arguments.add_argument("shards", help="tar files of images and classes: a prefix, a glob or a pattern")
    arguments.add_argument("--run", required=True, help="where checkpoints go")
    arguments.add_argument("--epochs", type=int, default=2)
    arguments.add_argument("--weights", type=float, nargs=2, default=[3, 1])
    options = arguments.parse_args()
    objects = ps.MapDataset.from_prefix(options.objects, labels="folder", transform=decode)
    shards = ps.MapDataset.from_shards(options.shards, transform=decode)
    weights = dict(zip(("objects", "shards"), options.weights, strict=True))
    mix = ps.Mix({"objects": objects, "shards": shards}, weights=weights, epoch_samples=600)
    loader = ps.DataLoader(mix, batch_size=50, shuffle=True)
    model = torch.nn.Linear(32 * 32, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = ps.CheckpointManager(options.run, keep_last=2)
    step = run.latest() or 0
    if step:
        state = run.restore()
        model.load_state_dict(state["model"])
        loader.load_state_dict(state["loader"], new_weights=True)
    for epoch in range(loader.state_dict()["epoch"], options.epochs):
        for images, classes in loader:
            loss = torch.nn.functional.cross_entropy(model(images), classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
        run.save(step, {"model": model.state_dict(), "loader": loader.state_dict()})
        print(f"epoch {epoch}: loss {loss.item():.3f} after {step} steps")


if __name__ == "__main__":
    main()
