"""Headers take as few requests as they can, and are of the version that is read on from."""

from __future__ import annotations

import json

import pytest
import torch

import penstock as ps
from penstock.checkpoint.safetensors.index import resolve
from penstock.errors import Changed, CheckpointError, NotFound
from penstock.events import RangeRead, subscribe
from penstock.source import Source, open_source


@pytest.fixture
def reads():
    """Collect the reads."""
    seen: list[RangeRead] = []
    leave = subscribe(lambda event: seen.append(event) if isinstance(event, RangeRead) else None)
    yield seen
    leave()


@pytest.mark.parametrize(("count", "requests"), [(3, 1), (5000, 2)], ids=["short", "long"])
def test_a_header_takes_one_read_and_a_long_one_two(tmp_path, reads, count, requests):
    tensors = {f"layers.{number:05}.weight": torch.full((3,), number) for number in range(count)}
    ps.save_safetensors(tensors, tmp_path / "a.safetensors")
    source, key = open_source(tmp_path / "a.safetensors")
    assert list(resolve(source, key)) == sorted(tensors)
    assert len(reads) == requests
    assert sum(each.size_bytes for each in reads) < 128 << 10 or requests == 2
    found = ps.load_safetensors(tmp_path / "a.safetensors")
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


def test_file_replaced_after_its_head_request_raises_changed(tmp_path, monkeypatch):
    path, heads = tmp_path / "a.safetensors", Source.stat_many
    ps.save_safetensors({"a": torch.zeros(9)}, path)

    def late(self, keys):
        found = heads(self, keys)
        ps.save_safetensors({"a": torch.ones(9)}, path, overwrite=True)
        return found

    monkeypatch.setattr(Source, "stat_many", late)
    with pytest.raises(Changed, match=r"a\.safetensors"):
        ps.open_safetensors(path)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9])
def test_file_of_a_few_bytes_is_refused_as_safetensors(tmp_path, size):
    (tmp_path / "a.safetensors").write_bytes(bytes(size))
    with pytest.raises(CheckpointError, match=r"safetensors file.*a\.safetensors"):
        ps.load_safetensors(tmp_path / "a.safetensors")


def test_index_that_leaves_out_a_tensor_of_its_files_is_refused_unless_tensors_are_named(tmp_path):
    ps.save_safetensors({"a": torch.ones(2), "b": torch.zeros(3)}, tmp_path / "x.safetensors")
    index = {"metadata": {}, "weight_map": {"a": "x.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    with pytest.raises(CheckpointError, match=r"holds tensor 'b', which its index, .*names=.*x\.safetensors"):
        ps.load_safetensors(tmp_path)
    assert ps.load_safetensors(tmp_path, names=["a"])["a"].tolist() == [1, 1]


def test_folder_without_safetensors_reports_both_expected_names(tmp_path):
    with pytest.raises(NotFound, match=r"neither model\.safetensors\.index\.json nor model\.safetensors"):
        ps.load_safetensors(tmp_path)
