"""Batches of the default collate function are those of torch's, whichever way they are copied."""

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

from penstock.data.datasets import collation
from penstock.data.datasets.collation import collate_samples

RNG = np.random.default_rng(0)


def by_pixel(*shape, dtype=torch.uint8):
    """Return a random tensor of shape (T, C, H, W) whose memory is (T, H, W, C)."""
    count, channels, height, width = shape
    values = RNG.integers(0, 200, (count, height, width, channels)).astype(np.uint8)
    return torch.from_numpy(values).to(dtype).permute(0, 3, 1, 2)


def places_of(tensor):
    """Return the strides of dimensions that have them: that of a single value is arbitrary."""
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


@pytest.fixture(autouse=True)
def _few_values(monkeypatch):
    monkeypatch.setattr(collation, "_LEAST_VALUES", 0)


@pytest.fixture
def _without_torch(monkeypatch):
    monkeypatch.setitem(collation.default_collate_fn_map, torch.Tensor, None)


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.bool, torch.float16, torch.float32, torch.bfloat16, torch.int64, torch.complex64]
)
@pytest.mark.parametrize("shape", [(4, 3, 6, 5), (1, 3, 6, 5), (4, 1, 6, 5), (4, 3, 1, 1), (0, 3, 6, 5)])
def test_tensors_are_stacked_to_the_values_and_strides_of_torch(shape, dtype):
    pictures = [by_pixel(*shape, dtype=dtype) for _ in range(3)]
    planes = [each.contiguous() for each in pictures]
    for batch in (pictures, planes, [each.flatten() for each in planes], [each[:1].sum() for each in planes]):
        found, expected = collate_samples(batch), default_collate(batch)
        assert torch.equal(found, expected)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert not found.numel() or places_of(found) == places_of(expected)


@pytest.mark.usefixtures("_without_torch")
def test_plain_tensors_in_tuples_and_dicts_are_stacked_without_torch():
    for clips in ([by_pixel(4, 3, 6, 5) for _ in range(3)], [torch.rand(3, 6) for _ in range(3)]):
        expected = torch.stack(clips)
        assert torch.equal(collate_samples([(each, "a") for each in clips])[0], expected)
        assert torch.equal(collate_samples([{"frames": each} for each in clips])["frames"], expected)


@pytest.mark.usefixtures("_without_torch")
def test_few_values_are_left_to_torch(monkeypatch):
    monkeypatch.setattr(collation, "_LEAST_VALUES", 100)
    assert collate_samples([torch.rand(50), torch.rand(50)]).shape == (2, 50)
    with pytest.raises(TypeError, match="not callable"):
        collate_samples([torch.rand(49), torch.rand(49)])


FLOATS = by_pixel(4, 3, 6, 5, dtype=torch.float32)


@pytest.mark.parametrize(
    "other",
    [
        by_pixel(4, 3, 6, 5)[:, :, :, ::2],
        torch.rand(4, 5).t(),
        FLOATS.clone().requires_grad_(),
        FLOATS._neg_view(),
        torch.nn.Parameter(FLOATS),
        torch.zeros(4, 3, 6, 5, device="meta"),
    ],
    ids=["strided", "transposed", "grad", "negative", "subclass", "meta"],
)
def test_other_tensors_are_left_to_torch(other):
    found, expected = collate_samples([other, other]), default_collate([other, other])
    assert (found.layout, found.shape, found.requires_grad) == (expected.layout, expected.shape, expected.requires_grad)
    assert other.device.type == "meta" or torch.equal(found, expected)


def test_sparse_tensors_are_refused_by_torch():
    for shape in ((2, 3), (2, 3, 4, 5)):
        with pytest.raises(RuntimeError, match="sparse tensors are not currently supported"):
            collate_samples([torch.rand(shape).to_sparse()] * 2)


def test_pictures_by_pixel_and_by_plane_are_stacked_together():
    batch = [by_pixel(4, 3, 6, 5), by_pixel(4, 3, 6, 5).contiguous()]
    for some in (batch, batch[::-1]):
        assert torch.equal(collate_samples(some), default_collate(some))


def test_shapes_that_differ_are_refused_by_torch():
    with pytest.raises(RuntimeError, match="equal size"):
        collate_samples([by_pixel(4, 3, 6, 5), by_pixel(4, 3, 6, 7)])
