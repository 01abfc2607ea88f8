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


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("shape", [(4, 3, 6, 5), (1, 3, 6, 5), (4, 1, 6, 5), (4, 3, 1, 1), (0, 3, 6, 5)])
def test_pictures_by_pixel_are_stacked_as_by_torch(shape, dtype):
    batch = [by_pixel(*shape, dtype=dtype) for _ in range(3)]
    found, expected = collate_samples(batch), default_collate(batch)
    assert torch.equal(found, expected)
    assert (found.dtype, places_of(found)) == (expected.dtype, places_of(expected))
    batch[0].add_(1)
    assert torch.equal(found, expected)


def test_clips_in_tuples_and_dicts_are_copied_without_torch(monkeypatch):
    clips = [by_pixel(4, 3, 6, 5) for _ in range(3)]
    expected = default_collate(clips)
    monkeypatch.setattr(torch, "stack", None)
    monkeypatch.setitem(collation.default_collate_fn_map, torch.Tensor, None)
    assert torch.equal(collate_samples([(each, 1) for each in clips])[0], expected)
    assert torch.equal(collate_samples([{"frames": each} for each in clips])["frames"], expected)


@pytest.mark.parametrize(
    "other",
    [
        torch.zeros(4, 3, 6, 5, dtype=torch.uint8),
        by_pixel(4, 3, 6, 5)[:, :, :, ::2],
        by_pixel(4, 3, 6, 5, dtype=torch.float32).requires_grad_(),
        by_pixel(4, 3, 6, 5, dtype=torch.float32)._neg_view(),
        torch.nn.Parameter(by_pixel(4, 3, 6, 5, dtype=torch.float32)),
    ],
    ids=["by-plane", "strided", "grad", "negative", "subclass"],
)
def test_other_tensors_are_left_to_torch(other):
    for batch in ([other, other], [by_pixel(*other.shape, dtype=other.dtype), other]):
        found, expected = collate_samples(batch), default_collate(batch)
        assert torch.equal(found, expected)
        assert (found.stride(), found.requires_grad) == (expected.stride(), expected.requires_grad)


def test_shapes_that_differ_are_refused_by_torch():
    with pytest.raises(RuntimeError, match="equal size"):
        collate_samples([by_pixel(4, 3, 6, 5), by_pixel(4, 3, 6, 7)])
