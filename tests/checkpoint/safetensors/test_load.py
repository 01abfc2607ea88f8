"""What is staged lands as what goes straight: page-locked memory is all that the CPU cannot show."""

from __future__ import annotations

import random

import pytest
import torch

import penstock as ps
from penstock.checkpoint.safetensors.header import TensorSpan, load_tensors, shape_of
from penstock.checkpoint.safetensors.index import resolve
from penstock.errors import ChecksumMismatch
from penstock.events import RangeRead, subscribe
from penstock.source import open_source

MIB = 1 << 20


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Save tensors of all sizes, those larger than a stage too; yield them and their spans."""
    path = tmp_path_factory.mktemp("load") / "a.safetensors"
    rng = random.Random(5)
    sizes = [0, 1, 10, 20 * MIB, 5, 0, 3 * MIB + 1, 33 * MIB, *(rng.randrange(MIB) for _ in range(40))]
    tensors = {f"{number:02}": torch.randint(0, 99, (size,), dtype=torch.uint8) for number, size in enumerate(sizes)}
    ps.save_safetensors(tensors, path)
    return path, tensors


def _spans(path, names):
    source, key = open_source(path)
    files = resolve(source, key)
    entries = [(files[name], files[name].header.entries[name]) for name in names]
    return source, [
        TensorSpan(of, of.origin + each.start, of.origin + each.stop, each, shape_of(each)) for of, each in entries
    ]


@pytest.mark.parametrize("staged", [False, True], ids=["straight", "staged"])
@pytest.mark.parametrize("step", [1, 3, -1], ids=["all", "some", "backwards"])
def test_all_lands_in_order_and_is_read_about_once(saved, staged, step):
    path, tensors = saved
    names = list(tensors)[::step]
    source, spans = _spans(path, names)
    read = []
    leave = subscribe(lambda event: read.append(event.size_bytes) if isinstance(event, RangeRead) else None)
    loaded = load_tensors(source, spans, torch.device("cpu"), by_stages=staged)
    leave()
    assert all(torch.equal(each, tensors[name]) for each, name in zip(loaded, names, strict=True))
    wanted = sum(tensors[name].nbytes for name in names)
    ends = 3 if step == 1 else len(names)  # of large tensors only, where the small ones between are read along
    assert sum(read) <= wanted + 2 * MIB * ends, "a block at each end, and no more"


@pytest.mark.parametrize("staged", [False, True], ids=["straight", "staged"])
def test_damage_is_named_by_its_tensor(saved, tmp_path, staged):
    path, tensors = saved
    body = bytearray(path.read_bytes())
    body[-1] ^= 1
    (tmp_path / "b.safetensors").write_bytes(body)
    source, spans = _spans(tmp_path / "b.safetensors", tensors)
    with pytest.raises(ChecksumMismatch, match=rf"of tensor .*'{list(tensors)[-1]}'.*b\.safetensors"):
        load_tensors(source, spans, torch.device("cpu"), by_stages=staged)
    assert len(load_tensors(source, spans[:5], torch.device("cpu"), by_stages=staged)) == 5, (
        "what is whole is still read"
    )


def test_a_message_names_a_few_tensors_and_counts_the_rest(tmp_path):
    ps.save_safetensors({f"{n:03}": torch.zeros(1) for n in range(200)}, tmp_path / "a.safetensors")
    _, (first, *_) = _spans(tmp_path / "a.safetensors", ["000"])
    assert first.of.within(first.start, first.of.size).endswith("of tensor '000', '001', '002' and 197 more,")
