"""Memory to be filled: fresh or borrowed, of the right size, and never Python's shared constants."""

import io
import sys

import numpy as np
import pytest

from penstock.buffer import Buffer


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


def test_what_cannot_be_written_is_refused():
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


def test_too_much_does_not_fit():
    with pytest.raises(ValueError, match="do not fit"):
        Buffer.allocate(3).fill(b"1234")


def test_borrowed_memory_stays_while_it_is_used():
    target = Buffer.borrow(bytearray(b"x" * 100_000))
    junk = [bytearray(100_000) for _ in range(50)]
    assert bytes(target.view()) == b"x" * 100_000
    assert len(junk) == 50


def test_a_borrowed_buffer_cannot_be_resized_under_the_transport():
    buffer = bytearray(10)
    target = Buffer.borrow(buffer)
    with pytest.raises(BufferError):
        buffer.extend(b"more")
    assert target.size == 10
