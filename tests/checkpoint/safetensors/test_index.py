"""A state in several files: each within its size, every tensor once, and an index that tells when it is damaged."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.safetensors.index import Index, file_names, split_names
from penstock.errors import CheckpointError

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
