"""Scalars are what came since the last time, and who takes them cannot break a training."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from penstock.errors import Unusable
from penstock.observe import Scalars
from penstock.observe import loader as room


@dataclass
class Loader:
    batches: int = 0
    samples: int = 0
    waiting_s: float = 0.0
    computing_s: float = 0.0
    total: SimpleNamespace = field(
        default_factory=lambda: SimpleNamespace(requests=0, retries=0, errors=0, skipped=0, cached=0, size_bytes=0)
    )

    def stats(self):
        return self


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(room, "monotonic", lambda: now[0])
    return now


RATES = ["batches_per_s", "samples_per_s", "bytes_per_s"]
NAMES = ["utilisation", "waiting_s", *RATES, "requests", "retries", "errors", "skipped", "cached"]


def test_scalars_are_differences_since_the_previous_take(clock):
    loader = Loader(batches=5, waiting_s=9)
    scalars = Scalars(loader, "")
    loader.batches, loader.samples, loader.waiting_s, loader.computing_s = 7, 64, 10, 3
    loader.total = SimpleNamespace(requests=70, retries=3, errors=2, skipped=1, cached=4, size_bytes=1000)
    clock[0] += 4
    assert scalars.take() == {
        "utilisation": 0.75,
        "waiting_s": 1,
        "batches_per_s": 0.5,
        "samples_per_s": 16,
        "bytes_per_s": 250,
        "requests": 70,
        "retries": 3,
        "errors": 2,
        "skipped": 1,
        "cached": 4,
    }
    assert scalars.take() == dict.fromkeys(NAMES, 0.0)


def test_a_loader_that_counts_anew_in_a_forked_rank_gives_no_negative_number(clock):
    loader = Loader(batches=5, waiting_s=9)
    scalars = Scalars(loader, "")
    loader.batches, loader.waiting_s = 1, 0.5
    clock[0] += 1
    assert set(scalars.take().values()) == {0.0}


def test_tensorboard_and_wandb_take_them():
    scalars = Scalars(Loader())
    added, logged = {}, []
    writer = SimpleNamespace(add_scalar=lambda name, value, step: added.update({name: (value, step)}))
    scalars.to_tensorboard(writer, 7)
    scalars.to_wandb(SimpleNamespace(log=logged.append), loss=0.5)
    assert added == {f"penstock/{name}": (0.0, 7) for name in NAMES}
    assert logged == [{f"penstock/{name}": 0.0 for name in NAMES} | {"loss": 0.5}]


def test_scalar_writer_errors_are_logged_at_most_every_30_seconds(clock, caplog):
    def broken(*_):
        raise OSError("the server is away")

    scalars = Scalars(Loader())
    with caplog.at_level(logging.WARNING, "penstock"):
        for _ in range(3):
            scalars.to_tensorboard(SimpleNamespace(add_scalar=broken), 1)
            scalars.to_wandb(SimpleNamespace(log=broken))
        clock[0] += 31
        scalars.to_wandb(None)
    assert len(caplog.messages) == 2
    assert "OSError: the server is away" in caplog.messages[0]


def test_a_loader_that_does_not_count_is_refused():
    with pytest.raises(Unusable, match=r"penstock\.DataLoader"):
        Scalars([1, 2, 3])
