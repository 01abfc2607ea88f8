"""MP4 files box by box, with any tables: true ones and lying ones."""

from __future__ import annotations

import random
import struct
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from penstock.data.video.boxes import read_video
from penstock.data.video.frames import AudioFormat
from penstock.data.video.moov import walk_head, walk_moov
from penstock.errors import PenstockError
from tests.amounts import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Errors of Python that the walks of a dataset turn into Damaged.
OURS = (PenstockError, ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error)


def box(kind: str, *parts: bytes) -> bytes:
    data = b"".join(parts)
    return struct.pack(">I4s", len(data) + 8, kind.encode("latin-1")) + data


def full(kind: str, *numbers: int, form: str = "I", head: int = 0) -> bytes:
    """Return a box with a version, flags and 32-bit numbers."""
    return box(kind, struct.pack(f">I{len(numbers)}{form}", head, *numbers))


def table(kind: str, rows: Sequence[Sequence[int]], form: str = "I", count: int | None = None) -> bytes:
    data = b"".join(struct.pack(f">{len(row)}{form}", *row) for row in rows)
    return box(kind, struct.pack(">II", 0, len(rows) if count is None else count), data)


def entry(codec: str = "avc1", *inner: bytes) -> bytes:
    head = bytes(6) + struct.pack(">H", 1) + bytes(16) + struct.pack(">2H", 96, 64) + bytes(50)
    return box(codec, head, *(inner or (box("avcC", b"\1d\0\x0a\xff\xe1\0\0\1\0\0"),)))


def sound_entry(
    codec: str = "sowt",
    *inner: bytes,
    channels: int = 2,
    bits: int = 16,
    rate: int = 0,
    version: int = 0,
    more: bytes = b"",
) -> bytes:
    """Return a sound description; ``more`` are the fields of QuickTime's versions 1 and 2."""
    head = bytes(6) + struct.pack(">2H6x2H4x2H", 1, version, channels, bits, rate, 0)
    return box("stsd", struct.pack(">II", 0, 1), box(codec, head, more, *inner))


def esds(setup: bytes, kind: int = 0x40) -> bytes:
    own = bytes([5, len(setup)]) + setup
    decoder = bytes([4, 13 + len(own), kind]) + bytes(12) + own
    return box("esds", bytes(4), bytes([3, 3 + len(decoder), 0, 1, 0]), decoder)


def pcm_file(count: int = 9000, frame_bytes: int = 4, **other: Any) -> bytes:
    """Return a file of one audio track of 16-bit PCM; ``other`` as in ``file``."""
    given = {
        "stsd": sound_entry(),
        "stts": table("stts", [(count, 1)]),
        "stsz": full("stsz", frame_bytes, count),
        "stsc": table("stsc", [(1, count, 1)]),
    }
    return file([count * frame_bytes], handler="soun", keys=None, **given | other)


def wave(  # noqa: PLR0913
    data: bytes = bytes(8000),
    *,
    tag: int = 1,
    channels: int = 2,
    rate: int = 8000,
    bits: int = 16,
    align: int | None = None,
    before: bytes = b"",
    size: int | None = None,
    whole: int | None = None,
    magic: bytes = b"RIFF",
) -> bytes:
    """Return a WAV file; ``size`` and ``whole`` are stated for ``data`` and for the file."""
    align = channels * bits // 8 if align is None else align
    head = struct.pack("<4sI2H2I2H", b"fmt ", 16, tag, channels, rate, rate * align, align, bits)
    head = b"WAVE" + before + head + struct.pack("<4sI", b"data", len(data) if size is None else size)
    return magic + struct.pack("<I", len(head) + len(data) if whole is None else whole) + head + data


def file(  # noqa: PLR0913
    sizes: Sequence[int] = (10, 20, 30),
    *,
    per_chunk: Sequence[int] = (),
    gap: int = 0,
    steps: Sequence[int] = (),
    shifts: Sequence[int] = (),
    keys: Sequence[int] | None = (1,),
    edits: Sequence[tuple[int, int, int]] = (),
    front: bool = False,
    wide: bool = False,
    at: int = 0,
    handler: str = "vide",
    extra: bytes = b"",
    **other: bytes,
) -> bytes:
    """Return a file of samples with these sizes; ``other`` are boxes in place of those of the same kind.

    ``at`` adds to all offsets, as if the file had as many bytes more before its frames.
    """
    per = [*per_chunk] or [len(sizes)]
    given = {
        "stsd": box("stsd", struct.pack(">II", 0, 1), entry()),
        "stts": table("stts", [(1, step) for step in steps] or [(len(sizes), 512)]),
        "stsz": box("stsz", struct.pack(">III", 0, 0, len(sizes)), struct.pack(f">{len(sizes)}I", *sizes)),
        "stsc": table("stsc", [(number + 1, count, 1) for number, count in enumerate(per)]),
        "ctts": table("ctts", [(1, shift) for shift in shifts], "i") if shifts else b"",
        "stss": b"" if keys is None else table("stss", [(key,) for key in keys]),
        "dinf": box("dinf", table("dref", [], count=1) + b""),
        "mvhd": full("mvhd", 0, 0, 1000, 0, *[0] * 20),
        "mdhd": full("mdhd", 0, 0, 15_360, 0, 0),
    }
    given["dinf"] = box("dinf", box("dref", struct.pack(">II", 0, 1), full("url ", head=1)))
    given |= other
    starts, place = [], 0
    for number, count in enumerate(per):
        starts.append(place)
        place += sum(sizes[sum(per[:number]) :][:count]) + gap
    data = bytes(number % 251 for number in range(max(place, sum(sizes))))

    def moov(base: int) -> bytes:
        offsets = [base + at + each for each in starts]
        chunks = table("co64", [(each,) for each in offsets], "Q") if wide else table("stco", [(o,) for o in offsets])
        names = ("stsd", "stts", "ctts", "stss", "stsz", "stsc")
        stbl = box("stbl", *(given[name] for name in names), other.get("stco", chunks), extra)
        media = box(
            "mdia",
            given["mdhd"],
            full("hdlr", 0, *struct.unpack(">I", handler.encode()), 0, 0, 0),
            box("minf", given["dinf"], stbl),
        )
        tkhd = full("tkhd", 0, 0, 1, 0, 0, 0, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30, 0, 0)
        edts = box("edts", table("elst", edits, "i")) if edits else b""
        return box("moov", given["mvhd"], box("trak", tkhd, edts, media))

    head = box("ftyp", b"isom\0\0\2\0isom")
    if front:
        return head + moov(len(head) + len(moov(0)) + 8) + box("mdat", data)
    return head + box("mdat", data) + moov(len(head) + 8)


def walked(
    data: Any, size: int | None = None, track: int | None = None, *, audio: bool = False
) -> tuple[Any, list[tuple[int, int]]]:
    """Return the track of a file, which may be sliced like bytes, and the ranges that were read for it.

    With ``audio``, the table of its audio track.
    """
    asked: list[tuple[int, int]] = []
    size = len(data) if size is None else size

    def walk_file() -> Any:
        return read_video((yield from walk_moov((yield from walk_head(size)), size)), size, track)

    def walk_audio() -> Any:
        return (yield from AudioFormat(track).walk(size)).schema

    walk = walk_audio() if audio else walk_file()
    try:
        ask = next(walk)
        while True:
            assert 0 <= ask.start < ask.stop <= size
            asked.append((ask.start, ask.stop))
            ask = walk.send(memoryview(data[ask.start : ask.stop]))
    except StopIteration as end:
        return end.value, asked


def refused(call: Callable[[], Any], error: type[Exception], says: str, most_bytes: int = 24 << 20) -> None:
    """Assert that a call raises an error with a text, in bounded time and memory."""
    tracemalloc.start()
    began = time.process_time()
    try:
        with pytest.raises(error, match=f"(?s){says}"):
            call()
        spent, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert spent < 2
    assert peak < most_bytes


def check_damaged(data: bytes, places: Sequence[int], label: str, check: Callable[[bytes], None]) -> None:
    """Call ``check`` with copies of a file that were cut short, or have other bytes at some of ``places``.

    Each call must end within a second, with success or one of our errors; both must occur.
    """
    draw, outcomes = random.Random(label), {"table": 0, "error": 0}
    for number in range(examples(150)):
        changed = bytearray(data)
        if number % 7:
            for _ in range(draw.choice((1, 1, 2, 8))):
                changed[draw.choice(places)] = draw.choice((0, 255, 1, 128, draw.randrange(256)))
        else:
            del changed[draw.randrange(len(data)) :]
        began = time.process_time()
        try:
            check(bytes(changed))
            outcomes["table"] += 1
        except AssertionError as error:
            error.add_note(f"seed and file {label}, change {number}")
            raise
        except OURS:
            outcomes["error"] += 1
        assert time.process_time() - began < 1, f"seed and file {label}, change {number}"
    assert min(outcomes.values()) > 0
