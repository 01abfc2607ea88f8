"""A file of vectors has the header and the vectors that were written, or is refused by the name of its kind."""

import json
import re
import struct
from hashlib import sha256

import numpy as np
import pytest

from penstock.data.vector_file import FileKind, has_file, read_vectors, write_vectors
from penstock.errors import AlreadyExists, ChecksumMismatch, Damaged, NotFound, Unusable
from penstock.schema import COUNT

KIND = FileKind(b"vid", 3, {"rows": COUNT}, "make it again")
OTHER = FileKind(b"pak", 3, {"rows": COUNT}, "make it again")
VECTORS = [np.arange(5, dtype="<u4"), np.zeros(0, "|u1"), np.arange(-3, 3), np.arange(100_000, dtype="<i2")]


@pytest.fixture
def made(tmp_path):
    write_vectors(KIND, tmp_path / "a", {"rows": 7}, [VECTORS[:3], VECTORS[3:]], None)
    return tmp_path / "a"


def test_vectors_are_read_as_they_were_written(made):
    header, sections = read_vectors(KIND, made, None, 2)
    assert header["rows"] == 7
    vectors = [each for section in sections for each in section]
    assert [each.values.dtype for each in vectors] == [each.dtype for each in VECTORS]
    assert all(map(np.array_equal, (each.values for each in vectors), VECTORS))
    assert not any(each.values.flags.writeable for each in vectors)


def test_each_change_of_a_byte_is_found(made):
    whole = made.read_bytes()
    for at in (0, 12, 16, 20, 24, 55, 56, len(whole) // 2, len(whole) - 1):
        made.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(Damaged):
            read_vectors(KIND, made, None, 2)
    # A section that is not read is not compared.
    made.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    _, [vectors] = read_vectors(KIND, made, None)
    assert all(map(np.array_equal, (each.values for each in vectors), VECTORS[:3]))
    with pytest.raises(ChecksumMismatch, match="the index of media files does not match its SHA-256: make it again"):
        read_vectors(KIND, made, None, 2)
    with pytest.raises(Damaged, match="its header describes"):
        read_vectors(KIND, made, None, 3)


def test_header_that_declares_more_than_the_file_is_refused_before_memory_is_taken(made, tmp_path):
    whole = made.read_bytes()
    made.write_bytes(whole[:16] + (1 << 62).to_bytes(8, "little") + whole[24:])
    with pytest.raises(Damaged, match="ends early"):
        read_vectors(KIND, made, None)
    with pytest.raises(Damaged, match="its header describes"):
        read_vectors(KIND, written_with_length(tmp_path, 1 << 61), None)


def written_with_length(tmp_path, count):
    """Write a file whose header has one vector of ``count`` values, with the right digests."""
    text = json.dumps({"version": 3, "rows": 7, "sections": [{"vectors": [["<i8", count]], "sha256": ""}]}).encode()
    path = tmp_path / "long"
    path.write_bytes(struct.pack("<16sQ32s", KIND.magic, len(text), sha256(text).digest()) + text)
    return path


def test_other_kinds_and_versions_are_refused_by_name(made):
    with pytest.raises(
        Damaged, match="not a plan of packed rows, but an index of media files: make it again"
    ) as caught:
        read_vectors(OTHER, made, None)
    assert caught.value.url.endswith("/a")
    with pytest.raises(Unusable, match=re.escape("the index of media files has version 3, known is 2: make it again")):
        read_vectors(KIND._replace(version=2), made, None)
    with pytest.raises(Damaged, match="cannot read an index of media files: rows must be a text"):
        read_vectors(KIND._replace(form={"rows": str}), made, None)
    with pytest.raises(NotFound):
        read_vectors(KIND, made.parent / "b", None)


def test_place_of_a_file_is_free_or_has_one_of_its_kind(made):
    assert has_file(KIND, made, None)
    assert not has_file(KIND, made.parent / "b", None)
    with pytest.raises(AlreadyExists, match="cannot write the plan of packed rows: the existing file is not one"):
        has_file(OTHER, made, None)
    with pytest.raises(Unusable, match="got that of a folder"):
        has_file(KIND, f"{made.parent}/", None)
