"""Train on the Parquet files of a Hugging Face image dataset, read in place; run it again, and it continues.

    python examples/parquet_images.py s3://bucket/rows/ --run s3://bucket/runs/1/

The columns are ``image`` (a struct of ``bytes`` and ``path``, as ``push_to_hub`` writes it) and ``label`` (int). The
first run saves the catalog beside the checkpoints.
"""

import argparse

import numpy as np
import torch
from PIL import Image

import penstock as ps


def decode(row):
    """Turn a row into a float32 image of shape (3, 64, 64) and its class."""
    image = Image.open(row["image"]).convert("RGB").resize((64, 64))
    return torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255, row["label"]


def catalog_of(url, saved):
    """Return the catalog saved at ``saved``; make it the first time."""
    try:
        return ps.Catalog.open(saved)
    except FileNotFoundError:
        ps.Catalog.from_shards(url, format="parquet", fields=("image", "label")).save(saved)
        return ps.Catalog.open(saved)


def main():
    """Train for the epochs that are left."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("url", help="the folder of Parquet files, a glob or a pattern with braces")
    arguments.add_argument("--run", required=True, help="where checkpoints and the catalog go")
    arguments.add_argument("--epochs", type=int, default=2)
    options = arguments.parse_args()
    dataset = ps.MapDataset(catalog_of(options.url, options.run + "rows.catalog"), transform=decode)
    # Each row group is read once an epoch, and the rows of several are mixed.
    loader = ps.DataLoader(dataset, batch_size=50, shuffle=ps.order.Lanes())
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64 * 64, 1000))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run = ps.CheckpointManager(options.run, keep_last=2)
    if run.latest():
        model.load_state_dict(run.restore(loader=loader)["model"])
    for epoch in range(loader.state_dict()["epoch"], options.epochs):
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        run.save(epoch + 1, {"model": model.state_dict()}, loader=loader)
        print(f"epoch {epoch}: loss {loss.item():.3f}, {len(dataset)} images")


if __name__ == "__main__":
    main()
