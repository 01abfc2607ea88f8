"""Safetensors' dtypes: what a file cannot hold is refused by name, and so is what this torch cannot."""

from __future__ import annotations

import pytest
import torch

from penstock.checkpoint.safetensors.header import TensorEntry, described, empty, shape_of
from penstock.errors import CheckpointError, Unusable

BASE = torch.zeros(10)


@pytest.mark.parametrize(
    ("tensors", "what"),
    [
        ({"a": BASE, "b": BASE}, "'a' and 'b' share memory"),
        ({"a": BASE, "b": BASE[3:4]}, "'a' and 'b' share memory"),
        ({"c": BASE[:3], "b": BASE[4:], "a": BASE[2:5].view(torch.int32)}, "'c' and 'a' share memory"),
        ({"a": [1, 2]}, "'a' cannot be saved: names must be text and values tensors, got str and list"),
        ({1: BASE}, "1 cannot be saved: names must be text"),
        ({"a": BASE.to_sparse()}, "'a' cannot be saved: it is not a plain array"),
        ({"a": BASE.to("meta")}, "'a' cannot be saved: it is not a plain array"),
        ({"a": torch.zeros(2, dtype=torch.complex128)}, "'a' cannot be saved: the format has no dtype for torch.compl"),
    ],
)
def test_unsupported_tensors_are_refused_and_named(tensors, what):
    with pytest.raises(Unusable) as told:
        described(tensors)
    assert what in str(told.value)


def test_tensors_side_by_side_in_one_memory_are_none_that_share():
    assert [each[0] for each in described({"a": BASE[:3], "b": BASE[3:], "c": BASE[5:5]})] == ["a", "b", "c"]


def test_two_elements_in_one_are_counted_as_the_file_counts_them():
    packed = torch.zeros(3, 4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    assert described({"a": packed}) == [("a", "F4", (3, 8))]
    assert shape_of(TensorEntry("a", "F4", (3, 8), 0, 12)) == (3, 4)


@pytest.mark.parametrize("entry", [TensorEntry("a", "F6_E2M3", (4,), 0, 3), TensorEntry("a", "F4", (2, 3), 0, 3)])
def test_dtype_unsupported_by_torch_is_refused_with_the_tensor_name(entry):
    with pytest.raises(CheckpointError, match=f"'a' is {entry.dtype}"):
        empty(entry, shape_of(entry), torch.device("cpu"))
