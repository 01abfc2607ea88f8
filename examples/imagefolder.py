"""Train a classifier on images in folders named by class: s3://bucket/photos/cat/0001.jpg.

python examples/imagefolder.py s3://bucket/photos/ --run s3://bucket/runs/1/
"""

import argparse

import numpy as np
import torch
from PIL import Image

import penstock as ps


def decode(sample):
    """Return a uint8 tensor of shape (3, 64, 64) and the index of the folder's name in ``catalog.classes``."""
    image = Image.open(sample).convert("RGB").resize((64, 64))
    return torch.from_numpy(np.array(image)).permute(2, 0, 1), sample.label


def main() -> None:
    """Train, validate and save in each epoch; a second run continues after the last saved epoch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="the folder that holds the classes' folders")
    parser.add_argument("--run", required=True, help="the folder for checkpoints")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    arguments = parser.parse_args()

    catalog = ps.Catalog.scan(arguments.url, labels="folder")
    datasets = [ps.MapDataset.from_catalog(part, transform=decode) for part in catalog.split(0.9, by="label")]
    loader = ps.DataLoader(datasets[0], arguments.batch_size, shuffle=True)
    validation = ps.DataLoader(datasets[1], arguments.batch_size)
    model = torch.nn.Sequential(torch.nn.AvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(192, len(catalog.classes)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    run = ps.CheckpointManager(arguments.run, keep_last=2)
    if run.latest() is not None:
        model.load_state_dict(run.restore(loader=loader)["model"])

    for epoch in range(loader.state_dict()["epoch"], arguments.epochs):
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images / 255), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.inference_mode():
            right = sum(int((model(images / 255).argmax(1) == labels).sum()) for images, labels in validation)
        print(f"epoch {epoch}: accuracy {right / len(datasets[1]):.0%}")
        run.save(epoch, {"model": model.state_dict()}, loader=loader)


if __name__ == "__main__":
    main()
