"""Boxes of an MP4 or MOV file: ``moov`` is found by ranges, and its tables become the frames of one track.

Formats: ISO/IEC 14496-12 (boxes), 14496-14 (``esds``), 14496-15 (``avcC``, ``hvcC``), AV1 in ISOBMFF, QuickTime. No
number in the file is trusted: counts and sizes are compared with the file before memory is allocated for them.
"""

from __future__ import annotations

import math
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from penstock.data.video.fragments import Samples, read_defaults, read_fragments
from penstock.data.video.moov import MOST_BOXES, REMUX, U32, list_boxes, need_box, read_children, read_rows
from penstock.errors import Damaged, Unsupported

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.data.video.moov import Fragment, Moov, Range

    _Ticks = TypeVar("_Ticks", int, NDArray[np.int64])

# Sample entries whose frames can be decoded, with FFmpeg's name of the decoder.
CODECS = {
    **dict.fromkeys(("avc1", "avc3"), "h264"),
    **dict.fromkeys(("hvc1", "hev1"), "hevc"),
    "av01": "libdav1d",
    "vp09": "vp9",
    "vp08": "vp8",
    "mp4v": "mpeg4",
    "jpeg": "mjpeg",
    **dict.fromkeys(("apch", "apcn", "apcs", "apco", "ap4h", "ap4x"), "prores"),
}
_SETUPS = {"h264": "avcC", "hevc": "hvcC", "libdav1d": "av1C", "mpeg4": "esds"}  # box of each decoder's setup

_MOST_ALIKE = 1 << 20  # frames of one size, which take no memory in the file
_MOST_TICKS = 1 << 56
_I32, _U64 = np.dtype(">i4"), np.dtype(">u8")
_EDITS = (  # of version 0, and of version 1
    np.dtype([("duration", ">u4"), ("begin", ">i4"), ("rate", ">i4")]),
    np.dtype([("duration", ">u8"), ("begin", ">i8"), ("rate", ">i4")]),
)


class Setup(NamedTuple):
    """Configuration of a decoder, and the boxes of the track that a small MP4 takes over."""

    codec: str  # name of the sample entry, such as "avc1"
    extradata: bytes
    color: tuple[int, ...]  # primaries, transfer, matrix and range by ISO/IEC 23091-2; () without such a box
    rotation: int  # degrees, clockwise, by which a player turns the frames
    boxes: tuple[bytes, ...]  # tkhd, hdlr and stsd, verbatim
    channels: int = 0  # of an audio track; 0: a video track


class Track(NamedTuple):
    """The frames of a video track, in decoding order; or the packets of an audio track, whose ticks are PCM frames."""

    setup: Setup
    scale: int  # ticks per second
    sizes: NDArray[np.uint32]
    offsets: NDArray[np.int64]  # first byte of each frame, ascending, without overlap
    ticks: NDArray[np.int64]  # time of presentation of each frame, after the edit list
    keys: NDArray[np.int64]  # numbers of the key frames, ascending; at least one
    shown: Range  # first and end tick of the presented frames
    last: int  # duration of the last frame, in ticks


class TrackBoxes(NamedTuple):
    """The boxes of one track, by their kinds, in a ``moov`` that is in memory."""

    name: str  # in messages: "video track"
    moov: memoryview
    size: int  # of the file
    number: int  # ID of the track
    fragments: list[Fragment]
    mvex: Range | None  # the defaults of fragments
    movie_scale: int  # ticks per second in edit lists
    scale: int  # ticks per second of the track
    trak: dict[bytes, Range]
    media: dict[bytes, Range]
    data: dict[bytes, Range]
    tables: dict[bytes, Range]


def find_track(found: Moov, size: int, handler: bytes, track: int | None) -> TrackBoxes | None:
    """Return the first track with a handler ("vide" or "soun"), or the one with an ID; None without such a track.

    ``found`` is of a file of ``size`` bytes.
    """
    moov = found.data
    listed = [*list_boxes(moov, 0, len(moov))]
    boxes = dict(reversed(listed))
    if b"cmov" in boxes:
        raise Unsupported(f"the moov box is compressed: remux the file once, {REMUX}")
    start, _ = need_box(boxes, b"mvhd", 32)
    (movie_scale,) = struct.unpack_from(">I", moov, start + (20 if moov[start] else 12))
    name = "video track" if handler == b"vide" else "audio track"
    ids = []
    for kind, place in listed:
        if kind != b"trak":
            continue
        trak = read_children(moov, place)
        media = read_children(moov, need_box(trak, b"mdia", 8))
        start, _ = need_box(media, b"hdlr", 12)
        if bytes(moov[start + 8 : start + 12]) != handler:
            continue
        start, _ = need_box(trak, b"tkhd", 84)
        (number,) = struct.unpack_from(">I", moov, start + (20 if moov[start] else 12))
        if track in (None, number):
            start, _ = need_box(media, b"mdhd", 24)
            (scale,) = struct.unpack_from(">I", moov, start + (20 if moov[start] else 12))
            if not scale or not movie_scale:
                raise Damaged(f"the time scale of the {name} is 0")
            info = read_children(moov, need_box(media, b"minf", 8))
            tables = read_children(moov, need_box(info, b"stbl", 8))
            data = read_children(moov, info.get(b"dinf", (0, 0)))
            shared = name, moov, size, number, found.fragments, boxes.get(b"mvex"), movie_scale
            return TrackBoxes(*shared, scale, trak, media, data, tables)
        ids.append(number)
    if ids:
        raise Unsupported(f"the file has no {name} {track}, and its {name}s are {ids}")
    return None


def read_video(moov: Moov, size: int, track: int | None = None) -> Track:
    """Return the first video track, or the one with an ID, of a file of ``size`` bytes."""
    boxes = find_track(moov, size, b"vide", track)
    if boxes is None:
        raise Unsupported("the file has no video track")
    setup, found = _read_setup(boxes), read_samples(boxes)
    ticks, shown = _apply_edits(boxes, found.begins + found.shifts)
    keys = np.flatnonzero(found.keys)
    if not len(keys):
        raise Unsupported("the video track has no key frame, so that no frame can be decoded by itself")
    sizes = found.sizes.astype(np.uint32)
    return Track(setup, boxes.scale, sizes, found.offsets, ticks, keys, shown, int(found.durations[-1]))


def read_samples(boxes: TrackBoxes) -> Samples:
    """Return the frames that ``moov`` lists, and those of the fragments."""
    if not boxes.fragments:
        return _read_listed(boxes)
    (count,) = struct.unpack_from(">I", boxes.moov, need_box(boxes.tables, b"stsz", 12)[0] + 8)
    if boxes.mvex is None:
        raise Damaged("the file has fragments, and its moov box has no defaults for them (mvex)")
    # Only the frames before the first fragment are in moov, mostly none.
    listed = [_read_listed(boxes)] if count else []
    return read_fragments(boxes.fragments, boxes.size, boxes.number, read_defaults(boxes.moov, boxes.mvex), listed)


def _read_listed(boxes: TrackBoxes) -> Samples:
    moov, tables = boxes.moov, boxes.tables
    sizes = _read_sizes(boxes)
    count = len(sizes)
    offsets = _read_offsets(boxes, sizes)
    steps = _read_runs(boxes, b"stts", count, U32, "durations")
    shifts = np.zeros(count, np.int64)
    if b"ctts" in tables:
        shifts = _read_runs(boxes, b"ctts", count, _I32, "composition offsets")
    keys = np.full(count, b"stss" not in tables)
    if b"stss" in tables:
        listed = read_rows(moov, need_box(tables, b"stss", 8), 1)[:, 0] - 1
        if len(listed) and (listed[0] < 0 or listed[-1] >= count or (np.diff(listed) <= 0).any()):
            raise Damaged(f"the key frames of the {boxes.name} do not ascend within its {count} frames")
        keys[listed] = True
    return Samples(sizes.astype(np.int64), offsets, np.cumsum(steps) - steps, steps, shifts, keys)


def read_entry(boxes: TrackBoxes) -> tuple[bytes, Range]:
    """Return the kind and the place of the only sample description of a track, whose data is in this file."""
    moov, stsd = boxes.moov, need_box(boxes.tables, b"stsd", 8)
    entries = [*list_boxes(moov, stsd[0] + 8, stsd[1])]
    if len(entries) != 1:
        raise Unsupported(f"the {boxes.name} has {len(entries)} sample descriptions: encode it anew with one codec")
    kind, (start, stop) = entries[0]
    if kind in (b"encv", b"enca", b"drmi", b"drms"):
        raise Unsupported(f"the {boxes.name} is encrypted")
    if b"dref" in boxes.data:
        files = [*list_boxes(moov, boxes.data[b"dref"][0] + 8, boxes.data[b"dref"][1])]
        (used,) = struct.unpack_from(">H", moov, start + 6)
        if not 1 <= used <= len(files) or not moov[files[used - 1][1][0] + 3] & 1:
            raise Unsupported(f"the data of the {boxes.name} is in another file")
    return kind, (start, stop)


def _read_setup(boxes: TrackBoxes) -> Setup:
    moov, stsd = boxes.moov, need_box(boxes.tables, b"stsd", 8)
    kind, (start, stop) = read_entry(boxes)
    inner = dict(list_boxes(moov, start + 78, stop))
    if b"sinf" in inner:
        raise Unsupported("the video track is encrypted")
    codec = kind.decode("latin-1")
    if codec not in CODECS:
        raise Unsupported(f"the codec {codec!r} is not supported, only {', '.join(CODECS)}")
    needed, extradata = _SETUPS.get(CODECS[codec], "").encode(), b""
    if needed:
        first, end = need_box(inner, needed, 4)
        extradata = (
            bytes(moov[first:end])
            if needed != b"esds"
            else read_esds(bytes(moov[first + 4 : end]), 0x20, "MPEG-4 Part 2")
        )
    first, _ = place = need_box(boxes.trak, b"tkhd", 84)
    matrix = struct.unpack_from(">2i", moov, first + (52 if moov[first] else 40))
    rotation = round(math.degrees(math.atan2(matrix[1], matrix[0]))) % 360
    places = (b"tkhd", place), (b"hdlr", boxes.media[b"hdlr"]), (b"stsd", stsd)
    verbatim = tuple(make_box(kind, bytes(moov[first:end])) for kind, (first, end) in places)
    return Setup(codec, extradata, _read_color(moov, inner), rotation, verbatim)


def pack_setup(setup: Setup) -> bytes:
    """Return a setup as bytes, which ``read_setup`` reads: the boxes of a video track, or one box of an audio track."""
    sound = struct.pack(">B15s", setup.channels, setup.codec.encode())
    return b"".join(setup.boxes) or make_box(b"soun", sound, setup.extradata)


@lru_cache(1024)
def read_setup(data: bytes) -> Setup:
    """Return the setup that was packed; raise ``Damaged`` if the bytes are of another kind."""
    view = memoryview(data)
    try:
        found = dict(list_boxes(view, 0, len(data)))
        if data[4:8] != b"soun":
            return _read_setup(TrackBoxes("video track", view, len(data), 0, [], None, 1, 1, found, found, {}, found))
        start, stop = found[b"soun"]
        channels, codec = struct.unpack_from(">B15s", data, start)
        return Setup(codec.rstrip(b"\0").decode(), data[start + 16 : stop], (), 0, (), channels)
    except (KeyError, IndexError, ValueError, struct.error) as error:
        raise Damaged(f"cannot read the setup of a decoder: {error!r}") from error


def make_box(kind: bytes, *parts: bytes) -> bytes:
    data = b"".join(parts)
    return struct.pack(">I4s", len(data) + 8, kind) + data


def _read_color(moov: memoryview, inner: dict[bytes, Range]) -> tuple[int, ...]:
    start, stop = inner.get(b"colr", (0, 0))
    kind = bytes(moov[start : min(start + 4, stop)])
    if stop - start < 10 or kind not in (b"nclx", b"nclc"):  # noqa: PLR2004  its type and three numbers
        return ()
    full = 0 if kind == b"nclc" or stop - start == 10 else 1 + (moov[start + 10] >> 7)  # noqa: PLR2004  the same
    return (*struct.unpack_from(">3H", moov, start + 4), full)


def read_esds(data: bytes, wanted: int, codec: str) -> bytes:
    """Return the decoder's setup in the descriptors of an ``esds`` box, whose object type must be ``wanted``."""
    at = 0
    while at < len(data):
        tag, at = data[at], at + 1
        length = 0
        while True:
            byte, at = data[at], at + 1
            length = length << 7 | byte & 0x7F
            if not byte & 0x80:
                break
        if tag == 3:  # noqa: PLR2004  an elementary stream, whose flags say what precedes the rest
            flags = data[at + 2]
            at += 3 + 2 * (flags >> 7) + (1 + data[at + 3] if flags & 0x40 else 0) + 2 * (flags >> 5 & 1)
        elif tag == 4:  # noqa: PLR2004  the setup of its decoder
            if data[at] != wanted:
                raise Unsupported(f"the codec with object type {data[at]:#04x} is not supported, only {codec}")
            at += 13
        elif tag == 5:  # noqa: PLR2004  the part that belongs to the codec
            return data[at : at + length]
        else:
            at += length
    raise Damaged("the box 'esds' has no setup of a decoder")


def _read_sizes(boxes: TrackBoxes) -> NDArray[np.uint32]:
    name, moov, size = boxes[:3]
    if b"stz2" in boxes.tables:
        raise Unsupported(f"the {name} has compact sample sizes (stz2): remux the file once, {REMUX}")
    start, stop = need_box(boxes.tables, b"stsz", 12)
    same, count = struct.unpack_from(">2I", moov, start + 4)
    if not count:
        raise Unsupported(f"the {name} has no frames")
    if same:
        if count * same > size or count > _MOST_ALIKE:
            raise Damaged(f"the {name} claims {count} frames of {same} bytes, and the file has {size} bytes")
        return np.full(count, same, np.uint32)
    return read_rows(moov, (start + 4, stop), 1)[:, 0].astype(np.uint32)


def read_chunks(boxes: TrackBoxes, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first byte, and the number of frames, of each chunk that is not empty; ``count`` frames in all."""
    name, moov, size = boxes[:3]
    wide = b"co64" in boxes.tables
    place = need_box(boxes.tables, b"co64" if wide else b"stco", 8)
    chunks = read_rows(moov, place, 1, _U64 if wide else U32)[:, 0]
    groups = read_rows(moov, need_box(boxes.tables, b"stsc", 8), 3)
    firsts = np.append(groups[:, 0] - 1, len(chunks))
    if len(firsts) < 2 or firsts[0] or (np.diff(firsts) < 0).any():  # noqa: PLR2004  no group at all
        raise Damaged(f"the chunks of the {name} are not in order (stsc)")
    if (groups[:, 2] != 1).any():
        raise Unsupported(f"the {name} has several sample descriptions: encode it anew with one codec")
    if len(chunks) and not 0 <= chunks.min() <= chunks.max() <= size:
        raise Damaged(f"frames of the {name} begin beyond the end of the file, byte {size}: it was cut short")
    counts = np.repeat(groups[:, 1], np.diff(firsts))
    if counts.sum() != count:
        raise Damaged(f"the chunks of the {name} have {counts.sum()} frames, and stsz has {count}")
    return chunks[counts > 0], counts[counts > 0]


def _read_offsets(boxes: TrackBoxes, sizes: NDArray[np.uint32]) -> NDArray[np.int64]:
    begins, counts = read_chunks(boxes, len(sizes))
    before = np.cumsum(sizes, dtype=np.int64) - sizes
    first = np.cumsum(counts) - counts
    offsets: NDArray[np.int64] = before + np.repeat(begins - before[first], counts)
    check_places(boxes, offsets, offsets + sizes)
    return offsets


def check_places(boxes: TrackBoxes, offsets: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
    """Raise an error if frames end beyond the file, or are out of the order of the file."""
    name, _, size = boxes[:3]
    if ends.max() > size:
        raise Damaged(f"a frame of the {name} ends at byte {ends.max()}, and the file at {size}: it was cut short")
    if (offsets[1:] < ends[:-1]).any():
        raise Unsupported(f"frames of the {name} overlap, or are out of order: remux the file once, {REMUX}")


def _read_runs(
    boxes: TrackBoxes, kind: bytes, count: int, dtype: np.dtype[np.integer[Any]], what: str
) -> NDArray[np.int64]:
    rows = read_rows(boxes.moov, need_box(boxes.tables, kind, 8), 2, dtype)
    lengths = rows[:, 0].astype(np.uint32).astype(np.int64)
    if lengths.sum() != count:
        raise Damaged(f"the {boxes.name} has {count} frames, and {what} of {lengths.sum()}")
    return np.repeat(rows[:, 1], lengths)


class Edit(NamedTuple):
    """An edit list of one part, or none."""

    wait: int = 0  # ticks of the movie before the track begins
    begin: int | None = None  # tick of the track that is presented first; None: no part
    duration: int = 0  # ticks of the movie; 0: to the end


def read_edit(boxes: TrackBoxes) -> Edit:
    name, moov = boxes[:2]
    listed = read_children(moov, boxes.trak.get(b"edts", (0, 0))).get(b"elst")
    if listed is None:
        return Edit()
    dtype, (count,) = _EDITS[moov[listed[0]] == 1], struct.unpack_from(">I", moov, listed[0] + 4)
    if listed[0] + 8 + count * dtype.itemsize > listed[1]:
        raise Damaged(f"an edit list of {count} parts is longer than its box")
    if count > MOST_BOXES:
        raise Unsupported(f"the {name} has an edit list of {count} parts: encode the file anew")
    edits = [tuple(map(int, each)) for each in np.frombuffer(moov, dtype, count, listed[0] + 8)]
    delay = 0
    while edits and edits[0][1] == -1:
        delay += edits.pop(0)[0]
    if len(edits) > 1:
        raise Unsupported(f"the {name} has an edit list of {len(edits)} parts: encode the file anew")
    if max([delay, *(abs(each) for part in edits for each in part)]) * boxes.scale > _MOST_TICKS:
        raise Damaged(f"the edit list of the {name} has times beyond all reason")
    if not edits:
        return Edit(delay)
    duration, begin, rate = edits[0]
    if rate != 1 << 16:
        raise Unsupported(f"the edit list of the {name} changes its speed: encode the file anew")
    return Edit(delay, begin, duration)


def _apply_edits(boxes: TrackBoxes, ticks: NDArray[np.int64]) -> tuple[NDArray[np.int64], Range]:
    """Return the times after the edit list, and the first and end tick of the presented frames, as FFmpeg has them."""
    everything = int(ticks.min()), int(ticks.max()) + 1
    delay, begin, duration = read_edit(boxes)
    wait = rescale(delay, boxes.scale, boxes.movie_scale)
    if begin is None:
        return ticks + wait, (everything[0] + wait, everything[1] + wait)
    end = begin + max(rescale(duration, boxes.scale, boxes.movie_scale), 1) if duration else everything[1]
    inside = ticks[(ticks >= begin) & (ticks < end)]
    if not len(inside):
        raise Unsupported("the edit list of the video track shows no frame")
    # FFmpeg lets the first frame that is shown begin at once.
    shift = wait - int(inside.min())
    return ticks + shift, (wait, end + shift)


def rescale(count: _Ticks, scale: int, other: int) -> _Ticks:
    """Return ``count`` ticks of 1/``other`` s in ticks of 1/``scale`` s, rounded."""
    return (2 * count * scale + other) // (2 * other)
