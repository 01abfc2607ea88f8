"""Audio tracks of MP4 and MOV files, and WAV files: places and times of their packets, in PCM frames.

Formats: ISO/IEC 14496-3 (AAC), 14496-12, 23003-5 (``ipcm``), QuickTime sound descriptions of versions 0 to 2, Opus,
FLAC and ALAC in ISOBMFF; RIFF, RF64 and BW64. Packets of PCM are stretches of at most 4,096 PCM frames, as files state
no others. No number in the file is trusted, as in ``boxes``.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.data.shards.format import Ask
from penstock.data.video.boxes import (
    Setup,
    Track,
    check_places,
    find_track,
    read_chunks,
    read_edit,
    read_entry,
    read_esds,
    read_samples,
    rescale,
)
from penstock.data.video.moov import need_box, read_children, read_rows
from penstock.errors import Damaged, Unsupported

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from penstock.data.video.boxes import TrackBoxes
    from penstock.data.video.moov import Moov, Range

    Ints = NDArray[np.int64]

# Of the samples of PCM: byte order, kind and bytes, as numpy names them, which has no integers of 3 bytes.
PCM_KINDS = ("|u1", "|i1", "<i2", ">i2", "<i3", ">i3", "<i4", ">i4", "<f4", ">f4", "<f8", ">f8")
_COMPRESSED = ("mp4a", "Opus", "alac", "fLaC")
_PACKET_FRAMES = 4096
_MOST_CHANNELS, _MOST_RATE = 64, 768_000
MOST_TICKS = 1 << 40  # so that their product with a rate has 64 bits
_MOST_DRIFT_S = 0.02  # of times of AAC packets, written by a clock, from those that follow from their number
_AAC_RATES = (96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350)
_AAC_CHANNELS = (0, 1, 2, 3, 4, 5, 6, 8)
_REMUX, _ENCODE = "ffmpeg -i IN -c copy OUT.mp4", "ffmpeg -i IN -c:v copy -c:a aac OUT.mp4"
_READ_BYTES, _MOST_READS = 64 << 10, 8
_PCM_GUID = bytes.fromhex("000000001000800000aa00389b71")
_UNKNOWN_SIZE = 0xFFFFFFFF


class _Codec(NamedTuple):
    name: str  # of FFmpeg's decoder, or one of PCM_KINDS
    extradata: bytes
    channels: int
    rate: int  # PCM frames per second; 0: that of the track's times
    packet: int = 0  # PCM frames of each packet; 0: they may vary


def read_audio(moov: Moov, size: int, track: int | None = None) -> Track | None:
    """Return the first audio track, or the one with an ID; None if there is none, or one without packets.

    Its ticks are PCM frames from the beginning of the presentation; ``shown`` leaves out what the edit list hides, such
    as the priming of an encoder.
    """
    boxes = find_track(moov, size, b"soun", track)
    # Recorders without a microphone write an empty track.
    if boxes is None or (not boxes.fragments and _is_empty(boxes)):
        return None
    codec = _read_codec(boxes)
    pcm = codec.name in PCM_KINDS
    rate = codec.rate if codec.rate and not pcm else boxes.scale
    # 16 bits of the description have no rate above 65,535: writers keep the lower bits, or halve it.
    if pcm and codec.rate and codec.rate != rate & 0xFFFF and rate % codec.rate:
        raise Unsupported(f"the audio track has {codec.rate} samples per second, and its times are in 1/{rate} s")
    _check_shape(codec.channels, rate)
    if pcm:
        offsets, sizes, durations = _read_pcm(boxes, codec)
        begins = np.cumsum(durations) - durations
    else:
        found = read_samples(boxes)
        offsets, sizes, durations, begins = found.offsets, found.sizes.astype(np.uint32), found.durations, found.begins
    ticks, last = _read_ticks(boxes, codec, rate, (begins, durations))
    delay, begin, duration = read_edit(boxes)
    wait = rescale(delay, rate, boxes.movie_scale)
    hidden = rescale(begin or 0, rate, boxes.scale)
    total = int(ticks[-1]) + last
    end = min(total, hidden + rescale(duration, rate, boxes.movie_scale)) if duration else total
    shown = wait + max(-hidden, 0), wait + max(end - hidden, 0)
    setup = Setup(codec.name, codec.extradata, (), 0, (), codec.channels)
    return Track(setup, rate, sizes, offsets, ticks + wait - hidden, np.zeros(1, np.int64), shown, last)


def _is_empty(boxes: TrackBoxes) -> bool:
    start, stop = boxes.tables.get(b"stsz", (0, 0))
    return stop - start >= 12 and not any(boxes.moov[start + 8 : start + 12])  # noqa: PLR2004  with the count


def _check_shape(channels: int, rate: int) -> None:
    if not 1 <= channels <= _MOST_CHANNELS:
        raise Damaged(f"the audio has {channels} channels, and 1 to {_MOST_CHANNELS} are supported")
    if not 1 <= rate <= _MOST_RATE:
        raise Damaged(f"the audio has {rate} samples per second, and 1 to {_MOST_RATE} are supported")


def _read_ticks(boxes: TrackBoxes, codec: _Codec, rate: int, times: tuple[Ints, Ints]) -> tuple[Ints, int]:
    """Return the PCM frame at which each packet begins, and the number of those of the last one."""
    ticks, last = times[0], int(times[1][-1])
    if int(ticks[-1]) + last > MOST_TICKS or (np.diff(ticks) < 0).any():
        raise Damaged("the packets of the audio track have times beyond all reason, or go back in time")
    found: Ints = (2 * ticks * rate + boxes.scale) // (2 * boxes.scale)
    exact = bool((ticks * rate % boxes.scale == 0).all())
    if codec.packet:
        regular = np.arange(len(ticks)) * codec.packet
        # Recorders write the time of a clock, rounded: the samples are without gaps all the same.
        if np.ptp(found - regular) <= _MOST_DRIFT_S * rate:
            found, exact = regular + found[0], True
    if not exact:
        raise Unsupported(
            f"times of the audio track, in 1/{boxes.scale} s, are not whole samples of 1/{rate} s: remux it, {_REMUX}"
        )
    return found, rescale(last, rate, boxes.scale)


def _read_pcm(boxes: TrackBoxes, codec: _Codec) -> tuple[Ints, NDArray[np.uint32], Ints]:
    if boxes.fragments:
        raise Unsupported(f"the audio track has PCM in fragments: remux it, {_REMUX}")
    start, _ = need_box(boxes.tables, b"stsz", 12)
    same, count = struct.unpack_from(">2I", boxes.moov, start + 4)
    frame_bytes = codec.channels * int(codec.name[2])
    # QuickTime writes 1 for the bytes of any PCM frame.
    if same not in (1, frame_bytes):
        raise Unsupported(f"the audio track has a table of sizes of PCM frames: remux it, {_REMUX}")
    if count * frame_bytes > boxes.size:
        raise Damaged(f"the audio track claims {count} frames of {frame_bytes} bytes, and the file has {boxes.size}")
    rows = read_rows(boxes.moov, need_box(boxes.tables, b"stts", 8), 2)
    if (rows[:, 1] != 1).any() or rows[:, 0].sum() != count:
        raise Unsupported("the audio track has PCM frames that are not all one tick apart: remux it, " + _REMUX)
    begins, counts = read_chunks(boxes, count)
    check_places(boxes, begins, begins + counts * frame_bytes)
    return cut_pcm(begins, counts, frame_bytes)


def cut_pcm(begins: Ints, counts: Ints, frame_bytes: int) -> tuple[Ints, NDArray[np.uint32], Ints]:
    """Return the first byte, the bytes and the PCM frames of each packet of some chunks of PCM."""
    parts = -(-counts // _PACKET_FRAMES)
    within = (np.arange(int(parts.sum())) - np.repeat(np.cumsum(parts) - parts, parts)) * _PACKET_FRAMES
    frames = np.minimum(np.repeat(counts, parts) - within, _PACKET_FRAMES)
    return np.repeat(begins, parts) + within * frame_bytes, (frames * frame_bytes).astype(np.uint32), frames


def _read_codec(boxes: TrackBoxes) -> _Codec:
    kind, (start, stop) = read_entry(boxes)
    name, moov = kind.decode("latin-1"), boxes.moov
    version, channels, bits, rate = struct.unpack_from(">H6x2H4xH", moov, start + 8)
    body, flags = start + 28, None
    # Version 1 of ISO's own table of descriptions has another meaning, and no fields more.
    if version and not moov[boxes.tables[b"stsd"][0]]:
        if version == 1:
            body += 16
        elif version == 2:  # noqa: PLR2004  the last version of QuickTime
            exact, channels, bits, flags, packet, frames = struct.unpack_from(">dI4x4I", moov, start + 32)
            rate, body = round(exact), start + 64
            if name == "lpcm" and (frames != 1 or packet * 8 != channels * bits):
                raise Unsupported(f"the audio track has PCM frames of {packet} bytes for {channels} of {bits} bits")
        else:
            raise Unsupported(f"the audio track has a sound description of version {version}, and 0 to 2 are known")
    inner = read_children(moov, (body, stop))
    if b"wave" in inner:
        inner = read_children(moov, inner[b"wave"]) | inner
    if b"sinf" in inner:
        raise Unsupported("the audio track is encrypted")
    if name in _COMPRESSED:
        return _read_compressed(moov, name, inner, channels)
    pcm = _name_pcm(moov, name, inner, bits, flags)
    if pcm not in PCM_KINDS:
        known = "AAC, Opus, ALAC, FLAC and PCM"
        raise Unsupported(f"the audio codec {name!r} of {bits} bits is not supported, only {known}: {_ENCODE}")
    return _Codec(pcm, b"", channels, rate)


def _name_pcm(moov: memoryview, name: str, inner: dict[bytes, Range], bits: int, flags: int | None) -> str:
    """Return the kind of the samples, one of ``PCM_KINDS``, or another text."""
    size = bits // 8
    if name in ("sowt", "twos"):
        return "|i1" if size == 1 else f"{'<' if name == 'sowt' else '>'}i{size}"
    if name == "raw ":
        return f"|u{size}"
    if name in ("in24", "in32", "fl32", "fl64"):
        start, stop = inner.get(b"enda", (0, 0))
        order = "<" if stop - start >= 2 and moov[start + 1] else ">"  # noqa: PLR2004  one number
        return f"{order}{'i' if name[0] == 'i' else 'f'}{int(name[2:]) // 8}"
    if name in ("ipcm", "fpcm"):
        start, _ = need_box(inner, b"pcmC", 6)
        order, size = "<" if moov[start + 4] & 1 else ">", moov[start + 5] // 8
        return "|i1" if size == 1 else f"{order}{name[0]}{size}"
    if name == "lpcm" and flags is not None:
        kind = "f" if flags & 1 else "i" if flags & 4 else "u"
        return f"|{kind}1" if size == 1 else f"{'>' if flags & 2 else '<'}{kind}{size}"
    return ""


def _read_compressed(moov: memoryview, name: str, inner: dict[bytes, Range], channels: int) -> _Codec:
    if name == "mp4a":
        start, stop = need_box(inner, b"esds", 4)
        return _read_aac(read_esds(bytes(moov[start + 4 : stop]), 0x40, "AAC"), channels)
    if name == "Opus":
        start, stop = need_box(inner, b"dOps", 11)
        _, channels, _, rate, gain, family = struct.unpack_from(">2BHIhB", moov, start)
        # The edit list hides the beginning: the decoder hides none (0).
        head = struct.pack("<8s2BHIhB", b"OpusHead", 1, channels, 0, rate, gain, family)
        return _Codec("opus", head + bytes(moov[start + 11 : stop]), channels, 48_000)
    if name == "alac":
        start, _ = need_box(inner, b"alac", 28)
        channels, rate = moov[start + 13], struct.unpack_from(">I", moov, start + 24)[0]
        return _Codec("alac", bytes(moov[start - 8 : start + 28]), channels, rate)
    start, _ = need_box(inner, b"dfLa", 42)
    # STREAMINFO is first: 20 bits for the rate, 3 for the channels.
    packed = int.from_bytes(moov[start + 18 : start + 21], "big")
    channels = (moov[start + 20] >> 1 & 7) + 1
    return _Codec("flac", bytes(moov[start + 8 : start + 42]), channels, packed >> 4)


def _read_aac(setup: bytes, channels: int) -> _Codec:
    """Return the codec of an AudioSpecificConfig; for ``channels`` if it leaves them to the packets."""
    data = setup[:64]
    bits, at = int.from_bytes(data, "big"), 8 * len(data)

    def take(count: int) -> int:
        nonlocal at
        at -= count
        if at < 0:
            raise Damaged("the setup of the AAC decoder is cut short")
        return bits >> at & ((1 << count) - 1)

    kind, index = take(5), take(4)
    rate = take(24) if index == 15 else _AAC_RATES[index]  # noqa: PLR2004  the rate itself follows
    layout = take(4)
    short = take(1)
    if kind == 2 and not take(1) and not take(1) and layout and at >= 17:  # noqa: PLR2004  low complexity; an extension
        kind = 5 if take(11) == 0x2B7 and take(5) == 5 and take(1) else 2  # noqa: PLR2004  its mark: HE-AAC
    if kind != 2:  # noqa: PLR2004  the same
        raise Unsupported(f"AAC of object type {kind} is not supported (HE-AAC is 5 and 29), only AAC-LC: {_ENCODE}")
    if layout >= len(_AAC_CHANNELS):
        raise Unsupported(f"AAC with channel configuration {layout} is not supported: {_ENCODE}")
    return _Codec("aac", setup, _AAC_CHANNELS[layout] or channels, rate, 960 if short else 1024)


def walk_wav(view: bytes, size: int) -> Generator[Ask, memoryview, Track]:
    """Return the packets of a WAV file of ``size`` bytes, whose first bytes are ``view``."""
    sized = struct.unpack_from("<I", view, 4)[0] + 8 == size
    base, at, found = 0, 12, {b"ds64": b""}
    for _ in range(_MOST_READS):
        while at + 8 <= base + len(view):
            kind, length = struct.unpack_from("<4sI", view, at - base)
            body, needed = at + 8, min(length, 40) if kind in (b"fmt ", b"ds64") else 0
            if kind == b"data":
                return _cut_wav(found, (body, length), size, sized=sized)
            if base + len(view) < min(body + needed, size):
                break
            if needed:
                found[kind] = view[body - base : body - base + needed]
            at = body + length + length % 2
        if at + 8 > size:
            break
        # A chunk that begins in the last few bytes of a read continues in the next.
        view, base = view[at - base :], at
        start = at + len(view)
        view += bytes((yield Ask(start, min(size, start + _READ_BYTES))))
    raise Damaged(f"found no data chunk in the WAV file of {size} bytes, up to byte {at}")


def _cut_wav(chunks: dict[bytes, bytes], data: Range, size: int, *, sized: bool) -> Track:
    """Return the packets of the first byte and the length of ``data``; ``sized``: the file states its own size."""
    start, length = data
    if b"fmt " not in chunks:
        raise Damaged(f"the WAV file has no 'fmt ' chunk before its data at byte {start - 8}")
    codec = _read_format(chunks[b"fmt "])
    if length == _UNKNOWN_SIZE and chunks[b"ds64"]:
        (length,) = struct.unpack_from("<8xQ", chunks[b"ds64"])
    # A pipe has no way back to write the sizes.
    elif length == _UNKNOWN_SIZE or (not length and not sized):
        length = size - start
    if start + length > size:
        raise Damaged(f"the data at byte {start} has {length} bytes, and the file ends at {size}: cut short")
    frame_bytes = codec.channels * int(codec.name[2])
    count = length // frame_bytes
    if not count:
        raise Unsupported("the WAV file has no samples")
    offsets, sizes, frames = cut_pcm(np.array([start]), np.array([count]), frame_bytes)
    setup = Setup(codec.name, b"", (), 0, (), codec.channels)
    ticks = np.cumsum(frames) - frames
    return Track(setup, codec.rate, sizes, offsets, ticks, np.zeros(1, np.int64), (0, count), int(frames[-1]))


def _read_format(chunk: bytes) -> _Codec:
    tag, channels, rate, _, align, bits = struct.unpack_from("<2H2I2H", chunk)
    # An extensible format has its tag in the first bytes of a GUID.
    if tag == 0xFFFE and chunk[26:40] == _PCM_GUID:  # noqa: PLR2004  WAVE_FORMAT_EXTENSIBLE
        (tag,) = struct.unpack_from("<H", chunk, 24)
    kind = {1: "<i", 3: "<f"}.get(tag, "") + f"{bits // 8}"
    kind = "|u1" if kind == "<i1" else kind
    if bits % 8 or kind not in PCM_KINDS:
        convert = "ffmpeg -i IN -c:a pcm_s16le OUT.wav"
        raise Unsupported(f"the WAV file has samples of format {tag:#06x} and {bits} bits, not PCM: {convert}")
    _check_shape(channels, rate)
    if align * 8 != channels * bits:
        raise Damaged(f"the WAV file has {align} bytes for {channels} samples of {bits} bits")
    return _Codec(kind, b"", channels, rate)
