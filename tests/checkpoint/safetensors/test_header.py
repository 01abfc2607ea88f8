"""A safetensors header says what was encoded; a stranger's that breaks a rule is refused, and so is any flipped bit."""

from __future__ import annotations

import json
import random
from math import prod

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.checkpoint.integrity import BLOCK_BYTES
from penstock.checkpoint.safetensors.header import (
    DTYPES,
    TensorEntry,
    TensorSpan,
    described,
    empty,
    encode,
    layout,
    load_tensors,
    parse,
    shape_of,
    stop_of,
)
from penstock.checkpoint.safetensors.verbs import resolve
from penstock.errors import CheckpointError, ChecksumMismatch, Unusable
from penstock.events import RangeRead, subscribe
from penstock.source import open_source

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
        ({"a": _entry()}, 7, "'a', ends at byte 8 of the data, which has 7"),
        ({"a": _entry()}, 9, "'a', ends at byte 8 of the data, which has 9"),
        ({}, 1, "no tensor, and the data ends at byte 0"),
        ({"a": _entry(offsets=(0, 7))}, 7, "'a' has 8 bytes and is at"),
        ({"a": _entry(offsets=(8, 0))}, 8, "'a' has 8 bytes and is at"),
        ({"a": _entry(offsets=(0, 8, 8))}, 8, "'a' has 8 bytes and is at"),
        ({"a": _entry(offsets=(-8, 0))}, 8, "'a' has 8 bytes and is at"),
        ({"a": _entry(offsets=(0.0, 8.0))}, 8, "'a' has 8 bytes and is at"),
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
        ({"a": {"dtype": "F32", "shape": [2]}}, 8, "'a' has 8 bytes and is at None"),
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
        ("a", lambda: {"long": "x" * 100_000_000}, "more than 100 MB"),  # not kept for all that comes after it
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


# Safetensors' dtypes: what a file cannot hold is refused by name, and so is what this torch cannot.


BASE = torch.zeros(10)


@pytest.mark.parametrize(
    ("tensors", "what"),
    [
        ({"a": BASE, "b": BASE}, "'a' and 'b' share memory"),
        ({"a": BASE, "b": BASE[3:4]}, "'a' and 'b' share memory"),
        ({"c": BASE[:3], "b": BASE[4:], "a": BASE[2:5].view(torch.int32)}, "'c' and 'a' share memory"),
        ({"a": [1, 2]}, "'a' cannot be saved: names must be text and values tensors, got str and list"),
        ({1: BASE}, "1 cannot be saved: names must be text"),
        ({"a": BASE.to_sparse()}, "'a' cannot be saved: it is not a plain array"),
        ({"a": BASE.to("meta")}, "'a' cannot be saved: it is not a plain array"),
        ({"a": torch.zeros(2, dtype=torch.complex128)}, "'a' cannot be saved: the format has no dtype for torch.compl"),
    ],
)
def test_unsupported_tensors_are_refused_and_named(tensors, what):
    with pytest.raises(Unusable) as told:
        described(tensors)
    assert what in str(told.value)


def test_tensors_side_by_side_in_one_memory_are_none_that_share():
    assert [each[0] for each in described({"a": BASE[:3], "b": BASE[3:], "c": BASE[5:5]})] == ["a", "b", "c"]


def test_two_elements_in_one_are_counted_as_the_file_counts_them():
    packed = torch.zeros(3, 4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    assert described({"a": packed}) == [("a", "F4", (3, 8))]
    assert shape_of(TensorEntry("a", "F4", (3, 8), 0, 12)) == (3, 4)


@pytest.mark.parametrize("entry", [TensorEntry("a", "F6_E2M3", (4,), 0, 3), TensorEntry("a", "F4", (2, 3), 0, 3)])
def test_dtype_unsupported_by_torch_is_refused_with_the_tensor_name(entry):
    with pytest.raises(CheckpointError, match=f"'a' is {entry.dtype}"):
        empty(entry, shape_of(entry), torch.device("cpu"))


# What is staged lands as what goes straight: page-locked memory is all that the CPU cannot show.


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
