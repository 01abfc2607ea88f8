"""Sound from the packets of an audio track: exact PCM frames, decoded by PyAV, or by numpy where they are PCM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.data.video.audio_boxes import PCM_KINDS
from penstock.data.video.frames import join_intervals
from penstock.data.video.packets import decode_sound
from penstock.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstock.data.video.frames import Ints, Table
    from penstock.data.video.packets import HeldBytes

# PCM frames that are decoded before the first wanted one: packets refer to those before. Opus forgets them slowly: the
# difference is 5 % after the 80 ms that RFC 7845 names, and 1e-5 after half a second.
_PREROLL = {"aac": 2048, "opus": 24_000}
_MOST_SAMPLES = 1 << 29


class Sound(NamedTuple):
    """A stretch of an audio track, in PCM frames from the beginning of the file."""

    table: Table
    begin: int
    stop: int


def find_packets(table: Table, begins: Ints, stops: Ints) -> tuple[Ints, Ints]:
    """Return the first packet and the end of those that intervals of PCM frames need; nothing for empty intervals.

    PCM frames are numbered from the beginning of the file; those that the track does not present need no packets.
    """
    begins, stops = (np.clip(each, table.begin, table.begin + table.frames) - table.first for each in (begins, stops))
    wanted = begins < stops
    begins, stops = begins[wanted] - _PREROLL.get(table.setup.codec, 0), stops[wanted]
    count = len(table.sizes)
    if table.step:
        firsts, ends = begins // table.step, -(-stops // table.step)
    else:
        firsts, ends = np.searchsorted(table.times, begins, side="right") - 1, np.searchsorted(table.times, stops)
    return np.clip(firsts, 0, count - 1), np.clip(ends, 1, count)


def find_pieces(table: Table, begins: Ints, stops: Ints) -> list[tuple[int, int]]:
    """Return the byte ranges of the packets that intervals of PCM frames need, without what lies between them."""
    found: list[tuple[int, int]] = []
    for first, stop in join_intervals(*find_packets(table, begins, stops)):
        places, ends = table.places_of(first, stop)
        apart = np.flatnonzero(places[1:] != ends[:-1]) + 1
        starts, lasts = places[np.append(0, apart)], ends[np.append(apart, len(ends)) - 1]
        found += zip(starts.tolist(), lasts.tolist(), strict=True)
    return found


def decode_audio(sound: Sound, held: HeldBytes) -> NDArray[np.float32]:
    """Return the PCM frames of a stretch: float32 in [-1, 1), shape (channels, frames).

    Frames that the track does not present, and gaps between its packets, are zeros.

    Args:
        sound: The track, and the stretch.
        held: The bytes that ``find_pieces`` names, and maybe more.

    Raises:
        MissingExtra: PyAV is not installed, and the track is not PCM.
        Damaged: The decoder refused the bytes, or gave fewer packets; or the stretch is too long to be true.
        Unsupported: The decoder gave another rate or number of channels than the file states.
    """
    table, begin, stop = sound
    if table.setup.channels * (stop - begin) > _MOST_SAMPLES:
        raise Damaged(
            f"the audio of {(stop - begin) / table.scale:.0f} s has more than 2^29 samples: take shorter windows"
        )
    found = np.zeros((table.setup.channels, stop - begin), np.float32)
    first, end = max(begin, table.begin), min(stop, table.begin + table.frames)
    for at, samples in _decode_packets(table, held, np.array([begin]), np.array([stop])):
        start, last = max(at, first), min(at + samples.shape[1], end)
        if start < last:
            found[:, start - begin : last - begin] = _to_floats(samples[:, start - at : last - at])
    return found


def _decode_packets(table: Table, held: HeldBytes, begins: Ints, stops: Ints) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield the first PCM frame, and the samples, of each packet of an interval: shape (channels, frames)."""
    setup = table.setup
    for first, stop in zip(*find_packets(table, begins, stops), strict=True):
        places, ends = table.places_of(int(first), int(stop))
        numbers = np.arange(first, stop)
        ticks = table.first + (numbers * table.step if table.step else table.times[first:stop].astype(np.int64))
        packets = [
            (tick, held.take(start, end))
            for tick, start, end in zip(ticks.tolist(), places.tolist(), ends.tolist(), strict=True)
            if start < end
        ]
        if setup.codec not in PCM_KINDS:
            yield from decode_sound(setup, table.scale, packets)
        else:
            for tick, data in packets:
                yield tick, _read_pcm(data, setup.codec).reshape(-1, setup.channels).T


def _read_pcm(data: memoryview, kind: str) -> NDArray[Any]:
    if kind[2] != "3":
        return np.frombuffer(data, kind)
    # As the upper three of four bytes, which is the same fraction of the range.
    wide = np.zeros((len(data) // 3, 4), np.uint8)
    wide[:, slice(1, 4) if kind[0] == "<" else slice(3)] = np.frombuffer(data, np.uint8).reshape(-1, 3)
    return wide.view(f"{kind[0]}i4")


def _to_floats(samples: NDArray[Any]) -> NDArray[np.float32]:
    kind, size = samples.dtype.kind, samples.dtype.itemsize
    if kind == "f":
        return samples.astype(np.float32)
    half = 1 << (8 * size - 1)
    found: NDArray[np.float32] = samples.astype(np.float32) - np.float32(half if kind == "u" else 0)
    found *= np.float32(1 / half)
    return found
