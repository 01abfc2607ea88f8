"""The training as a user would write it: a small network, ``ps.DataLoader``, a checkpoint every few steps.

Run by itself, ``python -m penstock.cli.demo.train s3://bucket/prefix/ 4``, it trains on the images that
``penstock demo --keep`` left there, from the newest checkpoint, and prints its progress as lines of JSON.
"""

from __future__ import annotations

import json
import sys
from time import perf_counter
from typing import TYPE_CHECKING, Any

import penstock as ps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor, nn
    from torch.optim import Optimizer

    Report = Callable[..., None]

SEED = 0
_BATCH = 64
# Steps; an epoch has 23, so a checkpoint lies in the middle of an epoch.
_SAVE_EVERY = 10
_LEARNING_RATE = 2e-3


def picture(sample: ps.Sample) -> tuple[Tensor, int, int]:
    """Decode one object: float32 of shape (1, 8, 8) in [0, 1], its label and its number, both from its key."""
    import numpy as np
    import torch
    from PIL import Image

    image = Image.open(sample)  # type: ignore[arg-type]  # typing.IO cannot be implemented, only inherited from
    pixels = np.asarray(image, dtype=np.float32) / 255
    _, label, name = sample.key.rsplit("/", 2)
    return torch.from_numpy(pixels).unsqueeze(0), int(label), int(name.removesuffix(".png"))


def network() -> nn.Module:
    """Return a network of about 130,000 weights, drawn from torch's generator."""
    from torch import nn

    return nn.Sequential(
        *(nn.Conv2d(1, 64, kernel_size=3, padding=1), nn.ReLU()),
        *(nn.Conv2d(64, 96, kernel_size=3, padding=1), nn.ReLU()),
        *(nn.Conv2d(96, 64, kernel_size=3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.25), nn.Linear(64 * 4 * 4, 10)),
    )


def train(url: str, epochs: int, report: Report) -> None:
    """Train on ``train/`` below ``url`` up to ``epochs`` epochs, from the newest of its ``checkpoints/``; then test."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=_LEARNING_RATE)
    dataset = ps.MapDataset.from_prefix(f"{url}train/", transform=picture)
    loader = ps.DataLoader(dataset, _BATCH, shuffle=True, seed=SEED)
    run = ps.CheckpointManager(f"{url}checkpoints/", keep_last=2)
    done = run.latest() or 0
    if done:
        # Also sets the loader's position and the random generators.
        state = run.restore(loader=loader)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    report(ready=done, batches=len(loader), images=len(dataset))
    for epoch in range(loader.state_dict()["epoch"], epochs):
        began, waited, seen, saving_s = perf_counter(), list[float](), 0, 0.0
        for images, labels, numbers in time_batches(loader, waited):
            loss = step(model, optimizer, images, labels)
            done, seen = done + 1, seen + len(labels)
            report(step=done, epoch=epoch, numbers=numbers.tolist(), loss=loss)
            if done % _SAVE_EVERY == 0:
                saving_began = perf_counter()
                run.save(done, {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, loader=loader)
                saving_s += perf_counter() - saving_began
        report(epoch=epoch, pace=(seen, perf_counter() - began - saving_s, sum(waited)))
    report(accuracy=accuracy(f"{url}test/", model))


def step(model: nn.Module, optimizer: Optimizer, images: Tensor, labels: Tensor) -> float:
    """Train on one batch; return its loss."""
    from torch.nn.functional import cross_entropy

    optimizer.zero_grad()
    loss = cross_entropy(model(images), labels)
    loss.backward()  # type: ignore[no-untyped-call]  # torch's own omission
    optimizer.step()
    return loss.item()


def accuracy(url: str, model: nn.Module) -> float:
    """Return the share of the objects under ``url`` that the model classifies correctly."""
    import torch

    dataset = ps.MapDataset.from_prefix(url, transform=picture)
    model.eval()
    with torch.inference_mode():
        batches = ps.DataLoader(dataset, _BATCH)
        right = sum(int((model(images).argmax(1) == labels).sum()) for images, labels, _ in batches)
    return right / len(dataset)


def time_batches(batches: Iterable[Any], waited: list[float]) -> Iterator[Any]:
    """Yield the batches; append the seconds waited for each to ``waited``, including the loader's start and end."""
    began = perf_counter()
    iterator = iter(batches)
    while True:
        batch = next(iterator, None)
        waited.append(perf_counter() - began)
        if batch is None:
            return
        yield batch
        began = perf_counter()


if __name__ == "__main__":
    train(sys.argv[1], int(sys.argv[2]), lambda **event: print(json.dumps(event), flush=True))
