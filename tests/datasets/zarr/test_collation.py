"""Arrays of samples are stacked as they are nested, into memory of the batch's own."""

import numpy as np
import torch

from penstock.datasets.zarr.collation import stacked, stacked_tensors


def test_nested_samples_are_stacked():
    first, second = np.zeros((2, 3), "f4"), np.ones((2, 3), "f4")
    samples = [({"a": first, "b": first[0]}, first), ({"a": second, "b": second[0]}, second)]
    inputs, targets = stacked(samples)
    assert (inputs["a"].shape, inputs["b"].shape, targets.shape) == ((2, 2, 3), (2, 3), (2, 2, 3))
    tensors, _ = stacked_tensors(samples)
    assert isinstance(tensors["a"], torch.Tensor)
    assert torch.equal(tensors["a"], torch.from_numpy(np.stack([first, second])))


def test_a_batch_shares_no_memory_with_its_samples():
    view = np.zeros(3, "f4")
    batch = stacked_tensors([view])
    batch += 1
    assert view.tolist() == [0, 0, 0]
