"""Streams of the C library put each byte where it belongs: into the region they lie over, or into one that grows."""

import ctypes

import pytest

from penstock.engine.transport import stream as streams
from penstock.engine.transport.stream import Collected, Reused, close_over, fwrite, open_over, rewind, written
from penstock.errors import Bug

EDGE = b"#" * 16


def _write(stream, data):
    return fwrite(data, 1, len(data), stream)


def _laid_over(size):
    region = bytearray(EDGE + b"." * size + EDGE)
    pin = (ctypes.c_char * len(region)).from_buffer(region)
    return region, pin, open_over(ctypes.addressof(pin) + len(EDGE), size)


@pytest.mark.parametrize("size", [1, 2, 4095, 4096, 4097, 100_000])
def test_a_region_is_filled_to_its_last_byte_and_no_byte_beyond_is_written(size):
    region, _pin, stream = _laid_over(size)
    data = bytes(range(1, 252)) * (size // 251 + 1)
    assert _write(stream, data[:size]) == size
    assert _write(stream, b"beyond") == 0
    assert close_over(stream) == size
    assert region == EDGE + data[:size] + EDGE


def test_stream_appends_pieces_and_counts_written_bytes():
    region, _pin, stream = _laid_over(10)
    for piece in (b"ab\0", b"", b"cd"):
        assert _write(stream, piece) == len(piece)
    assert close_over(stream) == 5
    assert region[: len(EDGE) + 5] == EDGE + b"ab\0cd"
    assert region.endswith(EDGE)
    _region, _pin, stream = _laid_over(10)
    assert close_over(stream) == 0, "nothing was written"


def test_reused_stream_holds_the_latest_data_even_after_an_overflow():
    reused = Reused(10)
    for data in (b"0123456789", b"ab", b"x" * 20, b"", b"\0c\0"):
        rewind(reused.stream)
        _write(reused.stream, data)
        held = written(reused.stream)
        assert held == min(len(data), 10)
        assert reused.view[:held] == data[:held]
    reused.close()


def test_a_c_library_that_does_not_go_back_is_refused(monkeypatch):
    monkeypatch.setattr(streams, "rewind", lambda _stream: None)
    with pytest.raises(Bug, match="fmemopen writes"):
        streams._check_fmemopen()


@pytest.mark.parametrize("pieces", [[], [b"\0"], [b"ab", b"", b"\0cd\0"], [b"x" * 70_000] * 3])
def test_a_stream_that_grows_holds_all_that_was_written_and_gives_as_much_as_is_asked_for(pieces):
    collected, data = Collected(), b"".join(pieces)
    for piece in pieces:
        assert _write(collected.stream, piece) == len(piece)
    assert collected.close()
    assert collected.size == len(data)
    for most_bytes in (0, 1, len(data), len(data) + 1):
        assert collected.copy(most_bytes) == data[:most_bytes]
    collected.free()
