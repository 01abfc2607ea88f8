"""What was written is what is read, in pieces of any size from anywhere, and nothing else is ever handed out."""

from __future__ import annotations

import gc
import io
import json
import random
import sys
import zlib
from typing import TYPE_CHECKING

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint import integrity
from penstock.checkpoint.integrity import (
    BLANK,
    BLOCK_BYTES,
    BlockChecksums,
    ChecksummedReader,
    ChecksummedWriter,
    Manifest,
    document,
    elements,
    step_name,
    step_of,
    stored_digest,
    with_digest,
)
from penstock.errors import CheckpointError, ChecksumMismatch, Truncated, Unusable
from penstock.source import open_source

if TYPE_CHECKING:
    from pathlib import Path

SIZES = [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 9 * BLOCK_BYTES + 12_345]


def _written(folder: Path, data: bytes, rng: random.Random) -> tuple[Path, BlockChecksums]:
    path = folder / "object"
    source, key = open_source(path)
    with ChecksummedWriter(source.open_write(key)) as writer:
        at = 0
        while at < len(data):
            step = rng.choice([1, 1000, BLOCK_BYTES - 1, BLOCK_BYTES, 3 * BLOCK_BYTES])
            at += writer.write(data[at : at + step])
        assert writer.tell() == len(data)
    return path, writer.checksums()


def _reader(path: Path, checksums: BlockChecksums) -> ChecksummedReader:
    source, key = open_source(path)
    return ChecksummedReader(source.open_read(key), checksums, source.url(key))


@pytest.mark.parametrize("size", SIZES)
def test_written_data_is_read_identically_in_any_pieces(tmp_path, seed, size):
    rng = random.Random(seed + size)
    data = rng.randbytes(size)
    path, checksums = _written(tmp_path, data, rng)
    assert path.read_bytes() == data
    assert checksums == _written(tmp_path, data, rng)[1], "checksums do not depend on the sizes of writes"
    with _reader(path, checksums) as reader:
        plain = io.BytesIO(data)
        assert reader.read() == data
        for _ in range(60):
            offset = rng.choice([0, rng.randrange(size + 1), size, size + 9, BLOCK_BYTES])
            length = rng.choice([0, 1, 100, BLOCK_BYTES - 1, BLOCK_BYTES, 2 * BLOCK_BYTES + 7, -1])
            assert reader.seek(offset) == plain.seek(offset)
            assert reader.read(length) == plain.read(length)
            assert reader.tell() == min(plain.tell(), max(size, offset))
            buffer, other = bytearray(70_000), bytearray(70_000)
            assert reader.readinto(buffer) == plain.readinto(other)
            assert buffer == other
        assert reader.seek(-min(3, size), io.SEEK_END) == plain.seek(-min(3, size), io.SEEK_END)
        assert (reader.read(2), reader.seek(-min(1, size), io.SEEK_CUR)) == (
            plain.read(2),
            plain.seek(-min(1, size), io.SEEK_CUR),
        )


def test_a_flipped_bit_is_found_by_reads_of_its_block_alone(tmp_path, seed):
    rng = random.Random(seed)
    data = rng.randbytes(4 * BLOCK_BYTES + 100)
    path, checksums = _written(tmp_path, data, rng)
    for at in (0, BLOCK_BYTES, 2 * BLOCK_BYTES + 5, len(data) - 1):
        damaged = bytearray(data)
        damaged[at] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        start = at // BLOCK_BYTES * BLOCK_BYTES
        with _reader(path, checksums) as reader:
            for offset, length in ((start, 1), (start, BLOCK_BYTES), (0, len(data)), (at, 1)):
                reader.seek(offset)
                with pytest.raises(ChecksumMismatch, match=f"bytes {start} to.*object"):
                    reader.read(length)
            reader.seek(0)
            assert reader.read(start) == data[:start]


@pytest.mark.parametrize("size", [0, 99, 101])
def test_another_length_is_refused_at_once(tmp_path, seed, size):
    path, checksums = _written(tmp_path, bytes(100), random.Random(seed))
    path.write_bytes(bytes(size))
    with pytest.raises(Truncated, match="100 were written"):
        _reader(path, checksums)


def test_a_block_that_fails_publishes_nothing(tmp_path):
    source, key = open_source(tmp_path / "object")
    with pytest.raises(ZeroDivisionError), ChecksummedWriter(source.open_write(key)) as writer:
        writer.write(b"half")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_is_forgotten_publishes_nothing(tmp_path):
    source, key = open_source(tmp_path / "object")
    writer = ChecksummedWriter(source.open_write(key))
    writer.write(b"half")
    del writer
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_a_sealed_file_is_closed_when_it_is_closed(tmp_path):
    source, key = open_source(tmp_path / "object")
    with ChecksummedWriter(source.open_write(key)) as writer:
        assert (writer.write(np.zeros((0, 3))), writer.closed, writer.mode, writer.name) == (0, False, "wb", f"/{key}")
    reader = _reader(tmp_path / "object", writer.checksums())
    reader.close()
    assert writer.closed
    assert reader.closed
    for call in (writer.tell, writer.__enter__, lambda: writer.write(b""), reader.tell, reader.read, reader.__enter__):
        with pytest.raises(ValueError, match="closed"):
            call()


# A manifest is read as it was written or not at all, whoever wrote it.


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


# CRC-32 is CRC-32, whoever computes it.


@pytest.mark.parametrize("isal", [True, False])
def test_crc32_matches_zlib_for_entire_data_and_for_pieces(monkeypatch, seed, isal):
    if not isal:
        monkeypatch.setitem(sys.modules, "isal", None)
    integrity.fast.cache_clear()
    monkeypatch.setattr(integrity, "_PIECE_BYTES", 1000)
    data = memoryview(random.Random(seed).randbytes(12_345))
    try:
        assert (integrity.fast() is not None) is isal
        assert integrity.crc32(data) == zlib.crc32(data)
        assert integrity.crc32(data[5000:], integrity.crc32(data[:5000])) == zlib.crc32(data)
        assert integrity.crc32(data[:0]) == 0
    finally:
        monkeypatch.undo()
        integrity.fast.cache_clear()


# A block of an object is held to its own checksum.


def test_a_block_is_held_to_its_own_digest():
    blocks = (b"a" * BLOCK_BYTES, b"b")
    checksums = BlockChecksums(BLOCK_BYTES + 1, b"".join(map(xxhash.xxh3_64_digest, blocks)))
    held = [[checksums.holds(number, block) for block in blocks] for number in (0, 1)]
    assert held == [[True, False], [False, True]]


def test_a_digest_is_a_big_endian_xxh3_so_that_other_programs_may_compare_it():
    empty = bytes.fromhex("2d06800538d394c2")  # XXH3_64bits("") as its specification gives it
    assert BlockChecksums(0, empty).holds(0, b"")
    assert not BlockChecksums(0, empty[::-1]).holds(0, b"")


def test_a_block_beyond_the_object_is_held_by_nothing():
    checksums = BlockChecksums(1, xxhash.xxh3_64_digest(b"a"))
    assert checksums.holds(0, memoryview(b"a"))
    assert not checksums.holds(1, b"")
    assert not checksums.holds(1, b"a")


# A text that bears its own digest tells what it is, what it is not, and when it never had one.


TEXT = b'{"a":1,"the.mark":"%b","beside":"x"}' % BLANK.encode()
BESIDE = b'"beside":"'


def test_a_mark_is_of_all_but_itself():
    raw, digest = with_digest(TEXT, "the.mark")
    assert raw == TEXT.replace(BLANK.encode(), digest.encode())
    assert stored_digest(raw, "the.mark", BESIDE) == digest
    assert with_digest(TEXT.replace(b"1", b"2"), "the.mark")[1] != digest


def test_document_without_a_digest_is_accepted():
    assert stored_digest(b'{"a":1}', "the.mark", BESIDE) == ""


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw.replace(b'"a":1', b'"a":2'),
        lambda raw: raw.replace(b"the.mark", b"the.nark"),
        lambda raw: raw.replace(b"beside", b"beyond"),
        lambda raw: raw + raw,
        lambda _: TEXT,
    ],
    ids=["text", "mark", "beside", "twice", "blank"],
)
def test_changed_document_with_a_digest_is_refused(change):
    raw, _ = with_digest(TEXT, "the.mark")
    with pytest.raises(ValueError, match="digest does not match"):
        stored_digest(change(raw), "the.mark", BESIDE)


def test_a_name_that_comes_twice_is_refused_at_any_depth():
    assert document(b'{"a":{"b":1}}') == {"a": {"b": 1}}
    with pytest.raises(ValueError, match="'b' occurs twice"):
        document(b'{"a":{"b":1,"b":2}}')
