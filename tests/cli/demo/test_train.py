"""The demo's training: the same from the same seed, honest about what it waited for and got right."""

from __future__ import annotations

import io

import pytest
import torch
from PIL import Image

import penstock as ps
from penstock.cli.demo.train import SEED, accuracy, network, picture, step, time_batches


def put(url, data):
    with ps.open(url, "wb") as file:
        file.write(data)


def png(pixel):
    file = io.BytesIO()
    Image.new("L", (8, 8), pixel).save(file, "PNG")
    return file.getvalue()


def learnt(steps):
    """Return the losses of some steps on one batch, from the demo's seed."""
    torch.manual_seed(SEED)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    images, labels = torch.rand(10, 1, 8, 8), torch.arange(10)
    return [step(model, optimizer, images, labels) for _ in range(steps)]


def test_steps_learn_and_are_the_same_from_the_same_seed():
    losses = learnt(5)
    assert losses[-1] < losses[0]
    assert learnt(5) == losses


def test_a_picture_s_label_and_number_are_those_of_its_key(tmp_path):
    put(f"{tmp_path}/train/7/0042.png", png(51))
    dataset = ps.MapDataset.from_prefix(f"{tmp_path}/train/", transform=picture)
    pixels, label, number = dataset[0]
    assert (pixels.shape, pixels.dtype, label, number) == ((1, 8, 8), torch.float32, 7, 42)
    assert torch.equal(pixels, torch.full((1, 8, 8), 0.2))


def test_accuracy_is_the_share_of_all_objects_also_of_the_last_batch(tmp_path):
    for number in range(70):  # a batch has 64
        put(f"{tmp_path}/{number % 10}/{number:04}.png", png(0))

    class Threes(torch.nn.Module):
        def forward(self, images):
            return torch.nn.functional.one_hot(torch.full((len(images),), 3), 10).float()

    assert accuracy(f"{tmp_path}/", Threes()) == pytest.approx(7 / 70)


def test_waits_are_counted_for_each_batch_and_for_the_end():
    waited: list[float] = []
    assert list(time_batches([1, 2, 3], waited)) == [1, 2, 3]
    assert len(waited) == 4
    assert all(seconds >= 0 for seconds in waited)
