"""Arrays of samples are stacked as they are nested, into memory of the batch's own."""

import pickle

import numpy as np
import pytest
import torch

from penstock.data.zarr.chunks.pool import MemoryPool
from penstock.data.zarr.values import Stacking, Values

LARGE = (128, 256)  # of float32: 128 KiB


TYPES = pytest.mark.parametrize("dtype", [None, torch.bfloat16])


def _stacking(*, numpy=False, dtype=None, free_bytes=1 << 24):
    return Stacking(MemoryPool(free_bytes), Values(("",), None, numpy, dtype))


def test_nested_samples_are_stacked():
    first, second = np.zeros((2, 3), "f4"), np.ones((2, 3), "f4")
    samples = [({"a": first, "b": first[0]}, first), ({"a": second, "b": second[0]}, second)]
    inputs, targets = _stacking(numpy=True)(samples)
    assert (inputs["a"].shape, inputs["b"].shape, targets.shape) == ((2, 2, 3), (2, 3), (2, 2, 3))
    tensors, _ = _stacking()(samples)
    assert isinstance(tensors["a"], torch.Tensor)
    assert torch.equal(tensors["a"], torch.from_numpy(np.stack([first, second])))


@pytest.mark.parametrize("shape", [(3,), LARGE])
def test_a_batch_shares_no_memory_with_its_samples(shape):
    view = np.zeros(shape, "f4")
    batch = _stacking()([view])
    batch += 1
    assert not view.any()


@TYPES
def test_later_batches_do_not_overwrite_a_kept_batch(dtype):
    stacking = _stacking(dtype=dtype)
    kept = [stacking([np.full(LARGE, number, "f4")])[0, 3:5] for number in range(20)]
    assert [each.unique().tolist() for each in kept] == [[float(number)] for number in range(20)]


@TYPES
def test_memory_of_a_batch_is_used_for_the_next(dtype):
    sample = np.zeros(LARGE, "f4")
    stacking = _stacking(dtype=dtype, free_bytes=3 * 4 * sample.nbytes)
    addresses = {stacking([sample] * 4).data_ptr() for _ in range(200)}
    assert len(addresses) == 1


@TYPES
def test_samples_of_several_shapes_are_refused(dtype):
    with pytest.raises(ValueError, match="same shape"):
        _stacking(dtype=dtype)([np.zeros(LARGE, "f4"), np.zeros(LARGE[1:], "f4")])


def test_stacking_is_usable_after_pickling():
    stacking = pickle.loads(pickle.dumps(_stacking(numpy=True)))
    assert stacking([np.ones(2)]).tolist() == [[1, 1]]
