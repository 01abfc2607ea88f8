"""Tensors as bytes: in order and in little memory."""

from __future__ import annotations

import pytest
import torch

from penstock.checkpoint.staging import iterate_bytes, memory

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
    found = [bytes(piece) for piece in iterate_bytes(tensor)]
    assert b"".join(found) == _bytes(tensor.detach().resolve_conj())
    assert all(len(piece) <= 8 * MIB for piece in found)


@pytest.mark.parametrize("dtype", ["float4_e2m1fn_x2", "float8_e5m2", "float8_e8m0fnu", "bool", "uint16", "bfloat16"])
def test_any_dtype_may_be_turned(dtype):
    line = torch.randint(0, 2, (60 * getattr(torch, dtype).itemsize,), dtype=torch.uint8)
    tensor = line.view(getattr(torch, dtype)).reshape(6, 10)
    turned = torch.stack(tensor.view(torch.uint8).reshape(6, 10, -1).unbind(1))
    assert b"".join(map(bytes, iterate_bytes(tensor.t()))) == _bytes(turned)


def test_a_contiguous_tensor_is_not_copied():
    tensor = torch.zeros(5 * MIB)
    (piece,) = iterate_bytes(tensor)
    memory(tensor)[:4] = b"\0\0\x80\x3f"
    assert bytes(piece[:4]) == b"\0\0\x80\x3f"
    assert tensor[0] == 1
