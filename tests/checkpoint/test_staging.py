"""Memory that tensors pass through is copied into once, used again, and cut where blocks end."""

from __future__ import annotations

import collections
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.staging import STAGE_BYTES, Stage, allocate_stage, cuts, iterate_bytes, memory, staged_bytes


class Pair(NamedTuple):
    left: torch.Tensor
    right: str


def test_staging_copies_tensors_and_keeps_the_rest():
    tied = torch.rand(3, requires_grad=True)
    module = torch.nn.BatchNorm1d(3)
    state = {
        "tied": [tied, tied],
        "pair": Pair(torch.ones(2), "text"),
        "module": module.state_dict(),
        "counts": collections.defaultdict(int, {"a": 1}),
        "number": 3,
    }
    found = Stage().copy(state)
    assert torch.equal(found["tied"][0], tied)
    assert found["tied"][0] is found["tied"][1] is not tied
    assert not found["tied"][0].requires_grad
    assert isinstance(found["pair"], Pair)
    assert found["pair"].left is not state["pair"].left
    assert found["module"]._metadata == module.state_dict()._metadata
    assert found["counts"]["missing"] == 0
    assert found["number"] == 3
    assert staged_bytes(state) == 4 * (3 + 2 + 4 * 3) + 8


@pytest.mark.filterwarnings("ignore::UserWarning")  # prototypes, and quantized tensors are deprecated
def test_staging_copies_tensors_that_have_no_empty_form():
    ones = torch.ones(2, 3)
    state = {
        "meta": torch.empty(3, device="meta"),
        "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "rows": torch.quantize_per_channel(ones, torch.ones(2), torch.zeros(2), 0, torch.qint8),
        "sparse": ones.to_sparse_csr(),
    }
    found = Stage().copy(state)
    state["nested"].unbind()[0].zero_()
    assert found["meta"].is_meta
    assert found["nested"].unbind()[0].tolist() == [1, 1]
    assert torch.equal(found["rows"].dequantize(), ones)
    assert torch.equal(found["sparse"].to_dense(), ones)


def test_the_next_copy_takes_the_memory_of_the_one_before():
    stage = Stage()
    first = {"a": torch.ones(1000), "b": torch.ones(3, 5).T, "c": torch.ones(1000), "d": torch.ones(1).expand(7)}
    memory = {stage.copy(first)[name].data_ptr() for name in "abc"}
    second = {name: tensor * 2 for name, tensor in first.items()} | {"e": torch.ones(1000)}
    found = stage.copy(second)
    assert all(torch.equal(found[name], second[name]) for name in second)
    places = [found[name].data_ptr() for name in "abce"]
    assert {places[0], places[2]} < memory
    assert len(set(places)) == 4, "none is taken twice"


@given(st.integers(0, 5 * STAGE_BYTES), st.integers(0, 3 * STAGE_BYTES), st.integers(0, 100))
def test_cuts_are_all_of_a_range_in_order_and_end_where_stages_end(start, size, origin):
    found = list(cuts(start, start + size, origin))
    assert [each for pair in found for each in pair] == sorted(each for pair in found for each in pair)
    assert sum(stop - low for low, stop in found) == size
    assert all(stop - low <= STAGE_BYTES for low, stop in found)
    assert all((stop - origin) % STAGE_BYTES == 0 for _, stop in found[:-1])
    assert all(low < stop for low, stop in found)


def test_a_stage_is_a_line_of_bytes():
    assert (allocate_stage(7, page_locked=False).dtype, allocate_stage(7, page_locked=False).shape) == (
        torch.uint8,
        (7,),
    )


# Tensors as bytes: in order and in little memory.


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
