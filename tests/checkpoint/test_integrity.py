"""What was written is what is read, in pieces of any size from anywhere, and nothing else is ever handed out."""

from __future__ import annotations

import gc
import io
import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from penstock.checkpoint.integrity import BLOCK_BYTES, BlockChecksums, ChecksummedReader, ChecksummedWriter
from penstock.errors import ChecksumMismatch, Truncated
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
