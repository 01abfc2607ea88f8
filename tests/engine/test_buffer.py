"""Memory to be filled: fresh or borrowed, of the right size, and never Python's shared constants."""

import ctypes
import io
import platform
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from penstock.engine.buffer import Buffer, readable

LINUX = sys.platform == "linux"


@pytest.mark.parametrize("size", [0, 1, 2, 100, 4096, 1 << 20])
def test_fresh_memory_becomes_ordinary_bytes(size):
    data = bytes(number % 251 for number in range(size))
    target = Buffer.allocate(size)
    target.fill(data)
    taken = target.take()
    assert type(taken) is bytes
    assert (taken, len(taken), hash(taken)) == (data, size, hash(data))
    if size > 1:
        assert taken is target.owner, "no copy"
        assert io.BytesIO(taken).getvalue() == data


def test_python_s_shared_bytes_are_never_written_to():
    for number in range(256):
        target = Buffer.allocate(1)
        target.fill(bytes([number]))
        assert target.take() == bytes([number])
    assert [bytes([number])[0] for number in range(256)] == list(range(256))
    assert sys.intern("") == ""


def test_borrowed_memory_is_the_caller_s():
    for buffer in (bytearray(10), np.zeros(10, np.uint8), np.zeros((5, 2), np.uint8), memoryview(bytearray(10))):
        Buffer.borrow(buffer).fill(b"0123456789")
        assert bytes(memoryview(buffer).cast("B")) == b"0123456789"
    wide = np.zeros(4)
    assert Buffer.borrow(wide).size == 32


def test_borrowing_read_only_or_non_contiguous_memory_raises_type_error():
    with pytest.raises(TypeError):
        Buffer.borrow(b"read-only")
    with pytest.raises(TypeError):
        Buffer.borrow(np.zeros(10, np.uint8)[::2])
    with pytest.raises(TypeError):
        Buffer.borrow("text")


def test_a_slice_is_a_part_of_the_whole():
    whole = Buffer.allocate(10)
    whole.fill(b"----------")
    whole.slice(2, 5).fill(b"abc")
    whole.slice(10, 10).fill(b"")
    whole.slice(5, 10).slice(1, 2).fill(b"x")
    assert whole.take() == b"--abc-x---"
    for start, stop in ((-1, 3), (3, 2), (5, 11)):
        with pytest.raises(ValueError, match="slice"):
            whole.slice(start, stop)


@pytest.mark.parametrize("size", [0, 1, 2, 10])
def test_renewed_memory_holds_the_bytes_wherever_it_lies(size):
    data = memoryview(bytes(range(100, 100 + size)))
    fresh, borrowed, whole = Buffer.allocate(size), bytearray(size), Buffer.allocate(size)
    fresh.renew(data)
    assert fresh.take() == bytes(fresh.view()) == data
    fresh.slice(0, size).fill(bytes(size))
    assert fresh.take() == bytes(size)
    Buffer.borrow(borrowed).renew(data)
    assert borrowed == data
    whole.slice(0, size).renew(data)  # all of it, and still a part
    assert whole.take() == data
    with pytest.raises(ValueError, match="do not fit"):
        whole.slice(0, size).renew(memoryview(bytes(size + 1)))


def _filled(size, start=0):
    buffer = Buffer.allocate(size)
    buffer.view()[:] = bytes(range(start, start + 200)) * (size // 200) + bytes(size % 200)
    return buffer


@pytest.mark.parametrize("size", [100_000, 131_072, 65_536, 131_071])
def test_the_beginning_of_a_buffer_is_its_own_memory_where_it_is_most_of_it(size):
    buffer = _filled(1 << 17)
    expected = bytes(buffer.view()[:size])
    assert not buffer.spent
    cut = buffer.cut(size)
    assert type(cut) is bytes
    assert (cut, len(cut), hash(cut)) == (expected, size, hash(expected))
    assert buffer.spent
    fresh = bytes(bytearray(size))
    counts = sys.getrefcount(cut), sys.getrefcount(fresh)
    assert counts[0] == counts[1], "nothing holds it but this name"


@pytest.mark.parametrize("size", [0, 1, 5000, 16 << 10, 65_535])
def test_the_beginning_of_a_buffer_is_a_copy_where_it_is_little_of_it(size):
    buffer = _filled(1 << 17)
    expected = bytes(buffer.view())
    assert buffer.cut(size) == expected[:size]
    assert not buffer.spent
    assert bytes(buffer.view()) == expected, "and the buffer is used again"


def test_cut_copies_memory_that_is_referenced_elsewhere():
    buffer = _filled(1 << 17)
    other = buffer.owner
    assert buffer.cut(100_000) is not other
    assert not buffer.spent
    assert len(other) == 1 << 17
    part = _filled(1 << 17).slice(1, 100_001)
    assert part.cut(90_000) == (bytes(range(200)) * 500)[1:90_001]
    assert not part.spent
    borrowed = bytearray(1 << 17)
    assert len(Buffer.borrow(borrowed).cut(100_000)) == 100_000
    assert len(borrowed) == 1 << 17


def test_no_more_is_filled_or_cut_than_there_is():
    with pytest.raises(ValueError, match="do not fit"):
        Buffer.allocate(3).fill(b"1234")
    for size in ((1 << 17) + 1, 1 << 30, -1):
        buffer = _filled(1 << 17)
        with pytest.raises(ValueError, match="of a buffer of"):
            buffer.cut(size)
        assert not buffer.spent


def test_cut_memory_is_freed_once_it_is_dropped():
    held = [_filled(1 << 17, number).cut(100_000) for number in range(50)]
    assert [data[0] for data in held] == list(range(50))
    before = _resident()
    for number in range(2000):  # 200 MB, were it kept
        held[number % 50] = _filled(1 << 17, number % 50).cut(100_000 + number)
    assert _resident() - before < 50 << 20
    assert [data[:3] for data in held] == [bytes((each, each + 1, each + 2)) for each in range(50)]


def _resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() if LINUX else 0


def test_borrowed_memory_stays_while_it_is_used_and_cannot_be_resized_under_the_transport():
    target = Buffer.borrow(bytearray(b"x" * 100_000))
    junk = [bytearray(100_000) for _ in range(50)]
    assert bytes(target.view()) == b"x" * 100_000
    assert len(junk) == 50
    buffer = bytearray(10)
    target = Buffer.borrow(buffer)
    with pytest.raises(BufferError):
        buffer.extend(b"more")
    assert target.size == 10


_BLOCKS = """
import resource, sys
from penstock.engine.buffer import Buffer, reuse_freed

data = bytes(1 << 20)
if sys.argv[1]:
    reuse_freed()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [Buffer.allocate(1 << 20) for _ in range(3)]
    for block in blocks:
        block.fill(data)
    del block, blocks
    made = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(made)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the rule for freed blocks is glibc's")
def test_blocks_use_the_pages_of_freed_ones_from_the_first_on():
    made = {}
    for early in ("", "1"):
        ran = subprocess.run([sys.executable, "-c", _BLOCKS, early], check=True, capture_output=True, text=True)
        made[early] = int(ran.stdout)
    assert made["1"] < made[""] / 4


@pytest.mark.parametrize("start", [0, 5])
@pytest.mark.parametrize("kind", [bytes, bytearray, lambda data: memoryview(data).toreadonly()])
def test_memory_to_read_is_where_the_buffer_has_it(kind, start):
    owner = np.arange(100, dtype=np.uint8)
    buffer = kind(owner)
    view = memoryview(buffer)[start:]
    address, pin = readable(view)
    assert ctypes.string_at(address, len(view)) == owner[start:].tobytes()
    assert address == readable(buffer)[0] + start, "no copy"
    if kind is bytearray:
        with pytest.raises(BufferError):
            buffer.append(1)
    del pin


@pytest.mark.parametrize("empty", [b"", bytearray(), memoryview(b"")])
def test_empty_memory_to_read_has_an_address(empty):
    assert readable(empty)[0]
