"""What the demo trains on: every digit once, as a picture, with its label in its key."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from sklearn.datasets import load_digits

import penstock as ps
from penstock.cli.demo.story import COUNT, upload
from penstock.cli.demo.train import picture


@pytest.fixture(scope="module")
def url():
    place, shown = "memory://digits/some/where/", []
    size_bytes = upload(place, shown.append)
    assert shown == list(range(1, COUNT + 1))
    assert size_bytes == sum(entry.size for entry in ps.list(place))
    return place


def test_about_20_percent_of_the_digits_are_for_testing(url):
    parts = Counter(entry.key.split("/")[2] for entry in ps.list(url))
    assert parts == {"train": 1437, "test": 360}


def test_a_picture_is_the_digit_it_was(url):
    digits = load_digits()
    for part in ("train", "test"):
        dataset = ps.MapDataset.from_prefix(f"{url}{part}/")
        for sample in dataset[::97]:
            pixels, label, number = picture(sample)
            index = int(sample.key[-8:-4])
            assert (tuple(pixels.shape), label, number) == ((1, 8, 8), digits.target[index], index)
            np.testing.assert_allclose(pixels[0], digits.images[index] / 16, atol=1 / 255)
