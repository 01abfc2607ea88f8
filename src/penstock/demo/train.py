"""The training, as one would write it: a small network, Penstock's datasets, a checkpoint after each epoch.

Run by itself, ``python -m penstock.demo.train s3://bucket/prefix/ 8``, it trains on what ``penstock demo --keep`` left
there, from the newest checkpoint, and prints what happens as lines of JSON.
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

__all__ = ["SEED", "train"]

SEED = 0
_BATCH = 64
_WORKERS = 2
_LEARNING_RATE = 3e-3


def picture(sample: ps.Sample) -> tuple[Tensor, int]:
    """Decode one object, in a worker: float32 of shape (1, 8, 8) in [0, 1], and the label its key carries."""
    import numpy as np
    import torch
    from PIL import Image

    image = Image.open(sample)  # type: ignore[arg-type]  # typing.IO cannot be implemented, only inherited from
    pixels = np.asarray(image, dtype=np.float32) / 255
    return torch.from_numpy(pixels).unsqueeze(0), int(sample.key.split("/")[-2])


def network() -> nn.Module:
    """Return a network of some 30,000 weights, drawn from torch's generator."""
    from torch import nn

    return nn.Sequential(
        *(nn.Conv2d(1, 32, kernel_size=3, padding=1), nn.ReLU()),
        *(nn.Conv2d(32, 64, kernel_size=3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.25), nn.Linear(64 * 4 * 4, 10)),
    )


def train(url: str, epochs: int, report: Report) -> None:
    """Train on ``url``'s ``train/`` up to ``epochs`` epochs, from the newest of its ``checkpoints/``; then test."""
    import torch
    from torch.utils.data import DataLoader

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=_LEARNING_RATE)
    checkpoint, done = resume(f"{url}checkpoints/", model, optimizer)

    dataset = ps.IterableDataset.from_prefix(f"{url}train/", transform=picture, shuffle=True, seed=SEED)
    loader = DataLoader(
        dataset.batched(_BATCH),
        batch_size=None,  # the dataset forms the batches: the same ones for any number of workers
        num_workers=_WORKERS,
        multiprocessing_context="fork",
        persistent_workers=True,
        generator=torch.Generator().manual_seed(SEED),  # or starting workers would draw from the network's
    )
    report(ready=done, checkpoint=checkpoint, batches=len(loader))
    for epoch in range(done, epochs):
        dataset.set_epoch(epoch)  # seed and epoch decide the order, whoever was killed before
        began, waited = perf_counter(), list[float]()
        for images, labels in timed(loader, waited):
            report(loss=step(model, optimizer, images, labels))
        pace = (len(dataset.catalog), dataset.catalog.total_bytes, perf_counter() - began, sum(waited))
        checkpoint = save(f"{url}checkpoints/", model, optimizer, epoch + 1)
        report(saved=checkpoint, pace=pace)
    report(accuracy=accuracy(f"{url}test/", model))


def step(model: nn.Module, optimizer: Optimizer, images: Tensor, labels: Tensor) -> float:
    """Learn from one batch; returns its loss."""
    from torch.nn.functional import cross_entropy

    optimizer.zero_grad()
    loss = cross_entropy(model(images), labels)
    loss.backward()  # type: ignore[no-untyped-call]  # torch's own omission
    optimizer.step()
    return loss.item()


def save(folder: str, model: nn.Module, optimizer: Optimizer, done: int) -> str:
    """Store all that the next epoch depends on; the object appears whole, or not at all. Returns its URL."""
    import torch

    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": torch.get_rng_state(),
        "epochs": done,
    }
    url = f"{folder}epoch-{done:04}.pt"
    ps.save(state, url)
    return url


def resume(folder: str, model: nn.Module, optimizer: Optimizer) -> tuple[str, int]:
    """Take the newest checkpoint up, if there is one; returns its URL and how many epochs were done."""
    import torch

    newest = max((entry.url for entry in ps.list(folder)), default="")
    if not newest:
        return "", 0
    state = ps.load(newest)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])
    return newest, state["epochs"]


def accuracy(url: str, model: nn.Module) -> float:
    """Return the share of the objects under ``url`` that the model reads right."""
    import torch
    from torch.utils.data import DataLoader

    dataset = ps.MapDataset.from_prefix(url, transform=picture)
    loader = DataLoader(dataset, batch_size=_BATCH, num_workers=_WORKERS, multiprocessing_context="fork")
    model.eval()
    with torch.inference_mode():
        right = sum(int((model(images).argmax(1) == labels).sum()) for images, labels in loader)
    return right / len(dataset)


def timed(batches: Iterable[Any], waited: list[float]) -> Iterator[Any]:
    """Yield the batches and note the seconds that each was waited for, the loader's start and end included."""
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
    train(sys.argv[1], int(sys.argv[2]), lambda **said: print(json.dumps(said), flush=True))
