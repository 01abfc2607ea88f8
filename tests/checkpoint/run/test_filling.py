"""A state is filled in place with values of every form that fits; others are refused before anything changes."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import pytest
import torch

import penstock as ps
from penstock.checkpoint.run.filling import fill_state
from penstock.errors import Unusable

EYE = torch.eye(4)
OTHER = torch.arange(16.0).reshape(4, 4)


def _quantized(tensor, scale=0.5):
    return _made(torch, "quantize_per_tensor", tensor, scale, 0, torch.qint8)


def _made(tensor, form, *size):
    with warnings.catch_warnings():
        # torch says of each that it is in beta, or deprecated.
        warnings.simplefilter("ignore")
        return getattr(tensor, form)(*size)


SHIFTED = EYE.roll(1, 1)


class Pair(NamedTuple):
    n: int
    t: Any


@pytest.mark.parametrize(
    ("own", "value"),
    [
        (EYE.to_sparse(), OTHER.to_sparse()),
        (torch.nn.Parameter(EYE.to_sparse()), OTHER.to_sparse()),
        (_made(EYE, "to_sparse_csr"), _made(SHIFTED, "to_sparse_csr")),
        (_made(EYE, "to_sparse_csc"), _made(SHIFTED, "to_sparse_csc")),
        (_made(EYE, "to_sparse_bsr", (2, 2)), _made(3 * EYE, "to_sparse_bsr", (2, 2))),
        (_quantized(EYE), _quantized(OTHER, 0.25)),
        (torch.zeros(2, dtype=torch.complex64).conj(), torch.tensor([1 + 2j, 3j])),
        (torch.zeros(2)._neg_view(), torch.ones(2)),
        (torch.zeros(4, 3).T, torch.arange(12.0).view(3, 4)),
        (torch.zeros(8)[::2], torch.arange(4.0)),
        (torch.zeros(()), torch.tensor(3.0)),
        (torch.zeros(0, 2), torch.zeros(0, 2)),
        (torch.zeros(2), torch.ones(1).expand(2)),
        (torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.int32)),
        (torch.zeros(2, dtype=torch.float16), torch.ones(2, dtype=torch.float64)),
    ],
    ids=lambda each: str(each)[:40],
)
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_tensors_of_each_form_are_filled_in_place(tmp_path, own, value):
    run = ps.CheckpointManager(tmp_path)
    run.save(1, {"a": value, "b": (1, [value])})
    into = {"a": own}
    assert run.restore(into=into)["a"] is own
    dense = [each.detach().dequantize() if each.is_quantized else each.detach().to_dense() for each in (own, value)]
    assert torch.equal(dense[0], dense[1].to(own.dtype) if not own.is_quantized else dense[1])


@pytest.mark.parametrize(
    ("own", "value", "message"),
    [
        (EYE.to_sparse(), OTHER, "sparse_coo.*, and the checkpoint has a tensor"),
        (EYE, OTHER.to_sparse(), "the checkpoint has a tensor .*sparse_coo"),
        (_made(EYE, "to_sparse_csr"), _made(OTHER, "to_sparse_csr"), "other places for elements"),
        (_quantized(EYE), OTHER, "is quantized"),
        (_quantized(EYE), _made(torch, "quantize_per_tensor", OTHER, 1, 0, torch.quint8), "quantized in another way"),
        (_made(torch.nested, "nested_tensor", [EYE]), _made(torch.nested, "nested_tensor", [EYE]), "is nested"),
        (torch.zeros(1).expand(2), torch.ones(2), "several elements in one place"),
        (torch.zeros(4).as_strided((3, 2), (1, 1)), torch.ones(3, 2), "several elements in one place"),
        (torch.zeros(2), torch.ones(2, dtype=torch.complex64), "cannot hold the checkpoint's torch.complex64"),
        (torch.zeros(2, dtype=torch.int64), torch.ones(2), "cannot hold the checkpoint's torch.float32"),
        (torch.zeros(2, dtype=torch.int8), torch.ones(2, dtype=torch.int64), "cannot hold"),
        (torch.zeros(2), torch.ones(2, device="meta"), "map_location='meta'"),
        ((torch.zeros(2),), (torch.ones(2), 1), "holds tensors, .* the checkpoint has a tuple of 2"),
        ([torch.zeros(2)], [1, 2], "holds tensors, .* the checkpoint has a list of 2"),
        ({"t": torch.zeros(2)}, None, "holds tensors, .* the checkpoint has None"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_a_place_of_another_form_is_refused_before_anything_is_filled(own, value, message):
    first = torch.zeros(2)
    with pytest.raises(Unusable, match=rf"into\['a'\].*{message}"):
        fill_state({"z": first, "a": own}, {"z": torch.ones(2), "a": value})
    assert first.tolist() == [0, 0]


def test_a_tensor_of_inference_mode_is_refused_outside_it():
    with torch.inference_mode():
        own = torch.zeros(2)
    with pytest.raises(Unusable, match="inference mode"):
        fill_state({"a": own}, {"a": torch.ones(2)})
    with torch.inference_mode():
        fill_state({"a": own}, {"a": torch.ones(2)})
    assert own.tolist() == [1, 1]


def test_tensors_in_tuples_are_filled_and_the_other_elements_replaced():
    tensor = torch.zeros(2)
    into = {"a": (1, {"t": tensor, "n": 1}), "b": Pair(0, torch.zeros(1))}
    fill_state(into, {"a": (2, {"t": torch.ones(2), "n": 5}), "b": Pair(4, torch.ones(1))})
    assert tensor.tolist() == [1, 1]
    assert into["a"] == (2, {"t": tensor, "n": 5})
    assert (type(into["b"]), into["b"].n, into["b"].t.tolist()) == (Pair, 4, [1])


def test_tied_tensors_are_filled_unless_the_checkpoint_has_different_values():
    tied, nan = torch.zeros(4), float("nan")
    columns = torch.zeros(2, 2)
    into = {"a": tied, "b": tied[:], "c": columns[:, :1], "d": columns[:, 1:]}
    values = {"a": torch.full((4,), nan), "b": torch.full((4,), nan), "c": torch.ones(2, 1), "d": torch.zeros(2, 1)}
    fill_state(into, values)
    assert columns.tolist() == [[1, 0], [1, 0]]
    with pytest.raises(Unusable, match=r"into\['a'\] shares memory with another tensor"):
        fill_state(into, {**values, "b": torch.ones(4)})
