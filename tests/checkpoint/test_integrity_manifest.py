"""A manifest is read as it was written or not at all, whoever wrote it."""

from __future__ import annotations

import json

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.integrity import (
    BLOCK_BYTES,
    BlockChecksums,
    Manifest,
    elements,
    step_name,
    step_of,
)
from penstock.errors import CheckpointError, Unusable

URL = "s3://b/run/checkpoint.json"
SAVE = "0123456789abcdef" * 2
OBJECTS = {
    f"{SAVE}/state.pt": BlockChecksums(BLOCK_BYTES + 1, bytes(range(16))),
    f"{SAVE}/empty": BlockChecksums(0, b""),
}
MANIFEST = Manifest(SAVE, "state", OBJECTS, {"step": 7, "metric": 0.25, "note": "naïve"})
DOCUMENT = {name: value for name, value in json.loads(MANIFEST.encode()).items() if name != "seal"}


def _checksums(document):
    """Write a document as a stranger would who knows how."""
    return _seal_of(json.dumps(document, sort_keys=True, separators=(",", ":")).encode())


def _seal_of(body):
    return body[:-1] + b',"seal":"%s"}' % xxhash.xxh3_64_hexdigest(body[:-1]).encode()


def test_manifest_decodes_to_the_value_it_was_encoded_from():
    assert Manifest.decode(MANIFEST.encode(), URL) == MANIFEST


@given(st.data())
def test_any_flipped_byte_is_seen_and_the_url_named(data):
    document = bytearray(MANIFEST.encode())
    at = data.draw(st.integers(0, len(document) - 1))
    document[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CheckpointError, match=URL):
        Manifest.decode(bytes(document), URL)


@given(st.integers(0, 400))
def test_a_cut_one_is_refused(length):
    document = MANIFEST.encode()
    if length < len(document):
        with pytest.raises(CheckpointError):
            Manifest.decode(document[:length], URL)


@pytest.mark.parametrize(
    "change",
    [
        {"objects": {"../../etc/passwd": {"size": 0, "digests": ""}}},
        {"objects": {"/etc/passwd": {"size": 0, "digests": ""}}},
        {"objects": {"a//b": {"size": 0, "digests": ""}}},
        {"objects": {"a/": {"size": 0, "digests": ""}}},
        {"objects": {"a/./b": {"size": 0, "digests": ""}}},
        {"objects": {"a\0b": {"size": 0, "digests": ""}}},
        {"objects": {"a\udcff": {"size": 0, "digests": ""}}},
        {"objects": {"": {"size": 0, "digests": ""}}},
        {"objects": {"a": {"size": 1 << 62, "digests": ""}}},
        {"objects": {"a": {"size": -1, "digests": ""}}},
        {"objects": {"a": {"size": True, "digests": "AAAAAAAAAAA="}}},
        {"objects": {"a": {"size": 1, "digests": "not base 64"}}},
        {"objects": {"a": {"size": 1.0, "digests": "AAAAAAAAAAA="}}},
        {"objects": []},
        {"objects": {"a": None}},
        {"save": 7},
        {"kind": None},
        {"content": 3},
        {"penstock_checkpoint": "1"},
        {"penstock_checkpoint": True},
        {"block_bytes": 1},
        {"digest": "crc32"},
        {"more": 1},
    ],
    ids=str,
)
def test_a_hostile_one_is_refused(change):
    with pytest.raises(CheckpointError, match="manifest"):
        Manifest.decode(_checksums({**DOCUMENT, **change}), URL)


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"7", b"{}", b"\xff", b"[" * 100_000], ids=lambda data: data[:8])
def test_invalid_manifest_data_is_refused(data):
    with pytest.raises(CheckpointError):
        Manifest.decode(data, URL)


def test_error_for_undecodable_manifest_stays_below_400_characters():
    with pytest.raises(CheckpointError) as caught:
        Manifest.decode(b'{"penstock_checkpoint":"' + b"\xff" * 100_000, URL)
    assert len(str(caught.value)) < 400


def test_manifest_above_the_value_limit_is_neither_read_nor_written():
    many = b'{"penstock_checkpoint":[' + b"[]," * (1 << 24)
    with pytest.raises(CheckpointError, match="more than 16,777,216 values"):
        Manifest.decode(many, URL)
    with pytest.raises(Unusable, match="more than 16,777,216 values"):
        Manifest("a" * 32, "state", {}, {"metric": "," * (1 << 24)}).encode()


@pytest.mark.parametrize(
    ("shape", "count"),
    [
        ((), 1),
        ((2, 3), 6),
        ((0, 1 << 62), 0),
        ((0, 1 << 62, 2), None),
        ((1,) * 100_000, 1),
        ((1 << 62,) * 100_000, None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_shape_counts_its_elements_as_far_as_63_bits_do(shape, count):
    assert elements(shape) == count


def test_newer_manifest_version_error_names_a_newer_penstock():
    with pytest.raises(CheckpointError, match="newer Penstock"):
        Manifest.decode(_checksums({**DOCUMENT, "penstock_checkpoint": 2, "more": "fields"}), URL)


@given(st.integers(0, 10**18 - 1))
def test_step_folder_name_encodes_the_step_and_sorts_by_it(step):
    assert step_of(step_name(step)) == step
    assert (step_name(step) < step_name(10**11)) == (step < 10**11)


@pytest.mark.parametrize("folder", ["", "7", "clock", "0000000000007", "-00000000007", "00000000000x", "٣" * 12])
def test_folder_names_of_other_forms_yield_no_step(folder):
    assert step_of(folder) is None
