"""A state in several files: each within its size, every tensor once, and an index that tells when it is damaged."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.checkpoint.safetensors.index import Index, file_names, resolve, split_names
from penstock.errors import Changed, CheckpointError, NotFound
from penstock.events import RangeRead, subscribe
from penstock.source import Source, open_source

URL = "s3://bucket/model.safetensors.index.json"


@given(st.dictionaries(st.text(max_size=5), st.integers(0, 100)), st.integers(1, 150))
def test_files_hold_every_tensor_once_in_order_and_no_more_than_fits(sizes, most):
    files = split_names(sizes, most)
    assert [name for names in files for name in names] == list(sizes)
    assert all(sum(sizes[name] for name in names) <= most for names in files if len(names) > 1)
    assert files == [[]] or all(files), "no file is empty, but for no tensors at all"


def test_shard_file_names_follow_the_common_convention():
    assert file_names(2) == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert file_names(1, "3fa0")[0] == "model-3fa0-00001-of-00001.safetensors"


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from(file_names(3))))
def test_encoded_index_round_trips_with_total_size_and_weight_map(files):
    digests = dict.fromkeys(files.values(), "0123456789abcdef")
    raw = Index(files, digests, 12).encode()
    assert Index.decode(raw, URL) == Index(files, digests)
    assert json.loads(raw)["metadata"]["total_size"] == 12
    assert json.loads(raw)["weight_map"] == files


def test_every_flipped_bit_of_an_index_is_found():
    raw = Index({"a": file_names(1)[0], "ü": file_names(1)[0]}, {file_names(1)[0]: "0" * 16}, 12).encode()
    for at in range(len(raw)):
        for bit in range(8):
            flipped = bytearray(raw)
            flipped[at] ^= 1 << bit
            with pytest.raises(CheckpointError, match="index"):
                Index.decode(bytes(flipped), URL)


def test_an_index_of_others_needs_nothing_of_ours():
    raw = json.dumps({"metadata": {"total_size": 1}, "weight_map": {"a": "pytorch.safetensors"}}).encode()
    assert Index.decode(raw, URL) == Index({"a": "pytorch.safetensors"}, {})
    assert Index.decode(b'{"weight_map": {}}', URL) == Index({}, {})


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b'{"weight_map": []}',
        b'{"weight_map": {"a": 1}}',
        b'{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}',
        b'{"weight_map": {"a": "../x.safetensors"}}',
        b'{"weight_map": {"a": "/etc/x.safetensors"}}',
        b'{"weight_map": {"a": "x\\\\y.safetensors"}}',
        b'{"weight_map": {"a": "x.bin"}}',
        b'{"weight_map": {"a": "x\\u0000.safetensors"}}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_invalid_index_or_path_outside_the_folder_is_refused(raw):
    with pytest.raises(CheckpointError, match="index"):
        Index.decode(raw, URL)


# Headers take as few requests as they can, and are of the version that is read on from.


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
