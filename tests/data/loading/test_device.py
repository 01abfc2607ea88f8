"""Handing batches over: every tensor of any nest, nothing else touched, errors in their turn."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

import penstock as ps
from penstock.data.loading.decoding import mover, to_device
from penstock.data.order.sampling import Cursor
from penstock.data.reading.reading import Delivery, Skipped
from penstock.errors import Unusable
from tests.data.datasets.transforms import number, numbered

CPU = torch.device("cpu")


class Pair(NamedTuple):
    image: torch.Tensor
    label: object


def test_moving_to_device_preserves_cursor_and_skipped_samples():
    deliveries = [Delivery([torch.tensor([number])], Cursor(1, 2), (Skipped("a", "b"),)) for number in range(3)]
    moved = list(to_device(iter(deliveries), CPU))
    assert [delivery.batch[0].device for delivery in moved] == [CPU] * 3
    assert moved == deliveries


def test_the_copy_of_memory_that_is_not_pinned_is_waited_for():
    asked = []

    class Asked(torch.Tensor):
        def to(self, *_, non_blocking=False):
            asked.append(non_blocking)
            return self

        def is_pinned(self):
            return bool(self[0])

    mover(torch.device("cuda"))([torch.tensor([each]).as_subclass(Asked) for each in (0, 1)])
    assert asked == [False, True]


def test_an_error_comes_after_the_batches_before_it():
    def broken():
        yield Delivery(torch.tensor(1), Cursor())
        raise ValueError("two")

    got = []
    with pytest.raises(ValueError, match="two"):
        got.extend(to_device(broken(), CPU))
    assert [delivery.batch.item() for delivery in got] == [1]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("device", ["cpu", CPU])
def test_loader_delivers_batches_on_the_requested_device(tmp_path, workers, device):
    dataset = ps.MapDataset.from_prefix(numbered(tmp_path / "data", 10), transform=number)
    loader = ps.DataLoader(dataset, 4, num_workers=workers, device=device, pin_memory=True)
    got = []
    for batch in loader:
        got.append(batch.tolist())
        assert batch.device == CPU
        assert loader.state_dict()["position"] == sum(map(len, got))
    assert got == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_unknown_device_is_refused_by_the_constructor(tmp_path):
    dataset = ps.MapDataset.from_prefix(numbered(tmp_path / "data", 1))
    with pytest.raises(Unusable, match="toaster"):
        ps.DataLoader(dataset, device="toaster")
