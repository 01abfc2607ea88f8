"""Tables of the frames of many files, in memory that workers share: from frames to byte ranges, from times to frames.

Frames are numbered as they are presented, from 0; samples as they are decoded. A table has 4 bytes for a frame and 4
for a key frame, 4 more where frames are not presented in the order of decoding, and 4 more at a variable rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from penstock.data.catalog.columns.column import pack
from penstock.data.catalog.discovery.shards import walked
from penstock.data.shards.format import Extents, ShardFormat
from penstock.data.video.audio_boxes import MOST_TICKS, read_audio, walk_wav
from penstock.data.video.boxes import Setup, pack_setup, read_setup, read_video
from penstock.data.video.moov import is_wav, walk_head, walk_moov
from penstock.engine.listing.names import gather
from penstock.errors import Bug, Damaged, Unsupported
from penstock.progress import current

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from penstock.data.catalog.columns.column import Numbers
    from penstock.data.catalog.discovery.shards import Shards
    from penstock.data.shards.format import Walk
    from penstock.data.video.boxes import Track
    from penstock.data.video.moov import Moov

    Ints = NDArray[np.int64]

GAP_BYTES = 64 << 10  # between two ranges, at most, that are read and thrown away
_MARK_SAMPLES = 1024  # whose sizes are added up at most to find a place
_NUMBERS, COLUMNS = 9, 7  # fields of a ``Table`` before its vectors, and these


@dataclass(frozen=True, slots=True)
class VideoFormat(ShardFormat):
    """MP4 and MOV files: the schema of each is the ``Table`` of one video track.

    Attributes:
        track: ID of the video track; None: the first one.
        audio: Whether the schema is a pair, with the table of the first audio track, or ``NO_AUDIO``.
    """

    name: ClassVar[str] = "mp4"
    suffixes: ClassVar[tuple[str, ...]] = (".mp4", ".mov", ".m4v")

    track: int | None = None
    audio: bool = False

    def walk(self, size: int) -> Walk:
        """Read ``moov``, in one request or two."""
        moov = yield from walk_moov((yield from walk_head(size)), size)
        found = tabulate(read_video(moov, size, self.track))
        return _extents_of((found, self._read_sound(moov, size, found)) if self.audio else found)

    def _read_sound(self, moov: Moov, size: int, found: Table) -> Table:
        sound = read_audio(moov, size)
        if np.abs(found.ticks_of(np.array([0, found.frames - 1]))).max() > MOST_TICKS:
            raise Damaged("frames of the video track have times beyond all reason")
        return NO_AUDIO if sound is None else tabulate(sound)

    def sample(self, data: memoryview) -> memoryview:
        """Raise ``Bug``: a sample is several frames of a table."""
        raise Bug(f"{len(data)} bytes of a video are not a sample")


@dataclass(frozen=True, slots=True)
class AudioFormat(VideoFormat):
    """WAV, MP4 and MOV files: the schema of each is the ``Table`` of one audio track.

    Attributes:
        track: ID of the audio track; None: the first one.
    """

    name: ClassVar[str] = "audio"
    suffixes: ClassVar[tuple[str, ...]] = (".wav", ".m4a", ".m4b", ".mp4", ".mov")

    def walk(self, size: int) -> Walk:
        """Read ``moov``, or the chunks before the data of a WAV file, nearly always in one request."""
        head = yield from walk_head(size)
        if is_wav(head):
            return _extents_of(tabulate((yield from walk_wav(head, size))))
        sound = read_audio((yield from walk_moov(head, size)), size, self.track)
        if sound is None:
            raise Unsupported("the file has no audio track")
        return _extents_of(tabulate(sound))


def _extents_of(schema: Any) -> Extents:  # noqa: ANN401  tables
    return Extents(np.zeros(0, np.int64), np.zeros(0, np.int64), (), schema)


class Table(NamedTuple):
    """The frames of one file. Vectors are views of shared memory; those that it does not need are empty.

    For an audio track, samples are packets, each presented after the one before, ``scale`` is its rate, and ``begin``
    and ``frames`` are the first of its PCM frames that is presented, from the beginning of the file, and their number.
    """

    setup: Setup
    number: int  # of the setup among those of all files
    scale: int  # ticks per second
    first: int  # tick of the sample that comes first in the order of presentation
    step: int  # ticks between two samples in that order; 0: they vary, and ``times`` has them
    begin: int  # rank of the first presented frame among all samples in the order of presentation
    frames: int  # number of the presented frames
    reach: int  # samples by which the two orders differ at most
    last: int  # duration of the last sample in ticks
    sizes: NDArray[Any]  # bytes of each sample
    keys: NDArray[Any]  # samples that are key frames
    key_ranks: NDArray[Any]  # their ranks, if the two orders differ
    shifts: NDArray[Any]  # from rank to sample, if the two orders differ
    times: NDArray[Any]  # ticks after ``first``, by rank, at a variable rate
    marks: NDArray[Any]  # first sample of each stretch without other bytes in it
    places: NDArray[Any]  # its first byte in the file

    def ticks_of(self, frames: Ints) -> Ints:
        ranks = self.begin + frames
        return self.first + (ranks * self.step if self.step else self.times[ranks].astype(np.int64))

    def ends_of(self, frames: Ints) -> Ints:
        """Return the ticks at which the frames after these are presented, or at which the last one ends."""
        if self.step:
            return self.ticks_of(frames) + self.step
        ranks, most = self.begin + frames + 1, len(self.times) - 1
        times = self.times[np.minimum(ranks, most)].astype(np.int64)
        return self.first + times + np.where(ranks > most, self.last, 0)

    def seconds_of(self, frames: Ints) -> NDArray[np.float64]:
        """Return the times of presentation, in seconds from the beginning of the file."""
        found: NDArray[np.float64] = self.ticks_of(frames) / self.scale
        return found

    def nearest(self, seconds: NDArray[np.float64]) -> tuple[Ints, NDArray[np.float64]]:
        """Return the frames nearest to some times, and how far each is from its time, in seconds."""
        wanted = seconds * self.scale - self.first
        if self.step:
            frames = np.rint(wanted / self.step).astype(np.int64) - self.begin
        else:
            times = self.times[self.begin : self.begin + self.frames]
            right = np.clip(np.searchsorted(times, wanted), 1, max(self.frames - 1, 1))
            left, right = right - 1, np.minimum(right, self.frames - 1)
            frames = np.where(wanted - times[left] <= times[right] - wanted, left, right)
        frames = np.clip(frames, 0, self.frames - 1)
        return frames, np.abs(self.seconds_of(frames) - seconds)

    def samples_of(self, frames: Ints) -> Ints:
        ranks = self.begin + frames
        return ranks + self.shifts[ranks] if len(self.shifts) else ranks

    def needs(self, frames: Ints) -> tuple[Ints, Ints]:
        """Return the key frame from which each frame is decoded, and the sample after its own: sample numbers."""
        samples = self.samples_of(frames)
        at = np.searchsorted(self.keys, samples, side="right") - 1
        if len(self.key_ranks):
            # By time too: frames that are presented before the key frame they follow in the file need an earlier one.
            at = np.minimum(at, np.searchsorted(self.key_ranks, self.begin + frames, side="right") - 1)
        return self.keys[at].astype(np.int64), samples + 1

    def ranks_of(self, first: int, stop: int) -> Ints:
        """Return the ranks of the samples from ``first`` to ``stop``."""
        if not len(self.shifts):
            return np.arange(first, stop)
        start = max(first - self.reach, 0)
        ranks = np.arange(start, min(stop + self.reach, len(self.sizes)))
        samples = ranks + self.shifts[start : start + len(ranks)]
        inside = (samples >= first) & (samples < stop)
        found = np.empty(stop - first, np.int64)
        found[samples[inside] - first] = ranks[inside]
        return found

    def place_of(self, sample: int) -> int:
        """Return the first byte of a sample."""
        mark = int(np.searchsorted(self.marks, sample, side="right")) - 1
        return int(self.places[mark]) + int(self.sizes[int(self.marks[mark]) : sample].sum(dtype=np.int64))

    def places_of(self, first: int, stop: int) -> tuple[Ints, Ints]:
        """Return the first byte and the end of each sample from ``first`` to ``stop``."""
        marks = self.marks.astype(np.int64)
        start, end = (int(each) for each in np.searchsorted(marks, (first, stop - 1), side="right"))
        begin = int(marks[start - 1])
        sizes = self.sizes[begin:stop].astype(np.int64)
        before = np.cumsum(sizes) - sizes
        held = marks[start - 1 : end]
        bases = self.places[start - 1 : end].astype(np.int64) - before[held - begin]
        places = (before + np.repeat(bases, np.diff(held, append=stop)))[first - begin :]
        return places, places + sizes[first - begin :]

    def pieces(self, firsts: Ints, stops: Ints) -> list[tuple[int, int]]:
        """Return ascending byte ranges that together cover intervals of samples, with gaps of 64 KiB or more."""
        return join_pieces(
            (self.place_of(first), self.place_of(stop - 1) + int(self.sizes[stop - 1]))
            for first, stop in join_intervals(firsts, stops)
        )


def join_pieces(pieces: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return byte ranges in ascending order, those with less than 64 KiB in between as one."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(pieces):
        if found and start - found[-1][1] < GAP_BYTES:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def join_intervals(firsts: Ints, stops: Ints) -> list[tuple[int, int]]:
    """Return intervals in ascending order, those that meet or overlap as one."""
    if not len(firsts):
        return []
    order = np.argsort(firsts, kind="stable")
    firsts, stops = firsts[order], np.maximum.accumulate(stops[order])
    apart = np.flatnonzero(firsts[1:] > stops[:-1])
    begins, ends = firsts[np.append(0, apart + 1)], stops[np.append(apart, len(stops) - 1)]
    return [*zip(begins.tolist(), ends.tolist(), strict=True)]


def tabulate(track: Track) -> Table:
    """Return the table of a track; raise ``Damaged`` if some presented frame has no key frame before it."""
    count = len(track.sizes)
    if track.setup.channels:
        first, stop = track.shown
        times, nothing = track.ticks, np.zeros(0, np.int64)
        numbers = track.scale, int(times[0]), _step_of(times), first, max(stop - first, 0), 0, track.last
        return Table(track.setup, 0, *numbers, track.sizes, *[nothing] * 3, *_make_marks(track, times))
    order = np.argsort(track.ticks, kind="stable")
    times = track.ticks[order]
    begin, end = (int(each) for each in np.searchsorted(times, track.shown))
    shifts = order - np.arange(count)
    reorders = bool(shifts.any())
    ranks = np.empty(count, np.int64)
    ranks[order] = np.arange(count)
    key_ranks = ranks[track.keys]
    if (np.diff(key_ranks) <= 0).any():
        raise Damaged("the key frames of the video track are not presented in the order in which they are decoded")
    # Decoders leave out frames that are presented before the first key frame.
    begin = max(begin, int(key_ranks[0]))
    if (order[begin:end] < track.keys[0]).any() or begin >= end:
        raise Damaged("a frame of the video track has no key frame before it")
    vectors = [track.sizes, *(_shrink(each) for each in (track.keys, key_ranks)), shifts.astype(np.int32)]
    if not reorders:
        vectors[2:] = [each[:0] for each in vectors[2:]]
    reach = int(np.abs(shifts).max())
    numbers = track.scale, int(times[0]), _step_of(times), begin, end - begin, reach, track.last
    return Table(track.setup, 0, *numbers, *vectors, *_make_marks(track, times))


def _step_of(times: Ints) -> int:
    """Return the ticks between two samples, or 0 if they vary."""
    steps = np.diff(times)
    return int(steps[0]) if len(steps) and steps[0] and (steps == steps[0]).all() else 0


def _make_marks(track: Track, times: Ints) -> list[NDArray[Any]]:
    """Return the vectors ``times``, ``marks`` and ``places`` of a table."""
    breaks = np.flatnonzero(track.offsets[1:] != (track.offsets + track.sizes)[:-1]) + 1
    marks = np.unique(np.concatenate((np.arange(0, len(times), _MARK_SAMPLES), breaks)))
    return [_shrink((times - times[0])[: 0 if _step_of(times) else None]), _shrink(marks), track.offsets[marks]]


def _shrink(values: Ints) -> NDArray[Any]:
    """Return values as 32 bits where they fit."""
    return values.astype(np.uint32) if int(values.max(initial=0)) <= np.iinfo(np.uint32).max else values


class Videos:
    """The tables of many files; pickling for a worker passes their memory.

    Attributes:
        source: Their store.
        base: The prefix of their keys that is not part of their names.
        keys: Key of each file.
        sizes: Bytes of each file.
        etags: Version of each file.
        audio: The tables of their audio tracks, of files without one ``NO_AUDIO``; None: they were not read.
        vectors: Numbers of each table; the borders of the different setups, and these; for each vector of a ``Table``,
            its border for each file; these vectors, each of all files.
    """

    audio: Videos | None = None

    def __init__(self, shards: Shards, tables: Sequence[Table]) -> None:
        """Copy ``tables``, one for each of ``shards.found``, into one block of memory."""
        setups: dict[bytes, int] = {}
        rows = [(setups.setdefault(pack_setup(each.setup), len(setups)), *each[2:_NUMBERS]) for each in tables]
        columns: list[list[Any]] = [[each[at] for each in tables] for at in range(_NUMBERS, len(Table._fields))]
        first, *borders = [np.cumsum([0, *map(len, each)], dtype=np.int64) for each in ([*setups], *columns)]
        numbers, boxes = np.array(rows, np.int64).reshape(-1), np.frombuffer(b"".join(setups), np.uint8)
        self._adopt(shards, pack([numbers, first, boxes, *borders, *(np.concatenate(column) for column in columns)]))

    @classmethod
    def of_vectors(cls, shards: Shards, vectors: list[Numbers]) -> Self:
        """Return the files ``shards.found``, whose tables are in ``vectors``."""
        found = cls.__new__(cls)
        found._adopt(shards, vectors)  # noqa: SLF001  the same class
        return found

    def _adopt(self, shards: Shards, vectors: list[Numbers]) -> None:
        self.source, self.base, self.vectors = shards.source, shards.base, vectors
        self.keys, self.sizes, self.etags = ([*each] for each in zip(*shards.found, strict=True))
        self._rows, self._setups, self._boxes, *columns = vectors
        self._borders, self._vectors = columns[:COLUMNS], columns[COLUMNS:]

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def counts(self) -> Ints:
        """Frames of each file."""
        return self.column("frames")

    def column(self, name: str) -> Ints:
        """Return a number of each table, by its name."""
        found: Ints = self._rows.values.reshape(len(self), -1)[:, Table._fields.index(name) - 1]
        return found

    @property
    def frame_bytes(self) -> int:
        """Bytes of all frames of all files."""
        return int(self._vectors[0].values.sum(dtype=np.int64))

    def table(self, file: int) -> Table:
        """Return the table of a file: views, in some microseconds."""
        number, *numbers = self._rows.values.reshape(len(self), -1)[file].tolist()
        setup = read_setup(self._boxes.view[slice(*self._setups.view[number : number + 2])].tobytes())
        places = [each.view[file : file + 2] for each in self._borders]
        vectors = [each.values[first:stop] for each, (first, stop) in zip(self._vectors, places, strict=True)]
        return Table(setup, number, *numbers, *vectors)

    def url_of(self, file: int) -> str:
        return self.source.url(self.keys[file])


_NOTHING: list[Any] = [0] * (_NUMBERS - 1) + [np.zeros(0, np.uint32)] * COLUMNS
NO_AUDIO = Table(Setup("", b"", (), 0, ()), *_NOTHING)


def open_videos(shards: Shards) -> Videos:
    """Return the tables of MP4 and MOV files, read with one request each, two where ``moov`` is at the end.

    Many files are read at once. Errors name the file.
    """
    tables: list[Any] = [None] * len(shards.found)
    count = current()
    for number, extents in walked(shards, range(len(shards.found))):
        tables[number] = extents.schema
        count(1, shards.found[number].size)
    form = shards.format
    if not isinstance(form, VideoFormat) or not form.audio:
        return Videos(shards, tables)
    videos = Videos(shards, [video for video, _ in tables])
    videos.audio = Videos(shards, [sound for _, sound in tables])
    return videos


def join_videos(shards: Shards, parts: Sequence[Videos], places: Ints) -> Videos:
    """Return the files ``shards.found``, whose tables have these places among those of ``parts``, one after another."""
    rows = [each.vectors[0].values.reshape(len(each), -1).copy() for each in parts]
    setups, boxes = ([each.vectors[at].values for each in parts] for at in (1, 2))
    for each, first in zip(rows, np.cumsum([0, *(len(border) - 1 for border in setups)]), strict=False):
        each[:, 0] += first
    vectors: list[NDArray[Any]] = []
    borders = [np.append(0, np.cumsum(_stack(setups)[1]))]
    for at in range(3, 3 + COLUMNS):
        starts, lengths = (each[places] for each in _stack([part.vectors[at].values for part in parts]))
        borders.append(np.append(0, np.cumsum(lengths)))
        vectors.append(gather(np.concatenate([part.vectors[at + COLUMNS].values for part in parts]), starts, lengths))
    numbers = np.concatenate(rows)[places].reshape(-1)
    return Videos.of_vectors(shards, pack([numbers, borders[0], np.concatenate(boxes), *borders[1:], *vectors]))


def _stack(borders: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Return the first place and the length of each piece of vectors that are concatenated."""
    before = np.cumsum([0, *(each[-1] for each in borders)])
    starts = [each[:-1] + first for each, first in zip(borders, before, strict=False)]
    return np.concatenate(starts), np.concatenate([np.diff(each) for each in borders])
