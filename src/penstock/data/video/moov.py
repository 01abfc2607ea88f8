"""Boxes of an MP4 or MOV file: ``moov``, and the ``moof`` of fragments, are found by ranges.

Formats: ISO/IEC 14496-12, QuickTime. No number in the file is trusted: counts and sizes are compared with the file
before memory is allocated for them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.data.shards.format import Ask
from penstock.errors import Damaged, Unsupported

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from numpy.typing import NDArray

    Range = tuple[int, int]

_FIRST_BYTES, _MOST_FIRST_BYTES, _SHARE = 64 << 10, 1 << 20, 512  # of the first read: 1/512 of the file
_NEXT_BYTES = 4 << 20  # read at once after the frames, where moov often lies
_FAR_BYTES = 256 << 10  # between two fragments, from which on each is read by itself
_SHORT_READ, _LONG_READ = 16 << 10, 1 << 20
_MOST_MOOV = 64 << 20  # bytes of moov and moof
_MOST_TOP = 1 << 18  # boxes of the file
_MOST_READS = 8
MOST_BOXES = 512  # within one box
_TOP = {
    b"ftyp",
    b"moov",
    b"free",
    b"skip",
    b"wide",
    b"mdat",
    b"pnot",
    b"uuid",
    b"udta",
    b"meta",
    b"styp",
    b"sidx",
    b"moof",
}
REMUX = "ffmpeg -i IN -c copy -movflags +faststart OUT.mp4"
_OTHERS = {
    b"\x1aE\xdf\xa3": "Matroska or WebM",
    b"RIFF": "AVI",
    b"FLV": "Flash video",
    b"OggS": "Ogg",
    b"\0\0\1\xba": "MPEG program stream",
    b"0&\xb2u": "Windows Media",
}
_MP3 = b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2"
_TS_PACKET, _TS_SYNC = 188, 0x47
U32 = np.dtype(">u4")


class Fragment(NamedTuple):
    """A ``moof`` box: its first byte in the file, and its payload."""

    at: int
    moof: memoryview


class Moov(NamedTuple):
    """The payload of ``moov``, and the fragments of the file, which are the rest of its tables."""

    data: memoryview
    fragments: list[Fragment]


def walk_head(size: int) -> Generator[Ask, memoryview, bytes]:
    """Return the first bytes of a file of ``size`` bytes: 1/512 of it, and 64 KiB to 1 MiB."""
    first = min(size, max(_FIRST_BYTES, min(size // _SHARE, _MOST_FIRST_BYTES)))
    return bytes((yield Ask(0, first))) if first else b""


def walk_moov(head: bytes, size: int) -> Generator[Ask, memoryview, Moov]:
    """Return ``moov`` of a file of ``size`` bytes, whose first bytes are ``head``, and the fragments of the file.

    No read more if ``moov`` is in front and not unusually large, one if it is at the end. Fragments that are far from
    one another take a read each; others come with reads of 1 MiB.
    """
    _check_magic(head, size)
    held, moov, at, whole = _Held(head, size), memoryview(b""), 0, False
    fragments: list[Fragment] = []
    for _ in range(_MOST_TOP):
        if at >= size or whole:
            break
        kind, body, length = _top_box((yield from held.take(at, min(at + 16, size), held.ahead)), at, size)
        if kind in (b"moov", b"moof"):
            held.count_tables(length)
            data = memoryview((yield from held.take(at, at + length, held.ahead if fragments else 0)))[body:]
            if kind == b"moov":
                moov, held.ahead = data, _SHORT_READ
                whole = b"mvex" not in read_children(moov, (0, len(moov)))
            else:
                held.ahead = _LONG_READ if fragments and at - fragments[-1].at < _FAR_BYTES else _SHORT_READ
                fragments.append(Fragment(at, data))
        elif not moov and held.reads > _MOST_READS:
            raise Damaged(f"found no moov box in {_MOST_READS} reads, the last at byte {at}")
        at += length
    else:
        raise Unsupported(f"the file has more than {_MOST_TOP} boxes: remux it once, {REMUX}")
    if not moov and fragments:
        raise Unsupported("the file is a segment without its moov box: append it to its init segment")
    if not moov:
        raise Damaged(f"the file has no moov box in its {size} bytes: it was cut short while it was written")
    return Moov(moov, fragments)


class _Held:
    """The latest bytes of a file that a walk has read."""

    def __init__(self, head: bytes, size: int) -> None:
        self._view, self._base, self._size = head, 0, size
        self._left = _MOST_MOOV
        self.reads, self.ahead = 1, _NEXT_BYTES  # of a read for the header of a box

    def take(self, start: int, stop: int, ahead: int) -> Generator[Ask, memoryview, bytes]:
        """Return bytes ``start`` to ``stop``; if they are read now, with so many bytes at least."""
        end = self._base + len(self._view)
        if stop > end:
            self._view, self._base = self._view[start - self._base :] if start < end else b"", start
            begin = start + len(self._view)
            self._view += bytes((yield Ask(begin, min(self._size, max(stop, begin + ahead)))))
            self.reads += 1
        return self._view[start - self._base : stop - self._base]

    def count_tables(self, length: int) -> None:
        self._left -= length
        if self._left < 0:
            raise Unsupported(
                f"moov and moof have {_MOST_MOOV - self._left} bytes, and at most {_MOST_MOOV} are supported"
            )


def is_wav(head: bytes) -> bool:
    return head[:4] in (b"RIFF", b"RF64", b"BW64") and head[8:12] == b"WAVE"


def _check_magic(head: bytes, size: int) -> None:
    if is_wav(head):
        raise Unsupported("the file is WAV, and has no video track: ps.AudioDataset reads it")
    if head.startswith(b"fLaC"):
        raise Unsupported(
            "the file is FLAC, which has no index of its packets: remux it once without loss for ps.AudioDataset, "
            "ffmpeg -i IN.flac -c copy OUT.mp4, or read whole files by ps.MapDataset"
        )
    if head.startswith(_MP3):
        raise Unsupported("the file is MP3, which has no index of its packets: read whole files by ps.MapDataset")
    name = next((name for magic, name in _OTHERS.items() if head.startswith(magic)), "")
    if not name and head[:1] == bytes([_TS_SYNC]) and head[_TS_PACKET : _TS_PACKET + 1] in (b"", bytes([_TS_SYNC])):
        name = "MPEG transport stream"
    if name:
        raise Unsupported(f"the file is {name}, and frames are found in MP4 and MOV files only: remux it once, {REMUX}")
    if head[4:8] not in _TOP:
        raise Damaged(f"the file of {size} bytes begins with {head[:8]!r}, not with a box of MP4 or MOV")


def _top_box(head: bytes, at: int, size: int) -> tuple[bytes, int, int]:
    """Return kind, bytes of the header, and length of the box at byte ``at``, which begins with ``head``."""
    whole = size - at
    if whole < 8:  # noqa: PLR2004  the smallest box
        raise Damaged(f"the file ends within a box at byte {at}: it was cut short")
    length, kind = struct.unpack_from(">I4s", head)
    body = 8
    if length == 1 and whole >= 16:  # noqa: PLR2004  a header with a long size
        (length,), body = struct.unpack_from(">Q", head, 8), 16
    elif not length:
        length = whole
    if not body <= length <= whole:
        raise Damaged(f"the box {_name(kind)} at byte {at} has {length} bytes, and the file ends at {size}: cut short")
    return kind, body, length


def _name(kind: bytes) -> str:
    return repr(kind.decode("latin-1"))


def list_boxes(data: memoryview, start: int, stop: int) -> Iterator[tuple[bytes, Range]]:
    """Yield the kind and the payload of each box between two bytes of ``moov``."""
    for _ in range(MOST_BOXES):
        # QuickTime ends some lists with four zero bytes.
        if stop - start < 8:  # noqa: PLR2004  the smallest box
            return
        length, kind = struct.unpack_from(">I4s", data, start)
        body = start + 8
        if length == 1:
            length, body = struct.unpack_from(">Q", data, body)[0] if stop - start >= 16 else 0, body + 8  # noqa: PLR2004
        elif not length:
            length = stop - start
        if not body - start <= length <= stop - start:
            raise Damaged(f"the box {_name(kind)} at byte {start} of moov ends outside of the box that holds it")
        yield kind, (body, start + length)
        start += length
    raise Damaged(f"a box has more than {MOST_BOXES} others")


def read_children(data: memoryview, of: Range) -> dict[bytes, Range]:
    """Return the boxes in a box by their kind, each the first of its kind."""
    found: dict[bytes, Range] = {}
    for kind, place in list_boxes(data, *of):
        found.setdefault(kind, place)
    return found


def need_box(found: dict[bytes, Range], kind: bytes, least: int = 0) -> Range:
    start, stop = found.get(kind, (0, -1))
    if stop - start < least:
        raise Damaged(f"moov has no box {_name(kind)}, or one that is cut short")
    return start, stop


def read_rows(data: memoryview, place: Range, width: int, dtype: np.dtype[np.integer] = U32) -> NDArray[np.int64]:
    """Return the table of a full box, which begins with its number of rows."""
    start, stop = place
    (count,) = struct.unpack_from(">I", data, start + 4)
    if start + 8 + count * width * dtype.itemsize > stop:
        raise Damaged(f"a table of {count} rows is longer than its box at byte {start} of moov")
    return np.frombuffer(data, dtype, count * width, start + 8).reshape(count, width).astype(np.int64)
