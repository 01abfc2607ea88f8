"""What an index needs of a tensor is one run of it, no longer than need be, and what is left gives what torch gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, reject
from hypothesis import strategies as st

import penstock as ps
from penstock.checkpoint.safetensors.verbs import Cut, resolve_index

BOUND = st.none() | st.integers(-7, 7)
SLICES = st.builds(slice, BOUND, BOUND, st.none() | st.integers(1, 3))


@st.composite
def indexed(draw):
    """Draw a shape and an index that a tensor of it takes."""
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=4)))
    index = []
    for size in shape[: draw(st.integers(0, len(shape)))]:
        whole = st.integers(-size, size - 1) if size else SLICES
        index.append(draw(SLICES | whole))
    if draw(st.booleans()):
        index.insert(draw(st.integers(0, len(index))), draw(st.sampled_from([..., None])))
    chosen = index[0] if len(index) == 1 and draw(st.booleans()) else tuple(index)
    try:
        torch.empty(shape)[chosen]
    except IndexError:  # an ellipsis may move a number to a dimension of none
        reject()
    return shape, chosen


@given(indexed())
def test_cut_run_and_remaining_index_match_torch_indexing(drawn):
    shape, index = drawn
    tensor = torch.arange(torch.Size(shape).numel()).reshape(shape)
    start, stop, inner, rest = resolve_index(shape, index)
    found = tensor.reshape(-1)[start:stop].reshape(inner)[rest]
    assert found.shape == tensor[index].shape
    assert torch.equal(found, tensor[index])


@pytest.mark.parametrize(
    ("index", "start", "stop"),
    [
        ((), 0, 60),
        (2, 30, 45),
        (-1, 45, 60),
        ((3, 1), 50, 55),
        ((3, 1, 4), 54, 55),
        (slice(1, 3), 15, 45),
        ((1, slice(1, 3)), 20, 30),
        ((1, 2, slice(1, 3)), 26, 28),
        ((slice(0, 4, 2), 1), 0, 45),
        ((slice(2, 2), 1), 0, 0),
        ((slice(1, 2), slice(0, 1)), 15, 30),
        (..., 0, 60),
        ((2, ..., 1), 30, 45),
        ([3, 1], 0, 60),
        ((2, [0, 1]), 30, 45),
        (True, 0, 60),
    ],
)
def test_a_run_is_as_short_as_one_run_can_be(index, start, stop):
    found = resolve_index((4, 3, 5), index)
    assert isinstance(found, Cut)
    assert (found.start, found.stop) == (start, stop)
    tensor = torch.arange(60).reshape(4, 3, 5)
    assert torch.equal(tensor.reshape(-1)[start:stop].reshape(found.shape)[found.rest], tensor[index])


@pytest.mark.parametrize("row", [4, -5])
@pytest.mark.parametrize("columns", [np.int64(0), torch.tensor([0]), [0]], ids=["numpy", "tensor", "list"])
def test_row_beyond_the_tensor_raises_beside_any_other_index(tmp_path, row, columns):
    file = f"{tmp_path}/model.safetensors"
    ps.save_safetensors({"weight": torch.arange(12).reshape(4, 3)}, file)
    rows = ps.open_safetensors(file).get_slice("weight")
    with pytest.raises(IndexError):
        rows[row, columns]
    assert torch.equal(rows[-4, columns], torch.arange(12).reshape(4, 3)[0, columns])
    with pytest.raises(ValueError, match="step must be greater than zero"):
        rows[::-1, columns]
