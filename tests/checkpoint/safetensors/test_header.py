"""A safetensors header says what was encoded; a stranger's that breaks a rule is refused, and so is any flipped bit."""

from __future__ import annotations

import json
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.integrity import BLOCK_BYTES
from penstock.checkpoint.safetensors.header import DTYPES, encode, layout, parse, stop_of
from penstock.errors import CheckpointError, Unusable

URL = "s3://bucket/a.safetensors"
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).filter(lambda name: name != "__metadata__")
WHOLE_BYTES = sorted(dtype for dtype, bits in DTYPES.items() if bits % 8 == 0)
TENSORS = st.dictionaries(
    NAMES, st.tuples(st.sampled_from(WHOLE_BYTES), st.lists(st.integers(0, 5), max_size=4).map(tuple)), max_size=6
)
METADATA = st.dictionaries(NAMES.filter(lambda name: not name.startswith("penstock.")), NAMES, max_size=3)


def _digests(size: int) -> bytes:
    return bytes(range(8)) * -(-size // BLOCK_BYTES)


def _raw(document: object, size: int = 0) -> tuple[bytes, int]:
    """Return a header of any text, and the size of its file with ``size`` bytes of data."""
    text = document if isinstance(document, bytes) else json.dumps(document, separators=(",", ":")).encode()
    return len(text).to_bytes(8, "little") + text, 8 + len(text) + size


@given(TENSORS, METADATA)
def test_encoded_header_parses_to_the_same_entries_and_metadata(tensors, metadata):
    entries = layout((name, *each) for name, each in tensors.items())
    size = entries[-1].stop if entries else 0
    raw, digest = encode(entries, metadata, _digests(size))
    assert len(raw) % 64 == 0, "the data is aligned for any element"
    assert stop_of(raw[:8], len(raw) + size, URL) == len(raw)
    found = parse(raw, len(raw) + size, URL)
    assert found.metadata == metadata
    assert (found.digest, found.begin, found.checksums.size) == (digest, len(raw), size)
    assert {name: (each.dtype, each.shape) for name, each in found.entries.items()} == tensors
    assert all(each.stop - each.start == prod(each.shape) * DTYPES[each.dtype] // 8 for each in entries)


@given(TENSORS)
def test_header_without_penstock_checksums_and_metadata_is_parsed(tensors):
    entries = layout((name, *each) for name, each in tensors.items())
    size = entries[-1].stop if entries else 0
    described = {e.name: {"dtype": e.dtype, "shape": e.shape, "data_offsets": [e.start, e.stop]} for e in entries}
    found = parse(*_raw(described, size), URL)
    assert list(found.entries.values()) == sorted(entries, key=lambda each: (each.start, each.stop))
    assert (found.checksums, found.digest, found.metadata) == (None, "", {})


def test_every_flipped_bit_of_a_header_is_found():
    entries = layout([("weight", "F32", (3, 100)), ("bias", "F16", (100,)), ("none", "U8", (0,))])
    raw, _ = encode(entries, {"format": "pt", "ü": "\n"}, _digests(1400))
    parse(raw, len(raw) + 1400, URL)
    for at in range(len(raw)):
        for bit in range(8):
            flipped = bytearray(raw)
            flipped[at] ^= 1 << bit
            with pytest.raises(CheckpointError, match="safetensors"):
                stop = stop_of(bytes(flipped[:8]), len(raw) + 1400, URL)
                parse(bytes(flipped + bytes(1400))[:stop], len(raw) + 1400, URL)


def _entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize(
    ("document", "size", "what"),
    [
        ({"a": _entry(), "b": _entry(offsets=(4, 12))}, 12, "'b' at 4 to 12 overlaps"),
        ({"a": _entry(), "b": _entry(offsets=(9, 17))}, 17, "'b' at 9 to 17 leaves a gap"),
        ({"a": _entry(), "b": _entry(offsets=(0, 8))}, 8, "'b' at 0 to 8 overlaps"),
        ({"a": _entry(offsets=(1, 9))}, 9, "'a' at 1 to 9 leaves a gap"),
        ({"a": _entry()}, 7, "'a', ends at byte 8 of the data, and there are 7"),
        ({"a": _entry()}, 9, "'a', ends at byte 8 of the data, and there are 9"),
        ({}, 1, "no tensor, and the data ends at byte 0"),
        ({"a": _entry(offsets=(0, 7))}, 7, "'a' has 8 bytes and lies at"),
        ({"a": _entry(offsets=(8, 0))}, 8, "'a' has 8 bytes and lies at"),
        ({"a": _entry(offsets=(0, 8, 8))}, 8, "'a' has 8 bytes and lies at"),
        ({"a": _entry(offsets=(-8, 0))}, 8, "'a' has 8 bytes and lies at"),
        ({"a": _entry(offsets=(0.0, 8.0))}, 8, "'a' has 8 bytes and lies at"),
        ({"a": _entry("F4", (3,), (0, 1))}, 1, "'a' has 1.5 bytes"),
        ({"a": _entry("F33")}, 8, "'a' has an unknown dtype: 'F33'"),
        ({"a": _entry(["F32"])}, 8, "'a' has an unknown dtype"),
        ({"a": 5}, 8, "'a' has an unknown dtype: None"),
        ({"a": _entry(shape=(-2,))}, 8, "'a' has an impossible shape"),
        ({"a": _entry(shape=(True, 2))}, 8, "'a' has an impossible shape"),
        ({"a": _entry(shape=(2.0,))}, 8, "'a' has an impossible shape"),
        ({"a": _entry(shape=(1 << 62, 1 << 62))}, 8, "'a' has an impossible shape"),
        ({"a": _entry(shape=(0, 1 << 62, 1 << 62), offsets=(0, 0))}, 0, "'a' has an impossible shape"),
        ({"a": _entry(shape=(1 << 64,))}, 8, "'a' has an impossible shape"),
        ({"a": {"dtype": "F32", "shape": [2]}}, 8, "'a' has 8 bytes and lies at None"),
        ({"__metadata__": {"a": 1}}, 0, "must map str to str"),
        ({"__metadata__": "a"}, 0, "must map str to str"),
        (b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{}}', 8, "'a' occurs twice"),
        (b'{"a":{"dtype":"F32","dtype":"F16","shape":[2],"data_offsets":[0,8]}}', 8, "'dtype' occurs twice"),
        (b" {}", 0, "is missing at its beginning"),
        (b"[]", 0, "is missing at its beginning"),
        (b"{}{}", 0, "Extra data"),
        (b"{", 0, "Expecting"),
        (b"", 0, "is missing at its beginning"),
        (b'{"\xff":1}', 0, "utf-8"),
        (b'{"a":' + b"[" * 100_000, 0, "recursion"),
        (b'{"a":' + b"9" * 5000 + b"}", 0, "digits"),
        ('{"a":1}'.encode("utf-16-le"), 0, "Expecting"),
        ({"a": _entry(), "__metadata__": {"penstock.blocks": "AAAA"}}, 8, "digest does not match"),
        ({"a": _entry(), "__metadata__": {"penstock.header": "0" * 16}}, 8, "digest does not match"),
    ],
)
def test_header_rule_violation_is_refused_with_reason_and_url(document, size, what):
    with pytest.raises(CheckpointError, match=r"safetensors") as told:
        parse(*_raw(document, size), URL)
    assert what in str(told.value)
    assert URL in str(told.value)


def test_digests_of_other_data_are_refused():
    raw, _ = encode(layout([("a", "U8", (9,))]), {}, _digests(BLOCK_BYTES + 1))
    with pytest.raises(CheckpointError, match="16 bytes of digests for 9 bytes"):
        parse(raw, len(raw) + 9, URL)


@pytest.mark.parametrize("raw", [b"", b"1234567", (1 << 63).to_bytes(8, "little"), (100).to_bytes(8, "little")])
def test_a_header_longer_than_its_file_is_refused_before_it_is_read(raw):
    with pytest.raises(CheckpointError, match=r"not a safetensors file|safetensors file is incomplete"):
        stop_of(raw, max(len(raw), 100) if len(raw) == 8 else len(raw), URL)


def test_header_above_the_format_size_limit_is_refused():
    with pytest.raises(CheckpointError, match="100,000,001 bytes"):
        stop_of((100_000_001).to_bytes(8, "little"), 1 << 40, URL)
    assert stop_of((100_000_000).to_bytes(8, "little"), 1 << 40, URL) == 100_000_008


@pytest.mark.parametrize(
    ("name", "metadata", "what"),
    [
        ("__metadata__", {}, "cannot be named"),
        ("a\ud800", {}, "Unicode"),
        ("a", {"b": "\udfff"}, "Unicode"),
        ("a", {"b": 1}, "must map str to str"),
        ("a", {1: "b"}, "must map str to str"),
        ("a", {"penstock.blocks": ""}, "reserved for Penstock"),
        ("a", lambda: {"long": "x" * 100_000_000}, "100 MB are allowed"),  # not kept for all that comes after it
    ],
)
def test_unencodable_name_or_metadata_is_refused(name, metadata, what):
    with pytest.raises(Unusable, match=what):
        encode(layout([(name, "U8", ())]), metadata() if callable(metadata) else metadata, _digests(1))


def test_a_shape_of_many_large_numbers_is_refused_at_once():
    tensor = {"dtype": "U8", "shape": [(1 << 63) - 1] * 200_000, "data_offsets": [0, 0]}
    with pytest.raises(CheckpointError, match="impossible shape"):
        parse(*_raw({"a": tensor}), URL)


def test_a_header_of_more_values_than_any_models_is_refused_before_it_is_parsed():
    with pytest.raises(CheckpointError, match="4,194,304 values"):
        parse(*_raw(b'{"a":[' + b"{}," * 4_200_000 + b"1]}"), URL)
