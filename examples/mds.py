"""Train on the shards of mosaicml-streaming, read in place; run it again, and it continues in mid-epoch.

    python examples/mds.py s3://bucket/mds/ --run s3://bucket/runs/1/ --steps 100

Nothing is copied to a local disk, and mosaicml-streaming is not needed. The columns are ``image`` (png or jpeg) and
``class`` (int).
"""

import argparse

import numpy as np
import torch
from PIL import Image

import penstock as ps


def decode(sample):
    """Turn a row into an image and its class."""
    image = Image.open(sample["image"]).convert("L").resize((32, 32))
    return torch.from_numpy(np.array(image)).flatten() / 255, sample["class"]


def main():
    """Train for the steps that are left."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("remote", help="the folder with index.json")
    arguments.add_argument("--run", required=True, help="where checkpoints go")
    arguments.add_argument("--steps", type=int, default=100)
    options = arguments.parse_args()
    dataset = ps.MapDataset.from_shards(options.remote, format="mds", fields=("image", "class"), transform=decode)
    loader = ps.DataLoader(dataset, batch_size=50, shuffle=ps.order.Lanes())
    model = torch.nn.Linear(32 * 32, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = ps.CheckpointManager(options.run, keep_last=2)
    step = run.latest() or 0
    if step:
        model.load_state_dict(run.restore(loader=loader)["model"])
    while step < options.steps:
        for images, classes in loader:
            loss = torch.nn.functional.cross_entropy(model(images), classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 5 == 0 or step == options.steps:
                run.save(step, {"model": model.state_dict()}, loader=loader)
            if step == options.steps:
                break
        print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
