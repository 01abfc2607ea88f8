"""Fragments of an MP4 file: ``moof`` boxes that list the frames of the ``mdat`` behind, of recorders and of DASH.

Format: ISO/IEC 14496-12, 8.8. Without ``tfdt``, a fragment begins where the one before it ends.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.data.video.moov import REMUX, list_boxes, need_box, read_children
from penstock.errors import Damaged, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.data.video.moov import Fragment, Range

    Ints = NDArray[np.int64]

_MOST_FRAMES = 1 << 22  # 38 hours at 30 per second
_MOST_ALIKE = 1 << 16  # frames of a run of which the file lists nothing
_NOT_A_KEY = 0x01010000  # flags of a frame that is not a sync sample, or that depends on others
# Flags of ``tfhd``: which fields it has, and whether places are counted from the fragment.
_BASE, _DESCRIPTION, _DEFAULTS, _AT_MOOF = 0x1, 0x2, (0x8, 0x10, 0x20), 0x20000
# Flags of ``trun``: its fields, and the columns of its table.
_PLACE, _FIRST_FLAGS = 0x1, 0x4
_COLUMNS = (0x100, 0x200, 0x400, 0x800)  # duration, size, flags, composition offset


class Defaults(NamedTuple):
    """Values of all frames of a track that a fragment does not give: its ``trex`` box."""

    duration: int
    size: int
    flags: int


class Samples(NamedTuple):
    """Frames of one track in decoding order: int64 each, shape (frames,)."""

    sizes: Ints
    offsets: Ints  # first byte in the file
    begins: Ints  # tick at which each is decoded
    durations: Ints
    shifts: Ints  # ticks from there to its presentation
    keys: NDArray[np.bool_]


def read_defaults(moov: memoryview, mvex: Range) -> dict[int, Defaults]:
    """Return the values of each track in the ``trex`` boxes, by its ID."""
    found = {}
    for kind, place in list_boxes(moov, *mvex):
        if kind == b"trex":
            start, _ = need_box({kind: place}, kind, 24)
            number, description, *values = struct.unpack_from(">5I", moov, start + 4)
            _check_description(description)
            found[number] = Defaults(*values)
    return found


def read_fragments(
    fragments: Iterable[Fragment], size: int, track: int, given: Mapping[int, Defaults], listed: Sequence[Samples]
) -> Samples:
    """Return the frames of a track: those of ``listed``, and of the fragments of a file of ``size`` bytes.

    ``given`` are the defaults of each track.
    """
    found = _Collected(size, listed)
    for at, moof in fragments:
        place = at
        for kind, traf in list_boxes(moof, 0, len(moof)):
            if kind != b"traf":
                continue
            boxes = read_children(moof, traf)
            number, base, values = _read_head(moof, need_box(boxes, b"tfhd", 8), (at, place), given)
            if b"tfdt" in boxes and number == track:
                start, _ = need_box(boxes, b"tfdt", 8)
                (found.tick,) = struct.unpack_from(">Q" if moof[start] else ">I", moof, start + 4)
            place = base
            for name, box in list_boxes(moof, *traf):
                if name == b"trun":
                    run = _read_run(moof, box, values)
                    place = place if run.ahead is None else base + run.ahead
                    if number == track:
                        found.add(place, run)
                    place += int(run.sizes.sum())
    return found.join()


class _Run(NamedTuple):
    """Some frames that follow one another in the file."""

    ahead: int | None  # bytes from where places are counted to the first; None: it follows the frames before
    durations: Ints
    sizes: Ints
    shifts: Ints
    keys: NDArray[np.bool_]


class _Collected:
    """The frames of one track so far."""

    def __init__(self, size: int, listed: Sequence[Samples]) -> None:
        self._size, self._parts = size, [*listed]
        self._count = sum(len(each.sizes) for each in listed)
        self._stop = int(listed[-1].offsets[-1] + listed[-1].sizes[-1]) if listed else 0
        self.tick = int(listed[-1].begins[-1] + listed[-1].durations[-1]) if listed else 0

    def add(self, place: int, run: _Run) -> None:
        """Add frames from byte ``place`` on; those that overlap others would not be bounded by the file."""
        if not len(run.sizes):
            return
        ends = place + np.cumsum(run.sizes)
        if place < self._stop:
            raise Unsupported(f"frames of the fragments overlap, or are out of order: remux the file once, {REMUX}")
        self._stop, self._count = int(ends[-1]), self._count + len(ends)
        if self._stop > self._size:
            raise Damaged(f"a fragment has frames to byte {self._stop}, and the file ends at {self._size}: cut short")
        if self._count > _MOST_FRAMES:
            raise Unsupported(f"the fragments have more than {_MOST_FRAMES} frames: remux the file once, {REMUX}")
        begins = self.tick + np.cumsum(run.durations) - run.durations
        self.tick = int(begins[-1] + run.durations[-1])
        self._parts.append(Samples(run.sizes, ends - run.sizes, begins, run.durations, run.shifts, run.keys))

    def join(self) -> Samples:
        if not self._parts:
            raise Unsupported("the track has no frames, neither in moov nor in fragments")
        return Samples(*(np.concatenate(column) for column in zip(*self._parts, strict=True)))


def _read_head(
    moof: memoryview, tfhd: Range, places: tuple[int, int], given: Mapping[int, Defaults]
) -> tuple[int, int, Defaults]:
    """Return the ID of a track, the byte from which its places are counted, and its defaults in this fragment.

    ``places`` are the first byte of the fragment, and the one after the frames before.
    """
    flags, number = struct.unpack_from(">2I", moof, tfhd[0])
    at, base = tfhd[0] + 8, places[not flags & _AT_MOOF]
    if at + 8 * bool(flags & _BASE) + 4 * sum(bool(flags & each) for each in (_DESCRIPTION, *_DEFAULTS)) > tfhd[1]:
        raise Damaged(f"the box 'tfhd' of a fragment at byte {places[0]} is cut short")
    if flags & _BASE:
        (base,), at = struct.unpack_from(">Q", moof, at), at + 8
    if flags & _DESCRIPTION:
        _check_description(*struct.unpack_from(">I", moof, at))
        at += 4
    values = [*given.get(number, (0, 0, 0))]
    for which, flag in enumerate(_DEFAULTS):
        if flags & flag:
            (values[which],), at = struct.unpack_from(">I", moof, at), at + 4
    return number, base, Defaults(*values)


def _read_run(moof: memoryview, box: Range, given: Defaults) -> _Run:
    start, stop = need_box({b"trun": box}, b"trun", 8)
    flags, count = struct.unpack_from(">2I", moof, start)
    at, ahead, first = start + 8, None, None
    if flags & _PLACE:
        (ahead,), at = struct.unpack_from(">i", moof, at), at + 4
    if flags & _FIRST_FLAGS:
        (first,), at = struct.unpack_from(">I", moof, at), at + 4
    there = [bool(flags & flag) for flag in _COLUMNS]
    if count > (_MOST_ALIKE if not any(there) else (stop - at) // (4 * sum(there))):
        raise Damaged(f"a fragment claims {count} frames, more than its box has")
    rows = iter(np.frombuffer(moof, ">u4", count * sum(there), at).reshape(count, sum(there)).T.astype(np.int64))
    columns = [next(rows) if each else np.full(count, value) for each, value in zip(there, (*given, 0), strict=True)]
    durations, sizes, marks, shifts = columns
    if first is not None and count and not there[2]:
        marks[0] = first
    return _Run(
        ahead, durations, sizes, shifts.astype(np.uint32).view(np.int32).astype(np.int64), marks & _NOT_A_KEY == 0
    )


def _check_description(number: int) -> None:
    if number != 1:
        raise Unsupported("the file has several sample descriptions: encode it anew with one codec")
