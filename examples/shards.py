"""Train on WebDataset's tar files, read in place; run it again, and it continues where it stopped.

    python examples/shards.py "s3://bucket/shards/train-{0000..0005}.tar" --run s3://bucket/runs/1/

The first run reads the shards once to find their samples, and saves the catalog beside the checkpoints.
"""

import argparse

import numpy as np
import torch
from PIL import Image

import penstock as ps


def decode(sample):
    """Turn a sample of the fields ``png`` and ``cls`` into an image and its class."""
    image = Image.open(sample["png"]).convert("L").resize((32, 32))
    return torch.from_numpy(np.array(image)).flatten() / 255, int(sample["cls"].read())


def catalog_of(urls, url):
    """Return the catalog saved at ``url``; make it the first time."""
    try:
        return ps.Catalog.open(url)
    except FileNotFoundError:
        ps.Catalog.from_shards(urls, fields=("png", "cls")).save(url)
        return ps.Catalog.open(url)


def main():
    """Train for the epochs that are left."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("shards", help="a prefix, a glob or a pattern with braces")
    arguments.add_argument("--run", required=True, help="where checkpoints and the catalog go")
    arguments.add_argument("--epochs", type=int, default=2)
    options = arguments.parse_args()
    dataset = ps.MapDataset(catalog_of(options.shards, options.run + "shards.catalog"), transform=decode)
    loader = ps.DataLoader(dataset, batch_size=50, shuffle=ps.order.Lanes())
    model = torch.nn.Linear(32 * 32, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = ps.CheckpointManager(options.run, keep_last=2)
    step = run.latest() or 0
    if step:
        model.load_state_dict(run.restore(loader=loader)["model"])
    for epoch in range(loader.state_dict()["epoch"], options.epochs):
        for images, classes in loader:
            loss = torch.nn.functional.cross_entropy(model(images), classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
        run.save(step, {"model": model.state_dict()}, loader=loader)
        print(f"epoch {epoch}: loss {loss.item():.3f} after {step} steps")


if __name__ == "__main__":
    main()
