"""Stores, transforms and devices that are slow in one way each, for reports to name: ten times what all else takes."""

from __future__ import annotations

import threading
from copy import copy
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Any

import torch

import penstock as ps
from penstock.testing.servers import reply
from tests.engine.fetch.store import Objects

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["BATCH", "FAULTS", "changed", "keys", "loader", "named", "objects"]

BATCH = 8
FEWER = ("bandwidth", "decode")  # causes of samples that take long each
FEW = ps.TransportOptions(connections=4)


def changed(report: ps.observe.LoaderReport, **values: Any) -> ps.observe.LoaderReport:
    """Return the report with other values."""
    found = copy(report)
    for name, value in values.items():
        object.__setattr__(found, name, value)
    return found


def pause(seconds: float) -> None:
    """Take so long: it is what is planted, and nothing waits for it."""
    threading.Event().wait(seconds)


def number(sample: Any) -> torch.Tensor:
    return torch.tensor([sample.size])


def slow_number(sample: Any) -> torch.Tensor:
    pause(0.2)  # beside it, waits for a processor of a busy machine are short
    return number(sample)


def python_number(sample: Any) -> torch.Tensor:
    until_s = thread_time() + 0.01
    while thread_time() < until_s:
        pass
    return number(sample)


def slow_stack(samples: list[torch.Tensor]) -> torch.Tensor:
    pause(0.25)
    return torch.stack(samples)


class Distant(torch.Tensor):
    """A tensor whose way to the device is long."""

    def to(self, *_: Any, **__: Any) -> torch.Tensor:
        pause(0.25)
        return self


def distant_stack(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(samples).as_subclass(Distant)


def cold(received: Any, _answer: bytes, _send: Any) -> bool:
    if "/cold/" in received.path:
        pause(0.2)
    return False


def late(received: Any, _answer: bytes, _send: Any) -> bool:
    if received.method == "GET":
        pause(0.03)
    return False


def dripping(_received: Any, answer: bytes, send: Any) -> bool:
    head, _, body = answer.partition(b"\r\n\r\n")
    send(head + b"\r\n\r\n")
    for at in range(0, len(body), 20_000):
        pause(0.02)
        send(body[at : at + 20_000])
    return True


class Throttled:
    """Refuses every other request for an object, for a second."""

    def __init__(self) -> None:
        self.refused: set[str] = set()

    def __call__(self, received: Any, _answer: bytes, send: Any) -> bool:
        if received.path in self.refused:
            self.refused.discard(received.path)
            return False
        self.refused.add(received.path)
        send(reply(503, b"<Error><Code>SlowDown</Code></Error>", retry_after="1"))
        return True


class Bounded:
    """Takes 40 requests a second, over the time that has passed, and refuses all others."""

    def __init__(self) -> None:
        self.began_s, self.taken = monotonic(), 0

    def __call__(self, _received: Any, _answer: bytes, send: Any) -> bool:
        now = monotonic()
        if self.taken < 40 * (now - self.began_s):
            self.taken = max(self.taken + 1, int(40 * (now - self.began_s)) - 4)  # no more than four are saved up
            return False
        send(reply(503, b"<Error><Code>SlowDown</Code></Error>"))
        return True


# What is planted, by the cause that a report is to name: in the store, its options, and the loader's.
FAULTS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "first byte": (cold, {"transport": FEW}, {}),
    "bandwidth": (dripping, {"transport": FEW}, {}),
    "throttled": (Throttled, {}, {}),
    "paced": (Bounded, {}, {}),
    "memory budget": (late, {"read": ps.ReadOptions(ahead_bytes=100, hedge=False)}, {}),
    "decode": (None, {}, {"transform": slow_number}),
    "collate": (None, {}, {"collate_fn": slow_stack}),
    "python": (None, {}, {"transform": python_number, "decode_threads": 4}),
    "device": (None, {}, {"collate_fn": distant_stack, "device": "cpu"}),
}


def keys(cause: str, root: str = "train") -> list[str]:
    return [f"{root}/{'cold' if at % 2 else 'warm'}/{at:03}" for at in range(8 if cause in FEWER else 40)]


def objects(cause: str, root: str = "train") -> Objects:
    """Return the script of a server that is slow as ``cause`` says, if that is in the store."""
    fault = FAULTS[cause][0] if cause in FAULTS else None
    size = 200_000 if cause == "bandwidth" else 500
    return Objects({key: bytes(size) for key in keys(cause, root)}, fault() if isinstance(fault, type) else fault)


def loader(cause: str, url: str, num_workers: int = 0, urls: Iterable[str] = ()) -> ps.DataLoader:
    """Return a loader that is slow as ``cause`` says, of the server's objects."""
    _, of_store, of_loader = FAULTS.get(cause, (None, {}, {}))
    once = {"read": ps.ReadOptions(hedge=False)}  # requests are counted
    store = ps.S3Options(endpoint=url, anonymous=True, region="us-east-1", **(once | of_store))
    options = dict(of_loader)
    transform = options.pop("transform", number)
    urls = [*urls] or [f"s3://bucket/{key}" for key in keys(cause)]
    dataset = ps.MapDataset.from_objects(urls, transform=transform, store=store)
    size = 2 if cause in FEWER else BATCH
    if num_workers:
        options["persistent_workers"] = True
    return ps.DataLoader(dataset, size, num_workers=num_workers, **options)


def named(loader: ps.DataLoader, cause: str) -> tuple[ps.observe.LoaderReport, int]:
    """Train until the report names ``cause``, at most 20 epochs; return it, and how many these were.

    Workers take their time to start, which counts as well: most of a short training on a busy machine.
    """
    epochs, report = 0, loader.report()
    while epochs < 20 and (report.cause != cause or not epochs):
        for _ in loader:
            pass
        epochs, report = epochs + 1, loader.report()
    return report, epochs
