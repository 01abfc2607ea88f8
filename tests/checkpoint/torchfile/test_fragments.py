"""A file over ranges of an object: it reads like any file, asks for nothing twice, and forgets no failure."""

from __future__ import annotations

import io
import random

import pytest

from penstock.checkpoint.torchfile.archive import HEAD_BYTES, Fragments, fetch_ranges
from penstock.errors import Changed, CheckpointError
from penstock.events import RangeRead, subscribe
from tests.checkpoint.torchfile.files import stored


@pytest.fixture
def reads():
    """Return the bytes of each request for data as it is made."""
    sizes: list[int] = []
    leave = subscribe(lambda event: sizes.append(event.size_bytes) if isinstance(event, RangeRead) else None)
    yield sizes
    leave()


def test_fragments_seek_and_read_like_a_bytes_file(seed):
    draw = random.Random(seed)
    data = draw.randbytes(5 * HEAD_BYTES + 7)
    ours, theirs = Fragments(*stored(data)), io.BytesIO(data)
    for _ in range(300):
        at, size = draw.randrange(len(data) + 10), draw.choice((0, 1, 100, HEAD_BYTES, 2 * HEAD_BYTES))
        assert ours.seek(at) == theirs.seek(at)
        assert ours.read(size) == theirs.read(size)
        assert ours.tell() == theirs.tell()
    assert ours.seek(-3, io.SEEK_END) == theirs.seek(-3, io.SEEK_END)
    assert ours.read() == theirs.read()


def test_held_known_and_storage_filled_bytes_take_no_request(reads):
    data = bytes(range(256)) * 1024
    file = Fragments(*stored(data))
    file.hold([(10, memoryview(b"held"))])
    file.known[100] = b"known"
    file.fill_storage = lambda at, view: io.BytesIO(b"storage").readinto(view) if at == 200 else 0
    for at, expected in ((10, b"held"), (12, b"ld"), (100, b"known"), (200, b"storage")):
        file.seek(at)
        assert file.read(len(expected)) == expected
    assert reads == []
    assert bytes(file.held(1000, 1010)) == data[1000:1010]
    assert bytes(file.held(1005, 1400)) == data[1005:1400], "read ahead of the first"
    assert len(reads) == 1


def test_spans_of_an_object_come_in_their_order():
    assert fetch_ranges(*stored(bytes(range(100))), [(90, 93), (0, 2), (5, 5)]) == [b"Z[\\", b"\0\1", b""]


def test_original_read_failure_is_raised_instead_of_the_torch_error():
    source, of = stored(bytes(1000))
    file = Fragments(source, of)
    source.put(of.key, bytes(1001))  # another version than the one that was opened
    with pytest.raises(Changed), file.telling():
        try:
            file.read(10)
        except Changed:
            raise RuntimeError("what torch says of it") from None
    with pytest.raises(Changed):
        file.read(10)


def test_only_torch_s_word_for_a_damaged_file_is_an_error_of_the_checkpoint():
    file = Fragments(*stored(bytes(10), "memory://test-fragments/a.pt"))
    told = r"the file is damaged: PytorchStreamReader failed: no end \[memory://test-fragments/a.pt\]"
    with pytest.raises(CheckpointError, match=told), file.telling():
        raise RuntimeError("PytorchStreamReader failed: no end. And much else")
    with pytest.raises(RuntimeError, match="of another kind"), file.telling():
        raise RuntimeError("of another kind")
