"""Compressed files, decoded in pieces within a budget of bytes; each stream costs time proportional to its bytes.

Formats: RFC 1952 (gzip) by the standard library, and RFC 8878 (Zstandard) by pyarrow. Both may hold several streams,
one behind the other, and Zstandard frames that are skipped. The first bytes of a file tell its compression.

A ratio of sizes says nothing of a file: labels and padding pack to a thousandth. So what is held is bounded instead.
"""

from __future__ import annotations

import io
import os
import zlib
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import ConfigError, Damaged, Unsupported, require_extras

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.errors import PenstockError

UNPACKED_VARIABLE = "PENSTOCK_UNPACKED_SIZE"
_MOST_BYTES = 2 << 30
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_SKIPPED = 0x184D2A50  # magic of a skippable frame; the last four bits are any
_BLOCK_BYTES = 8 << 20  # decoded at a time, before they are counted
# Given to a stream at once: what is behind its end is copied, and there may be many short streams.
_LEAST_INPUT, _MOST_INPUT = 1 << 10, 1 << 20
_WINDOW_BYTES, _WINDOW_BYTE = 1 << 27, 17 << 3  # the largest window of a stream of pyarrow's, and its descriptor
_ZSTD_BLOCK = 128 << 10  # bytes that a block decodes to at most (3.1.1.2.3)
_MOST_MARKS = 1 << 16
_RAW, _RLE, _RESERVED = 0, 1, 3  # types of blocks: uncompressed; one byte repeated


def most_unpacked() -> int:
    """Return the bytes that a part of a file may take once unpacked: a compressed file, a row group, or a sample."""
    text = os.environ.get(UNPACKED_VARIABLE)
    if not text:
        return _MOST_BYTES
    from penstock.options.typed import parse_whole_number

    found = parse_whole_number(text, sized=True)
    if not isinstance(found, int) or found < 1:
        raise ConfigError(f"{UNPACKED_VARIABLE} must be a size such as 8GiB, got {text!r}")
    return found


def check_unpacked(size: int, what: str, most: int | None = None, kind: type[PenstockError] = Damaged) -> None:
    """Refuse to hold ``size`` bytes of ``what`` if they are more than ``most``, by default ``most_unpacked``."""
    most = most_unpacked() if most is None else most
    if size > most:
        raise kind(
            f"{what} must take at most {most} bytes once unpacked, got {size} or more; set {UNPACKED_VARIABLE}=8GiB, "
            "say, if you trust the file and have the memory"
        )


def inflate_file(data: memoryview, stated: int | None = None) -> memoryview:
    """Return the inflated bytes of a file in gzip or Zstandard, ``stated`` of them if an index declares it.

    Raises:
        Damaged: The file is empty, cut off or damaged; or it has more bytes once inflated than stated, or than may be
            held.
        Unsupported: The file is neither gzip nor Zstandard, or has a window that cannot be read.
    """
    most, what = most_unpacked(), f"a compressed file of {len(data)} bytes"
    if stated is not None:
        check_unpacked(stated, what, most)
        most = stated
    blocks = _blocks(data, most)
    found: bytes | bytearray | memoryview = next(blocks, b"")
    size = len(found)
    for block in blocks:
        size += len(block)
        if size > most:
            break
        if not isinstance(found, bytearray):
            found = bytearray(found)
        found += block
    if stated is not None and size > stated:
        raise Damaged(f"{len(data)} compressed bytes decompress to more than the declared {stated}")
    check_unpacked(size, what, most)
    return memoryview(found).toreadonly()


class UnpackedFile(io.RawIOBase):
    """A compressed file that is read in order, a block at a time."""

    def __init__(self, data: memoryview) -> None:
        self._blocks = _blocks(data, most_unpacked())
        self._block = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401  any buffer
        """Fill a buffer from the current block; 0 at the end."""
        while not self._block and (block := next(self._blocks, None)) is not None:
            self._block = memoryview(block)
        count = min(len(buffer), len(self._block))
        buffer[:count], self._block = self._block[:count], self._block[count:]
        return count


def streams(
    make: Callable[[], Any],
    data: memoryview,
    *,
    block_bytes: int = _BLOCK_BYTES,
    ends: bool = True,
    padded: bool = False,
) -> Iterator[bytes]:
    """Yield the decoded bytes of one or several streams, in blocks of at most ``block_bytes``; releases the GIL.

    ``make`` makes one of the standard library's decoders; ``ends`` tells whether a stream says where it ends, and
    ``padded`` whether zeros may be between and behind the streams, as on tapes.

    EOFError tells that the last stream ends early; errors of the decoder are passed on.
    """
    at, size = 0, len(data)
    while at < size:
        stream, some = make(), _LEAST_INPUT
        while not stream.eof:
            # Decoders of bz2 and LZMA keep what they have not decoded; that of zlib returns it.
            piece = data[at : at + some] if getattr(stream, "needs_input", True) else b""
            block = stream.decompress(piece, block_bytes)
            # At the end, zlib's has the bytes behind it in both.
            at += len(piece) - len(stream.unused_data if stream.eof else getattr(stream, "unconsumed_tail", b""))
            some = min(2 * some, _MOST_INPUT)
            if block:
                yield block
            elif at == size and not piece and not stream.eof:
                if ends:
                    raise EOFError("the compressed data end early")
                return
        while padded and at < size and not data[at]:
            piece = bytes(data[at : at + _MOST_INPUT])
            at += len(piece) - len(piece.lstrip(b"\0"))


_gzip = partial(zlib.decompressobj, zlib.MAX_WBITS | 16)


def _blocks(data: memoryview, most: int) -> Iterator[bytes | memoryview]:
    """Yield the inflated bytes of a file, in blocks; more than ``most`` bytes are refused before decoding."""
    magic = int.from_bytes(data[:4], "little")
    if data[:2] == GZIP:
        try:
            yield from streams(_gzip, data, padded=True)
        except EOFError:
            raise Damaged("the gzip file is truncated") from None
        except zlib.error as error:
            raise Damaged(f"the gzip file is damaged: {error}") from error
    elif data[:4] == ZSTD or (magic & ~15 == _SKIPPED and len(data) >= 8):  # noqa: PLR2004  magic and length
        try:
            for run in _runs(data):
                yield from _zstd(data[run.start : run.stop], run, most)
        except (OSError, ValueError) as error:
            raise Damaged(f"the zstd file is truncated or damaged: {error}") from error
    elif not data:
        raise Damaged("the compressed file has 0 bytes: it is incomplete")
    else:
        raise Unsupported("the file is compressed neither with gzip nor with zstd")


class _FrameRun(NamedTuple):
    """Adjacent frames of Zstandard that are decoded together.

    Attributes:
        start: First byte.
        stop: Last byte, exclusive.
        wide: Whether the frame, a single one, has a window that a stream of pyarrow's refuses.
        marks: Places of bytes that describe windows wider than what their frames decode to.
        stated: Bytes that a wide frame decodes to, as its header says; None: it does not say.
        bound: Most bytes that a wide frame can decode to.
    """

    start: int
    stop: int
    wide: bool
    marks: list[int]
    stated: int | None
    bound: int


def _runs(data: memoryview) -> Iterator[_FrameRun]:
    """Yield the frames of a file in runs: as many as possible, or a single one with a wide window.

    A window is wide beyond 128 MiB (``zstd --long=28`` and more). A frame that cannot decode to that much needs none.
    """
    start = at = 0
    marks: list[int] = []
    while at < len(data):
        frame = _frame(data, at)
        if frame.wide or len(marks) > _MOST_MARKS:
            if at > start:
                yield _FrameRun(start, at, wide=False, marks=marks, stated=None, bound=0)
            start, marks = at, []
        if frame.wide:
            yield frame
            start = frame.stop
        marks += frame.marks
        at = frame.stop
    if at > start:
        yield _FrameRun(start, at, wide=False, marks=marks, stated=None, bound=0)


def _frame(data: memoryview, at: int) -> _FrameRun:
    """Return the frame at ``data[at]`` (RFC 8878, 3.1), which may also be one that is skipped."""
    head = bytes(data[at : at + 18])
    if int.from_bytes(head[:4], "little") & ~15 == _SKIPPED and len(head) >= 8:  # noqa: PLR2004  magic and length
        stop = at + 8 + int.from_bytes(head[4:8], "little")
        if stop > len(data):
            raise ValueError("a skippable frame is longer than the file")
        return _FrameRun(at, stop, wide=False, marks=[], stated=None, bound=0)
    if head[:4] != ZSTD or len(head) < 6:  # noqa: PLR2004  magic, flags, and a window or size
        raise ValueError(f"no frame begins at byte {at}")
    flags = head[4]
    single = flags >> 5 & 1
    place = 6 - single + (0, 1, 2, 4)[flags & 3]
    if any(head[6 - single : place]):
        raise Unsupported("the zstd file needs a dictionary to be decompressed: compress it again without")
    width = (single, 2, 4, 8)[flags >> 6]
    stated = int.from_bytes(head[place : place + width], "little") + (256 if width == 2 else 0) if width else None  # noqa: PLR2004  RFC 8878
    window = (1 << 10 + (head[5] >> 3)) // 8 * (8 + (head[5] & 7)) if not single else stated or 0
    stop, bound = at + place + width, 0
    last = 0
    while not last:
        header = int.from_bytes(data[stop : stop + 3], "little")
        kind, size = header >> 1 & 3, header >> 3
        if len(data) < stop + 3 or kind == _RESERVED:
            raise ValueError(f"the frame at byte {at} ends early, or has blocks of an unknown type")
        last, bound = header & 1, bound + (size if kind in (_RAW, _RLE) else _ZSTD_BLOCK)
        stop += 3 + (1 if kind == _RLE else size)
    stop += 4 * (flags >> 2 & 1)
    if stop > len(data):
        raise ValueError(f"the frame at byte {at} ends early")
    if (stated or 0) > bound:
        raise ValueError(f"the frame at byte {at} states {stated} bytes, and its blocks have {bound} at most")
    wide = window > _WINDOW_BYTES < bound
    return _FrameRun(at, stop, wide, [at + 5] if window > _WINDOW_BYTES and not wide else [], stated, bound)


def _zstd(data: memoryview, run: _FrameRun, most: int) -> Iterator[bytes | memoryview]:
    """Yield the decoded bytes of a run."""
    with require_extras("files compressed with zstd need pyarrow", pyarrow="parquet"):
        import pyarrow as pa
    if run.wide and run.stated is not None:
        # In a single step, which needs no window.
        check_unpacked(run.stated, f"a frame of {len(data)} bytes", most)
        yield memoryview(pa.decompress(pa.py_buffer(data), decompressed_size=run.stated, codec="zstd")).cast("B")
        return
    if run.wide:
        yield from _wide(data)
        return
    if run.marks:
        narrow = bytearray(data)
        for mark in run.marks:
            narrow[mark - run.start] = _WINDOW_BYTE
        data = memoryview(narrow)
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), "zstd") as stream:
        # read() of pyarrow would leak a block for each error.
        while block := stream.read_buffer(_BLOCK_BYTES):
            yield memoryview(block).cast("B")


def _wide(data: memoryview) -> Iterator[bytes]:
    """Yield the decoded bytes of a frame with a wide window and unknown size, which pyarrow cannot decode."""
    try:
        import zstandard
    except ImportError:
        raise Unsupported(
            "the zstd file has a window of more than 128 MiB (zstd --long) and does not state its size: pip install "
            "zstandard, or compress it again without --long"
        ) from None
    try:
        with zstandard.ZstdDecompressor(max_window_size=1 << 31).stream_reader(data) as reader:
            while block := reader.read(_BLOCK_BYTES):
                yield block
    except zstandard.ZstdError as error:
        raise OSError(str(error)) from error
