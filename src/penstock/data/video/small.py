"""A small MP4 file in memory with the frames of a clip, for any decoder that reads files: torchcodec, decord, FFmpeg.

It has what the decoder needs of the file that the clip is from, byte by byte, and times of its own from 0; no edit
list. A file with holes in place of other frames would not do: decoders probe the first packets, and read beyond the
last.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from penstock.data.shards.format import run_walk
from penstock.data.video.boxes import make_box
from penstock.data.video.frames import VideoFormat, join_intervals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.data.video.frames import Ints, Table
    from penstock.data.video.packets import HeldBytes

_MATRIX = struct.pack(">9I", 0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)
_LEAST_SAMPLES = 10  # where frames are reordered: older decoders hold back the last frames of a shorter stream
_FTYP = make_box(b"ftyp", b"isom\0\0\2\0isomiso2mp41")


def make_small_file(table: Table, held: HeldBytes, frames: Ints) -> tuple[bytes, list[int]]:
    """Return an MP4 file, and where each of ``frames`` is among its frames in the order of presentation, from 0.

    ``held`` has at least the bytes that the frames need.
    """
    kept, ranks = _choose_samples(table, held, frames)
    first = int(kept[0])
    places, ends = (each[kept - first] for each in table.places_of(first, int(kept[-1]) + 1))
    ticks = table.ticks_of(ranks - table.begin)
    # Times of decoding that ascend as those of presentation do; negative offsets lead from one to the other.
    order = np.sort(ticks)
    steps = np.append(np.diff(order), table.step or table.last)
    boxes = [
        table.setup.boxes[2],
        _make_table(b"stts", np.column_stack((np.ones(len(kept), np.int64), steps))),
        _make_table(b"stss", np.flatnonzero(np.isin(kept, table.keys))[:, np.newaxis] + 1),
        _make_full(b"stsz", 0, len(kept), data=(ends - places).astype(">u4").tobytes()),
        _make_full(b"stsc", 1, 1, len(kept), 1),
    ]
    if (ticks != order).any():
        boxes.append(_make_table(b"ctts", np.column_stack((np.ones(len(kept), np.int64), ticks - order)), 1))
    packets = [held.take(start, end) for start, end in zip(places.tolist(), ends.tolist(), strict=True)]
    size = sum(map(len, packets)) + 8
    total, head = int(steps.sum()), len(_FTYP) + 8
    moov = _make_moov(table, boxes, total, 0)
    moov = _make_moov(table, boxes, total, head + len(moov))
    found = b"".join([_FTYP, moov, struct.pack(">I4s", size, b"mdat"), *packets])
    return found, np.searchsorted(np.sort(ranks), frames + table.begin).tolist()


def read_small_file(data: memoryview) -> Table:
    """Return the table of a file that ``make_small_file`` has made."""
    found: Table = run_walk(VideoFormat().walk(len(data)), data).schema
    return found


def _choose_samples(table: Table, held: HeldBytes, frames: Ints) -> tuple[Ints, Ints]:
    """Return the samples to keep, in decoding order, and their ranks."""
    samples, ranks = [], []
    intervals = join_intervals(*table.needs(frames))
    for number, (first, needed) in enumerate(intervals, 1):
        more = 2 * _LEAST_SAMPLES if table.reach and number == len(intervals) else 0
        found = table.ranks_of(first, min(needed + more, len(table.sizes)))
        ends, last = table.places_of(first, first + len(found))[1].tolist(), int((frames + table.begin).max())
        # Frames that are presented before the first key frame need the group before it.
        inside = found >= found[0]
        count = needed - first
        # More samples only as far as their bytes are there, until one is presented after all that are wanted.
        while count < len(found) and (inside[:count].sum() < _LEAST_SAMPLES or found[:count].max() <= last):
            if not held.has(ends[count]):
                break
            count += 1
        samples.append(first + np.flatnonzero(inside[:count]))
        ranks.append(found[:count][inside[:count]])
    return np.concatenate(samples), np.concatenate(ranks)


def _make_full(kind: bytes, *numbers: int, version: int = 0, data: bytes = b"") -> bytes:
    return make_box(kind, struct.pack(f">{len(numbers) + 1}I", version << 24, *numbers), data)


def _make_table(kind: bytes, rows: NDArray[np.int64], version: int = 0) -> bytes:
    return _make_full(kind, len(rows), version=version, data=rows.astype(">i4" if version else ">u4").tobytes())


def _make_moov(table: Table, boxes: Sequence[bytes], total: int, place: int) -> bytes:
    stbl = make_box(b"stbl", *boxes, _make_full(b"stco", 1, place))
    dinf = make_box(b"dinf", _make_full(b"dref", 1, data=make_box(b"url ", b"\0\0\0\1")))
    minf = make_box(b"minf", make_box(b"vmhd", b"\0\0\0\1", bytes(8)), dinf, stbl)
    mdhd = _make_full(b"mdhd", 0, 0, table.scale, total, data=b"\x55\xc4\0\0")
    tkhd, hdlr, _ = table.setup.boxes
    trak = make_box(b"trak", tkhd, make_box(b"mdia", mdhd, hdlr, minf))
    rate = struct.pack(">IH10x", 0x10000, 0x100)
    mvhd = _make_full(b"mvhd", 0, 0, table.scale, total, data=rate + _MATRIX + bytes(24) + b"\xff\xff\xff\xff")
    return make_box(b"moov", mvhd, trak)
