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

from penstock.data.shards.format import Ask
from penstock.errors import Damaged, Unsupported

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from numpy.typing import NDArray

    Range = tuple[int, int]
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

_FIRST_BYTES, _MOST_FIRST_BYTES, _SHARE = 64 << 10, 1 << 20, 512  # of the first read: 1/512 of the file
_NEXT_BYTES = 4 << 20  # read at once after the frames, where moov often lies
_MOST_MOOV = 64 << 20
_MOST_READS = 8
_MOST_BOXES = 512  # within one box
_MOST_ALIKE = 1 << 20  # frames of one size, which take no memory in the file
_MOST_TICKS = 1 << 56
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
_REMUX = "ffmpeg -i IN -c copy -movflags +faststart OUT.mp4"
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
_U32, _I32, _U64 = np.dtype(">u4"), np.dtype(">i4"), np.dtype(">u8")
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
    movie_scale: int  # ticks per second in edit lists
    scale: int  # ticks per second of the track
    trak: dict[bytes, Range]
    media: dict[bytes, Range]
    data: dict[bytes, Range]
    tables: dict[bytes, Range]


def walk_head(size: int) -> Generator[Ask, memoryview, bytes]:
    """Return the first bytes of a file of ``size`` bytes: 1/512 of it, and 64 KiB to 1 MiB."""
    first = min(size, max(_FIRST_BYTES, min(size // _SHARE, _MOST_FIRST_BYTES)))
    return bytes((yield Ask(0, first))) if first else b""


def walk_moov(head: bytes, size: int) -> Generator[Ask, memoryview, memoryview]:
    """Return the payload of ``moov`` in a file of ``size`` bytes, whose first bytes are ``head``.

    No read more if ``moov`` is in front and not unusually large, one if it is at the end.
    """
    _check_magic(head, size)
    view, base, at = head, 0, 0
    for number in range(_MOST_READS):
        start = base + len(view)
        # A box that begins in the last few bytes of a read continues in the next.
        view, base = view[at - base :] if at < start else b"", at
        start = max(start, at)
        if number and start < size:
            view += bytes((yield Ask(start, min(size, start + _NEXT_BYTES))))
        while at < size and (found := _top_box(view[at - base : at - base + 16], at, size)):
            kind, body, length = found
            if kind == b"moof":
                raise Unsupported(f"the MP4 file is fragmented: remux it once, {_REMUX}")
            if kind == b"moov":
                if length > _MOST_MOOV:
                    raise Unsupported(f"the moov box has {length} bytes, and {_MOST_MOOV} at most are supported")
                moov, end = view[at - base :], at + length
                if len(moov) < length:
                    moov += bytes((yield Ask(at + len(moov), end)))
                return memoryview(moov)[body:length]
            at += length
        if at >= size:
            raise Damaged(f"the file has no moov box in its {size} bytes: it was cut short while it was written")
    raise Damaged(f"found no moov box in {_MOST_READS} reads, the last at byte {at}")


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
        raise Unsupported(
            f"the file is {name}, and frames are found in MP4 and MOV files only: remux it once, {_REMUX}"
        )
    if head[4:8] not in _TOP:
        raise Damaged(f"the file of {size} bytes begins with {head[:8]!r}, not with a box of MP4 or MOV")


def _top_box(head: bytes, at: int, size: int) -> tuple[bytes, int, int] | None:
    """Return kind, bytes of the header, and length of the box at byte ``at``; None if its header was not read yet."""
    whole = size - at
    if len(head) < min(whole, 16):
        return None
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


def _boxes(data: memoryview, start: int, stop: int) -> Iterator[tuple[bytes, Range]]:
    """Yield the kind and the payload of each box between two bytes of ``moov``."""
    for _ in range(_MOST_BOXES):
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
    raise Damaged(f"a box has more than {_MOST_BOXES} others")


def read_children(data: memoryview, of: Range) -> dict[bytes, Range]:
    """Return the boxes in a box by their kind, each the first of its kind."""
    found: dict[bytes, Range] = {}
    for kind, place in _boxes(data, *of):
        found.setdefault(kind, place)
    return found


def need_box(found: dict[bytes, Range], kind: bytes, least: int = 0) -> Range:
    start, stop = found.get(kind, (0, -1))
    if stop - start < least:
        raise Damaged(f"moov has no box {_name(kind)}, or one that is cut short")
    return start, stop


def read_rows(data: memoryview, place: Range, width: int, dtype: np.dtype[np.integer] = _U32) -> NDArray[np.int64]:
    """Return the table of a full box, which begins with its number of rows."""
    start, stop = place
    (count,) = struct.unpack_from(">I", data, start + 4)
    if start + 8 + count * width * dtype.itemsize > stop:
        raise Damaged(f"a table of {count} rows is longer than its box at byte {start} of moov")
    return np.frombuffer(data, dtype, count * width, start + 8).reshape(count, width).astype(np.int64)


def find_track(moov: memoryview, size: int, handler: bytes, track: int | None) -> TrackBoxes | None:
    """Return the first track with a handler ("vide" or "soun"), or the one with an ID; None if there is no such track.

    ``moov`` is its payload, of a file of ``size`` bytes.
    """
    listed = [*_boxes(moov, 0, len(moov))]
    found = dict(reversed(listed))
    if b"cmov" in found:
        raise Unsupported(f"the moov box is compressed: remux the file once, {_REMUX}")
    if b"mvex" in found:
        raise Unsupported(f"the MP4 file is fragmented: remux it once, {_REMUX}")
    start, _ = need_box(found, b"mvhd", 32)
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
            return TrackBoxes(name, moov, size, movie_scale, scale, trak, media, data, tables)
        ids.append(number)
    if ids:
        raise Unsupported(f"the file has no {name} {track}, and its {name}s are {ids}")
    return None


def read_video(moov: memoryview, size: int, track: int | None = None) -> Track:
    """Return the first video track, or the one with an ID, from the payload of ``moov`` in a file of ``size`` bytes."""
    boxes = find_track(moov, size, b"vide", track)
    if boxes is None:
        raise Unsupported("the file has no video track")
    tables = boxes.tables
    setup = _read_setup(boxes)
    sizes = read_sizes(boxes)
    offsets = read_offsets(boxes, sizes)
    steps = read_runs(boxes, b"stts", len(sizes), _U32, "durations")
    ticks = np.cumsum(steps) - steps
    if b"ctts" in tables:
        ticks = ticks + read_runs(boxes, b"ctts", len(sizes), _I32, "composition offsets")
    ticks, shown = _apply_edits(boxes, ticks)
    keys = (
        np.arange(len(sizes)) if b"stss" not in tables else read_rows(moov, need_box(tables, b"stss", 8), 1)[:, 0] - 1
    )
    if not len(keys):
        raise Unsupported("the video track has no key frame, so that no frame can be decoded by itself")
    if keys[0] < 0 or keys[-1] >= len(sizes) or (np.diff(keys) <= 0).any():
        raise Damaged(f"the key frames of the video track do not ascend within its {len(sizes)} frames")
    return Track(setup, boxes.scale, sizes, offsets, ticks, keys, shown, int(steps[-1]))


def read_entry(boxes: TrackBoxes) -> tuple[bytes, Range]:
    """Return the kind and the place of the only sample description of a track, whose data is in this file."""
    moov, stsd = boxes.moov, need_box(boxes.tables, b"stsd", 8)
    entries = [*_boxes(moov, stsd[0] + 8, stsd[1])]
    if len(entries) != 1:
        raise Unsupported(f"the {boxes.name} has {len(entries)} sample descriptions: encode it anew with one codec")
    kind, (start, stop) = entries[0]
    if kind in (b"encv", b"enca", b"drmi", b"drms"):
        raise Unsupported(f"the {boxes.name} is encrypted")
    if b"dref" in boxes.data:
        files = [*_boxes(moov, boxes.data[b"dref"][0] + 8, boxes.data[b"dref"][1])]
        (used,) = struct.unpack_from(">H", moov, start + 6)
        if not 1 <= used <= len(files) or not moov[files[used - 1][1][0] + 3] & 1:
            raise Unsupported(f"the data of the {boxes.name} is in another file")
    return kind, (start, stop)


def _read_setup(boxes: TrackBoxes) -> Setup:
    moov, stsd = boxes.moov, need_box(boxes.tables, b"stsd", 8)
    kind, (start, stop) = read_entry(boxes)
    inner = dict(_boxes(moov, start + 78, stop))
    if b"sinf" in inner:
        raise Unsupported("the video track is encrypted")
    codec = kind.decode("latin-1")
    if codec not in CODECS:
        raise Unsupported(f"the codec {codec!r} is not supported, only {', '.join(CODECS)}")
    needed, extradata = _SETUPS.get(CODECS[codec], "").encode(), b""
    if needed:
        first, end = need_box(inner, needed, 4)
        extradata = bytes(moov[first:end]) if needed != b"esds" else read_esds(bytes(moov[first + 4 : end]), 0x20)
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
        found = dict(_boxes(view, 0, len(data)))
        if data[4:8] != b"soun":
            return _read_setup(TrackBoxes("video track", view, len(data), 1, 1, found, found, {}, found))
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


def read_esds(data: bytes, wanted: int) -> bytes:
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
                raise Unsupported(f"the codec with object type {data[at]:#04x} is not supported, only {wanted:#04x}")
            at += 13
        elif tag == 5:  # noqa: PLR2004  the part that belongs to the codec
            return data[at : at + length]
        else:
            at += length
    raise Damaged("the box 'esds' has no setup of a decoder")


def read_sizes(boxes: TrackBoxes) -> NDArray[np.uint32]:
    name, moov, size = boxes[:3]
    if b"stz2" in boxes.tables:
        raise Unsupported(f"the {name} has compact sample sizes (stz2): remux the file once, {_REMUX}")
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
    chunks = read_rows(moov, place, 1, _U64 if wide else _U32)[:, 0]
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


def read_offsets(boxes: TrackBoxes, sizes: NDArray[np.uint32]) -> NDArray[np.int64]:
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
        raise Unsupported(f"frames of the {name} overlap, or are out of order: remux the file once, {_REMUX}")


def read_runs(
    boxes: TrackBoxes, kind: bytes, count: int, dtype: np.dtype[np.integer[Any]] = _U32, what: str = "durations"
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
    if count > _MOST_BOXES:
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
