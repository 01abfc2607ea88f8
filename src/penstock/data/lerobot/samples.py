"""The samples of a LeRobot dataset: from the number of a sample to its rows, and to the frames that its item needs."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from itertools import pairwise
from logging import getLogger
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.data.catalog.columns.column import pack
from penstock.data.lerobot.meta import check_feature
from penstock.data.video.reading import ClipContents
from penstock.errors import Unusable
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from penstock.data.lerobot.meta import Ints
    from penstock.data.lerobot.opening import RobotFiles
    from penstock.data.video.frames import Videos

    Deltas = dict[str, Ints]

_NOW = np.zeros(1, np.int64)
_MOST_DELTAS = 1 << 20
_MOST_SECONDS = 2  # whole numbers in a row; more may be rows by mistake
_LOG = getLogger("penstock")


class RobotSamples(ClipContents):
    """The samples of a dataset: the ``Contents`` of a ``LeRobotDataset``.

    Sample numbers are not checked. Pickling for a worker passes the memory of the rows and of the tables of frames.
    """

    def __init__(self, files: RobotFiles, deltas: Deltas, dropped: int) -> None:
        """Take the rows of ``files`` as samples, without the last ``dropped`` rows of each episode."""
        self.source, self.base, self.meta, self.deltas = files.source, files.base, files.meta, deltas
        self.numbers = files.episodes.numbers
        lengths = files.episodes.stops - files.episodes.firsts
        self._ends = np.cumsum(lengths)  # rows up to and with each episode
        self._begins = self._ends - lengths
        self._shifts = files.episodes.firsts - self._begins  # from a row here to its number in the dataset
        self._sample_ends = np.cumsum(np.maximum(lengths - dropped, 0))
        self._slice = 0, int(self._sample_ends[-1])
        names, arrays = [*files.rows], [*files.rows.values()]
        cameras = [*files.cameras]
        packed = pack([*(each.reshape(-1) for each in arrays), *(files.cameras[each][1] for each in cameras)])
        self._rows = dict(zip(names, packed, strict=False))
        self._widths = {name: each.shape[1] for name, each in zip(names, arrays, strict=True)}
        self._frames = dict(zip(cameras, packed[len(names) :], strict=True))
        self._files = {each: files.cameras[each][0] for each in cameras}
        self.videos: Videos = files.videos  # type: ignore[assignment]  # asked only where there are cameras
        named = [*files.data, *(zip(files.videos.keys, files.videos.sizes, strict=True) if files.videos else ())]
        described = [
            [(each[0][len(self.base) :], each[1]) for each in named],
            *(self.meta.fps, {key: each.tolist() for key, each in deltas.items()}, self.numbers.tolist(), dropped),
        ]
        self._identity = hashlib.sha256(json.dumps([1, described], sort_keys=True).encode()).hexdigest()

    @cached_property
    def digest(self) -> str:
        """Digest of the names and sizes of the files, the deltas and the episodes."""
        return hashlib.sha256(json.dumps([self._identity, self._slice]).encode()).hexdigest()[:32]

    @property
    def total_bytes(self) -> int:
        """Bytes of the frames of all items, by the mean of each camera's videos."""
        found = 0.0
        for camera, files in self._files.items():
            tables = [self.videos.table(each) for each in np.unique(files).tolist()]
            frame_bytes = sum(int(each.sizes.sum()) for each in tables) / sum(each.frames for each in tables)
            found += frame_bytes * len(self.deltas.get(camera, _NOW))
        return round(found * len(self))

    def episodes_of(self, samples: Ints) -> Ints:
        """Return the place of each sample's episode among those of the dataset."""
        return np.searchsorted(self._sample_ends, samples + self._slice[0], side="right")

    def rows_of(self, samples: Ints, episodes: Ints) -> Ints:
        before = np.append(0, self._sample_ends)[episodes]
        found: Ints = self._begins[episodes] + (samples + self._slice[0] - before)
        return found

    def window(self, key: str, rows: Ints, episodes: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """Return the rows that a feature of each item is from, and which lie outside of the episode: (rows, deltas)."""
        wanted = rows[:, np.newaxis] + self.deltas.get(key, _NOW)
        begins, ends = self._begins[episodes][:, np.newaxis], self._ends[episodes][:, np.newaxis]
        return np.clip(wanted, begins, ends - 1), (wanted < begins) | (wanted >= ends)

    def values(self, key: str, rows: Ints, episode: int) -> NDArray[Any]:
        """Return the values of a feature in rows of one episode, shape (rows, values of each)."""
        found: NDArray[Any]
        if key == "index":
            found = rows[:, np.newaxis] + self._shifts[episode]
        elif key == "episode_index":
            found = np.full((len(rows), 1), self.numbers[episode])
        else:
            found = self._rows[key].values.reshape(-1, self._widths[key])[rows]
        return found

    def frames(self, camera: str, rows: Ints) -> Ints:
        """Return the frame of each row in the video of its episode."""
        found: Ints = self._frames[camera].values[rows].astype(np.int64)
        return found

    def file(self, camera: str, episode: int) -> int:
        """Return the number of the video of an episode among ``videos``."""
        return int(self._files[camera][episode])

    def spans_of(self, first: int, stop: int) -> list[Span]:
        """Return the ranges that samples need of the one video of each camera that they share, camera by camera."""
        samples = np.arange(first, stop)
        episodes = self.episodes_of(samples)
        rows = self.rows_of(samples, episodes)
        found = list[Span]()
        for camera in self._frames:
            file = self.file(camera, int(episodes[0]))
            table = self.videos.table(file)
            firsts, stops = table.needs(self.frames(camera, np.unique(self.window(camera, rows, episodes)[0])))
            key, size, etag = (each[file] for each in (self.videos.keys, self.videos.sizes, self.videos.etags))
            found += [Span(key, start, end, etag, most=size) for start, end in table.pieces(firsts, stops)]
        return found

    def block_sizes(self, block_bytes: int) -> Ints:
        """Return the samples of each block of about ``block_bytes`` a camera, in one video of each camera.

        A block begins with a group of pictures, which would otherwise be read twice.
        """
        sizes, begins = self._sizes()
        borders = np.flatnonzero(np.diff((np.cumsum(sizes) - sizes) // block_bytes)) + 1
        groups = np.flatnonzero(begins)
        snapped = groups[np.searchsorted(groups, borders, side="right") - 1]
        files = np.append(0, self._sample_ends)[self._cuts] - self._slice[0]
        starts = np.unique(np.concatenate(([0], snapped, files[(files > 0) & (files < len(self))])))
        return np.diff(starts, append=len(self))

    @cached_property
    def _cuts(self) -> Ints:
        """The episodes with which another video of some camera begins."""
        changes = [np.flatnonzero(np.diff(each)) + 1 for each in self._files.values()]
        return np.unique(np.concatenate([np.zeros(0, np.int64), *changes]))

    def _sizes(self) -> tuple[Ints, NDArray[np.bool_]]:
        """Return the bytes of each sample's present frame, the mean of all cameras, and which samples begin a group."""
        samples = np.arange(len(self))
        episodes = self.episodes_of(samples)
        rows = self.rows_of(samples, episodes)
        found, begins = np.zeros(len(rows), np.int64), np.ones(len(rows), bool)
        for number, camera in enumerate(self._frames):
            files = self._files[camera][episodes]
            for first, stop in pairwise(np.flatnonzero(np.diff(files, prepend=-1, append=-1)).tolist()):
                table = self.videos.table(int(files[first]))
                frames = self.frames(camera, rows[first:stop])
                found[first:stop] += table.sizes[table.samples_of(frames)]
                if not number:
                    begins[first:stop] = np.diff(table.needs(frames)[0], prepend=-1) != 0
        if not self._frames:
            # Nothing is read, and blocks are cut by the bytes of rows.
            return np.full(len(rows), sum(self._widths.values()) * 4), begins
        return found // len(self._frames), begins

    def url_of(self, sample: int) -> str:
        episode = int(self.episodes_of(np.array([sample]))[0])
        for camera in self._files:
            return self.videos.url_of(self.file(camera, episode))
        return self.source.url(self.base)


def check_deltas(given: object, known: Mapping[str, Any], fps: float, tolerance_s: float) -> Deltas:
    """Return ``delta_timestamps`` as rows before and after the present one; refuse times that are between rows."""
    if given is None:
        return {}
    if not hasattr(given, "items"):
        raise Unusable(f"delta_timestamps must map features to lists of seconds, got {given!r:.100}")
    found: Deltas = {}
    for key, seconds in given.items():
        check_feature(key, known, "delta_timestamps")
        try:
            listed = [*seconds]
            times = np.array([float(each) for each in listed])
        except (TypeError, ValueError):
            raise Unusable(f"delta_timestamps[{key!r}] must be a list of seconds, got {seconds!r:.100}") from None
        if len(listed) > _MOST_SECONDS and np.asarray(listed).dtype.kind in "iu" and (np.diff(times) == 1).all():
            _LOG.warning(
                "delta_timestamps[%r] are seconds, %s to %s of them: if rows are meant, divide by fps=%g",
                *(key, listed[0], listed[-1], fps),
            )
        if not len(times) or not np.isfinite(times).all() or np.abs(times * fps).max(initial=0) > _MOST_DELTAS:
            raise Unusable(f"delta_timestamps[{key!r}] must be finite seconds, at least one, got {seconds!r:.100}")
        rows = np.rint(times * fps)
        away = np.abs(times * fps - rows) / fps > tolerance_s
        if away.any():
            raise Unusable(
                f"delta_timestamps[{key!r}] must be multiples of 1/{fps:g} s within {tolerance_s} s, "
                f"got {times[away][0]}"
            )
        found[key] = rows.astype(np.int64)
    return found
