"""Tensors as bytes: what a file cannot hold is refused by name, all else comes in order and in little memory."""

from __future__ import annotations

import pytest
import torch

from penstock.checkpoint.safetensors.header import Entry
from penstock.checkpoint.transfer.tensors import described, empty, memory, pieces, shape_of
from penstock.errors import CheckpointError, Unusable

MIB = 1 << 20


def _bytes(tensor):
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())


@pytest.mark.parametrize(  # functions: what they make is not kept for the whole run
    "make",
    [
        lambda: torch.rand(2000, 3000).t(),
        lambda: torch.rand(7, 5, 3).permute(2, 0, 1),
        lambda: torch.rand(1, 3_000_000, 2)[:, ::2],
        lambda: torch.rand(3, 1).expand(3, 4_000_000),
        lambda: torch.rand(4_000_000, 2)[:, 1],
        lambda: torch.rand(3, 5, dtype=torch.complex128).t(),
        lambda: torch.rand(1000, dtype=torch.complex64).conj(),
        lambda: torch.rand(2_000_000, dtype=torch.complex64).conj(),
        lambda: torch.rand(9, requires_grad=True),
        lambda: torch.tensor(3),
        lambda: torch.rand(6)[2:2],
        lambda: torch.rand(0, 4).t(),
    ],
    ids=[
        "turned",
        "permuted",
        "cut",
        "wide",
        "column",
        "complex",
        "conjugate",
        "large-conjugate",
        "graded",
        "scalar",
        "empty",
        "flat",
    ],
)
def test_any_strides_come_as_a_contiguous_tensor_would_and_in_pieces(make):
    tensor = make()
    found = [bytes(piece) for piece in pieces(tensor)]
    assert b"".join(found) == _bytes(tensor.detach().resolve_conj())
    assert all(len(piece) <= 8 * MIB for piece in found)


@pytest.mark.parametrize("dtype", ["float4_e2m1fn_x2", "float8_e5m2", "float8_e8m0fnu", "bool", "uint16", "bfloat16"])
def test_any_dtype_may_be_turned(dtype):
    line = torch.randint(0, 2, (60 * getattr(torch, dtype).itemsize,), dtype=torch.uint8)
    tensor = line.view(getattr(torch, dtype)).reshape(6, 10)
    turned = torch.stack(tensor.view(torch.uint8).reshape(6, 10, -1).unbind(1))
    assert b"".join(map(bytes, pieces(tensor.t()))) == _bytes(turned)


def test_a_contiguous_tensor_is_not_copied():
    tensor = torch.zeros(5 * MIB)
    (piece,) = pieces(tensor)
    memory(tensor)[:4] = b"\0\0\x80\x3f"
    assert bytes(piece[:4]) == b"\0\0\x80\x3f"
    assert tensor[0] == 1


BASE = torch.zeros(10)


@pytest.mark.parametrize(
    ("tensors", "what"),
    [
        ({"a": BASE, "b": BASE}, "'a' and 'b' share memory"),
        ({"a": BASE, "b": BASE[3:4]}, "'a' and 'b' share memory"),
        ({"c": BASE[:3], "b": BASE[4:], "a": BASE[2:5].view(torch.int32)}, "'c' and 'a' share memory"),
        ({"a": [1, 2]}, "'a' cannot be saved: names are text and values are tensors, not str and list"),
        ({1: BASE}, "1 cannot be saved: names are text"),
        ({"a": BASE.to_sparse()}, "'a' cannot be saved: it is no plain array"),
        ({"a": BASE.to("meta")}, "'a' cannot be saved: it is no plain array"),
        ({"a": torch.zeros(2, dtype=torch.complex128)}, "'a' cannot be saved: the format has no dtype for torch.compl"),
    ],
)
def test_what_a_file_cannot_hold_is_refused_and_named(tensors, what):
    with pytest.raises(Unusable) as told:
        described(tensors)
    assert what in str(told.value)


def test_tensors_side_by_side_in_one_memory_are_none_that_share():
    assert [each[0] for each in described({"a": BASE[:3], "b": BASE[3:], "c": BASE[5:5]})] == ["a", "b", "c"]


def test_two_elements_in_one_are_counted_as_the_file_counts_them():
    packed = torch.zeros(3, 4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    assert described({"a": packed}) == [("a", "F4", (3, 8))]
    assert shape_of(Entry("a", "F4", (3, 8), 0, 12)) == (3, 4)


@pytest.mark.parametrize("entry", [Entry("a", "F6_E2M3", (4,), 0, 3), Entry("a", "F4", (2, 3), 0, 3)])
def test_what_torch_has_no_dtype_for_is_told_and_named(entry):
    with pytest.raises(CheckpointError, match=f"'a' is {entry.dtype}"):
        empty(entry, shape_of(entry), torch.device("cpu"))
