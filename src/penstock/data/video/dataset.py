"""``VideoDataset``: clips of MP4 and MOV files as they lie in the bucket, each read by its byte range."""

from __future__ import annotations

import math
from functools import cached_property
from logging import getLogger
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import torch

from penstock.data.catalog.labels import check_rule
from penstock.data.reading.sample import Sample
from penstock.data.video.audio import Sound, decode_audio, find_pieces
from penstock.data.video.boxes import rescale
from penstock.data.video.frame_dataset import FileDataset, label_files, list_urls
from penstock.data.video.frames import NO_AUDIO, VideoFormat, Videos, join_pieces
from penstock.data.video.packets import HeldBytes, decode_frames
from penstock.data.video.reading import FileWindows
from penstock.data.video.saved import open_indexed
from penstock.data.video.small import make_small_file, read_small_file
from penstock.errors import Unusable, public_url
from penstock.values import switch, whole

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator

    from penstock.data.catalog.columns.column import Column
    from penstock.data.catalog.labels import Rule
    from penstock.data.video.frames import Ints, Table
    from penstock.data.video.reading import Held
    from penstock.options import StoreOptions
    from penstock.values import Span

_LOG = getLogger("penstock")
_MOST_FRAMES = 1 << 24  # of a window or stride
_MOST_SIDE = 1 << 15
_EPSILON = 1e-6


class Clip(Sample):
    """Some frames of a video, decoded when they are first asked for.

    A clip holds the bytes of its frames, and those of its neighbours that were read with them: about 1 MiB with
    ``ps.order.Lanes()``. Decode in the dataset's ``transform``, which the loader's threads run. Pickled for another
    process, a clip is its small MP4 file.

    Args:
        root: URL of the bucket.
        span: The file below ``root``.
        table: The frames of the file.
        held: Bytes of the file that were read.
        numbers: Numbers of the clip's frames in the file: int64, (T,).
        sound: The stretch of the file's audio track; None: audio is not read.

    Attributes:
        seconds: Time of presentation of each frame, in seconds from the beginning of the file: float64, (T,).
        key: Key of the file.
        url: URL of the file.
        label: Number of its class in ``dataset.classes``; None without ``labels=``.

    Example:
        >>> clip = ps.VideoDataset.from_shards("s3://bucket/videos/", frames=4)[0]
        >>> clip.frames.shape, clip.seconds.tolist()
        (torch.Size([4, 3, 64, 96]), [0.0, 0.1, 0.2, 0.3])
    """

    __slots__ = ("_held", "_numbers", "_pictures", "_places", "_samples", "_sound", "_table", "seconds")

    def __init__(
        self, root: str, span: Span, table: Table, held: HeldBytes, numbers: Ints, sound: Sound | None = None
    ) -> None:
        super().__init__(root, span, b"")
        self._table, self._held, self._numbers, self._sound = table, held, numbers, sound
        self._samples: torch.Tensor | None = None
        self._places: list[int] = []
        self._pictures: torch.Tensor | None = None
        self.seconds = torch.from_numpy(table.seconds_of(numbers))

    @property
    def frames(self) -> torch.Tensor:
        """The frames as RGB: uint8, shape (T, 3, height, width), as PyAV decodes the whole file, in memory by pixel.

        Pictures are as they are stored: see ``rotation``. The first access decodes them, on the calling thread.

        Raises:
            MissingExtra: PyAV is not installed: the extra ``video``.
            Damaged: The bytes cannot be decoded.
        """
        if self._pictures is None:
            found = decode_frames(self._table, self._held, self._numbers)
            self._pictures = torch.from_numpy(found).permute(0, 3, 1, 2)
        return self._pictures

    def resized(self, height: int, width: int | None = None) -> torch.Tensor:
        """Return the frames in another size: uint8, shape (T, 3, height, width), in memory by pixel.

        FFmpeg scales each frame as it converts it to RGB, bicubic and without aliasing, on the calling thread: less
        work than ``frames``, and a resize of them. Each call decodes anew.

        Args:
            height: Height in pixels; without ``width``, length of the shorter side.
            width: Width in pixels; default: in proportion.

        Raises:
            Unusable: A size is not from 1 to 32,768.
            MissingExtra: PyAV is not installed: the extra ``video``.
            Damaged: The bytes cannot be decoded.

        Example:
            >>> clip = ps.VideoDataset.from_shards("s3://bucket/videos/", frames=4)[0]
            >>> clip.resized(32, 32).shape, clip.resized(32).shape
            (torch.Size([4, 3, 32, 32]), torch.Size([4, 3, 32, 48]))
        """
        size = whole(height, "height", 1), None if width is None else whole(width, "width", 1)
        if max(size[0], size[1] or 0) > _MOST_SIDE:
            raise Unusable(f"height and width must be at most {_MOST_SIDE} pixels, got {height} and {width}")
        found = decode_frames(self._table, self._held, self._numbers, size)
        return torch.from_numpy(found).permute(0, 3, 1, 2)

    @property
    def audio(self) -> torch.Tensor:
        """The sound of the clip, with ``audio=True``: float32 in [-1, 1), shape (channels, samples).

        From the time of its first frame to the end of its last one; silence (zeros) where the audio track begins later
        or ends earlier; shape (0, 0) if the file has no audio track. The first access decodes it, on this thread.

        Raises:
            Unusable: The dataset was made without ``audio=True``.
            MissingExtra: PyAV is not installed (the extra ``video``), and the audio is not PCM.
            Damaged: The bytes cannot be decoded.
            Unsupported: The decoder contradicts the description in the file, as for undeclared HE-AAC.

        Example:
            >>> clip = ps.VideoDataset.from_shards("s3://bucket/films/", frames=25, audio=True)[0]
            >>> clip.audio.shape, clip.sample_rate
            (torch.Size([2, 44100]), 44100)
        """
        if self._samples is None:
            self._samples = torch.from_numpy(decode_audio(self._heard(), self._held))
        return self._samples

    @property
    def sample_rate(self) -> int:
        """Samples per second of ``audio``, in Hz; 0 if the file has no audio track."""
        return self._heard().table.scale

    def _heard(self) -> Sound:
        if self._sound is None:
            raise Unusable("the clip was read without audio: pass audio=True to VideoDataset.from_shards")
        return self._sound

    @property
    def rotation(self) -> int:
        """Degrees, clockwise, by which a player turns the pictures: 0, 90, 180 or 270."""
        return self._table.setup.rotation

    @property
    def data(self) -> memoryview:
        """A small MP4 file with the frames alone, for other decoders; made when first asked for, in less than 1 ms.

        ``read`` returns it, too. It may have more frames, which the decoder needs: ``places`` says where those of the
        clip are. Its times begin at 0.

        Example:
            >>> import av
            >>> clip = ps.VideoDataset.from_shards("s3://bucket/videos/", frames=4)[2]
            >>> with av.open(clip) as file:  # or torchcodec.decoders.VideoDecoder(clip.data)
            ...     frames = [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]
            >>> torch.equal(torch.from_numpy(frames[clip.places[0]]), clip.frames[0].permute(1, 2, 0))
            True
        """
        self._make_file()
        return memoryview(self._bytes)

    @property
    def places(self) -> list[int]:
        """Number of each frame of the clip among the frames of ``data``, in the order of presentation from 0."""
        self._make_file()
        return self._places

    @property
    def size(self) -> int:
        """Number of bytes of ``data``."""
        return len(self.data)

    def _make_file(self) -> None:
        if not self._bytes:
            # The places first: another thread may look at the bytes.
            found, self._places = make_small_file(self._table, self._held, self._numbers)
            self._bytes = found

    def _opened(self) -> Any:  # noqa: ANN401  as in the base class
        self._make_file()
        return super()._opened()

    def __repr__(self) -> str:
        count = len(self._numbers)
        return f"<Clip of {count} frames from {float(self.seconds[0]):.3f} s of {public_url(self.url)}>"

    def _content(self) -> Iterator[str]:
        return iter(())

    def __getstate__(self) -> Any:  # noqa: ANN401  the state of a sample, and its own
        """Return the state: the small file, the frames in it, and the sound."""
        self._make_file()
        sound = None if self._sound is None else (self.audio, self.sample_rate)
        return super().__getstate__(), self._places, self.seconds, sound

    def __setstate__(self, state: Any) -> None:  # noqa: ANN401  as __getstate__ returns it
        sample, self._places, self.seconds, sound = state
        super().__setstate__(sample)
        self._samples, rate = sound or (None, 0)
        self._sound = None if sound is None else Sound(NO_AUDIO._replace(scale=rate), 0, 0)
        view = memoryview(self._bytes)
        self._table, self._held = read_small_file(view), HeldBytes([0], [view])
        self._numbers, self._pictures = np.array(self._places, np.int64), None


class ClipShape(NamedTuple):
    """The frames of a clip, counted in positions: frames, or multiples of 1 / ``fps``."""

    frames: int
    every: int  # positions from frame to frame; 0: each file is one clip, and its frames are spread over it
    stride: int  # positions from the beginning of a clip to that of the next
    fps: float  # 0: positions are the frames of the file
    track: int | None

    @property
    def length(self) -> int:
        """Positions from the first frame to the end of the last; of frames that are spread, their number."""
        return (self.frames - 1) * self.every + 1 if self.every else self.frames


class ClipWindows(FileWindows):
    """The clips of video files, by arithmetic: no table has an entry for each clip."""

    def __init__(self, videos: Videos, shape: ClipShape, labels: Column | None = None) -> None:
        self.videos, self.shape = videos, shape
        self.positions = self._count_positions()
        if shape.every:
            counts = np.maximum((self.positions - shape.length) // shape.stride + 1, 0)
            covered = np.maximum(counts - 1, 0) * min(shape.stride, shape.length) + shape.length * (counts > 0)
        else:
            counts, covered = np.ones(len(videos), np.int64), self.positions
        super().__init__(videos, counts, labels)
        self.left_out = int((self.positions - covered).sum())

    def _count_positions(self) -> Ints:
        counts = self.videos.counts.astype(np.int64)
        if not self.shape.fps:
            return counts
        for file, count in enumerate(counts.tolist()):
            first, last = self.videos.table(file).seconds_of(np.array([0, count - 1])).tolist()
            counts[file] = int((last - first) * self.shape.fps + _EPSILON) + 1
        return counts

    @cached_property
    def digest(self) -> str:
        """Digest of the names and sizes of the files, their numbers of frames, and the shape of clips."""
        audio = [] if self.videos.audio is None else [self.videos.audio.counts.tolist()]
        return self._hash(self.positions.tolist(), self.shape, *audio)

    @property
    def total_bytes(self) -> int:
        """Bytes from the first frame to the last of each clip, with audio if it is read, by the mean of the files."""
        frame_bytes = self.videos.frame_bytes + (0 if self.videos.audio is None else self.videos.audio.frame_bytes)
        return len(self) * self.shape.length * frame_bytes // max(int(self.positions.sum()), 1)

    def frames_of(self, table: Table, file: int, first: int, stop: int, *, all_frames: bool = True) -> Ints:
        """Return the frames of neighbouring samples of a file, or the first of each: shape (samples, frames)."""
        shape = self.shape
        if not shape.every:
            # The middle of as many equal parts of the file.
            numbers = (2 * np.arange(shape.frames if all_frames else 1) + 1) * table.frames // (2 * shape.frames)
            return np.repeat(numbers[np.newaxis], stop - first, axis=0)
        begins = self.numbers_in(file, first, stop) * shape.stride
        positions: Ints = begins[:, np.newaxis] + np.arange(shape.frames if all_frames else 1) * shape.every
        if not shape.fps:
            return positions
        begin = table.seconds_of(np.zeros(1, np.int64))
        found, _ = table.nearest(begin + positions.reshape(-1) / shape.fps)
        return found.reshape(positions.shape)

    def _find_starts(self, table: Table, file: int, first: int, stop: int) -> Ints:
        return table.needs(self.frames_of(table, file, first, stop, all_frames=False)[:, 0])[0]

    def _find_sound(self, table: Table, sound: Table, frames: Ints) -> tuple[Ints, Ints]:
        """Return the first PCM frame and the end of the sound of clips with ``frames``, shape (samples, frames).

        From the first frame to the end of the last, or for as long as the positions last: the same number of PCM frames
        for all clips, wherever frames are equally far apart.
        """
        begins = rescale(table.ticks_of(frames[:, 0]), sound.scale, table.scale)
        if self.shape.fps:
            return begins, begins + round(self.shape.length * sound.scale / self.shape.fps)
        ticks = table.ends_of(frames[:, -1]) - table.ticks_of(frames[:, 0])
        return begins, begins + rescale(ticks, sound.scale, table.scale)

    def spans_of(self, first: int, stop: int) -> list[Span]:
        """Return the byte ranges of samples ``first`` to ``stop``, which are of one file."""
        file = self.file_of(first)
        table = self.videos.table(file)
        frames = self.frames_of(table, file, first, stop)
        pieces = table.pieces(*table.needs(np.unique(frames)))
        if self.videos.audio is not None:
            sound = self.videos.audio.table(file)
            pieces = join_pieces([*pieces, *find_pieces(sound, *self._find_sound(table, sound, frames))])
        return [self._span(file, start, end) for start, end in pieces if start < end]

    def make_clip(self, sample: int, held: Held) -> Clip:
        file = self.file_of(sample)
        table, span = self.videos.table(file), self._span(file)
        frames, sound = self.frames_of(table, file, sample, sample + 1), None
        if self.videos.audio is not None:
            heard = self.videos.audio.table(file)
            [begin], [end] = self._find_sound(table, heard, frames)
            sound = Sound(heard, int(begin), int(end))
        clip = Clip(self.root, span, table, held.get(span.key, HeldBytes([], [])), frames[0], sound)
        return self._describe(clip, sample, file)


class VideoDataset(FileDataset):
    """Clips of video files: ``dataset[i]`` is clip ``i``, a ``ps.Clip``.

    ``from_shards`` makes one. The files stay as they are: MP4 and MOV with H.264, HEVC, AV1, VP8, VP9, MPEG-4, ProRes
    or Motion JPEG. A clip is read by its byte range, from a key frame to its last frame, and decoded by PyAV (the extra
    ``video``); its frames are bit-equal to those of the whole file. ``audio=True`` reads the sound of the same time.

    ``ps.DataLoader(dataset, B, shuffle=ps.order.Lanes())`` reads neighbouring clips in one request of about 1 MiB, and
    mixes those of 160 such requests, so that an epoch reads little more than the files. ``shuffle=True`` permutes all
    clips, and reads each in a separate request: for files with a key frame in every few frames. Order, ranks, workers
    and exact resumption are those of any dataset of Penstock.

    A slice is a dataset of neighbours, such as ``dataset[:1000]`` for validation.

    Args:
        windows: The clips, as ``from_shards`` finds them.
        transform: Function from a ``ps.Clip`` to the value that is yielded; default: the clip itself.

    Attributes:
        windows: The clips.

    Raises:
        Unusable: An argument is invalid.

    Example:
        >>> clips = ps.VideoDataset.from_shards("s3://bucket/videos/", frames=8, transform=lambda clip: clip.frames)
        >>> len(clips), clips.left_out
        (4, 8)
        >>> next(iter(ps.DataLoader(clips, 2, shuffle=ps.order.Lanes()))).shape
        torch.Size([2, 8, 3, 64, 96])
    """

    windows: ClipWindows

    def __init__(self, windows: ClipWindows, *, transform: Callable[[Clip], Any] | None = None) -> None:
        self._take_windows(windows, transform, ClipWindows)

    @classmethod
    def from_shards(  # noqa: PLR0913  see design/0020
        cls,
        urls: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        frames: int = 16,
        every: int = 1,
        stride: int | None = None,
        fps: float | None = None,
        spread: bool = False,
        track: int | None = None,
        audio: bool = False,
        labels: Rule | None = None,
        index: str | os.PathLike[str] | None = None,
        transform: Callable[[Clip], Any] | None = None,
        store: StoreOptions | str | None = None,
    ) -> Self:
        """Return a dataset of clips of video files; nothing is copied or converted.

        Costs the requests of a listing, or a HEAD for each file that is named, and one read of 64 KiB to 1 MiB for each
        file; two where the index (``moov``) is at the end of a large file. Reads run in parallel. With ``index``, one
        HEAD and the reads of that file take the place of those of the videos. Memory: 4 bytes for a
        frame and 4 for a key frame; 4 more for files with B-frames, and 4 more at a variable rate.

        Clips do not cross files. Frames that are in no clip are counted by ``left_out``.

        Args:
            urls: The files: a prefix, below which all ``.mp4``, ``.mov`` and ``.m4v`` files are taken; a glob; a
                pattern such as ``"s3://bucket/{000..127}.mp4"``; or a list of URLs, in the order of the clips.
            frames: Frames of a clip, at least 1.
            every: Take one of so many frames.
            stride: Frames from the beginning of a clip to that of the next; default: ``frames * every``, end to end.
            fps: Frames per second that ``every`` and ``stride`` count, for files of different or variable rates: a clip
                has the frames nearest to multiples of 1 / ``fps`` after the file's first frame. Default: all frames.
            spread: Whether each file is one clip, whose ``frames`` are spread evenly over it: those in the middle of as
                many equal parts. Files with fewer frames repeat some. Costs the bytes from a key frame to each of these
                frames, in as many requests. Not with ``every``, ``stride`` or ``fps``.
            track: ID of the video track; default: the first video track of each file.
            audio: Whether to read the first audio track of each file, too, for ``clip.audio``: AAC-LC, Opus, ALAC, FLAC
                or PCM. Costs its bytes, some 16 bytes of memory for each of its packets, and no request for files whose
                tracks are interleaved. A warning counts the files without one.
            labels: Labels of the files by name: ``"folder"``, a pattern with one group, or a function of the name.
            index: URL of an index that ``ps.index(…, format="mp4")`` has written: instead of a read of each file, it is
                read once. Files that it lacks, or that were replaced since, are read as without it, and counted in the
                log; files that exist no longer are left out, as the listing decides.
            transform: Function from a ``ps.Clip`` to a value, such as ``lambda clip: (clip.frames, clip.label)``.
            store: Options, or the name of a profile; default: environment and profile.

        Returns:
            A dataset of ``ps.Clip``, or of the values of ``transform``.

        Raises:
            Unusable: An argument is invalid, no file has enough frames, or ``index`` is of another track or version.
            NotFound: No video file was found, or ``index`` does not exist.
            Damaged: A file was cut short, or contradicts itself; or ``index`` does.
            Changed: None of the files is in ``index``.
            Unsupported: A file is encrypted, of another container or codec, or has an edit list of several parts; the
                text says what to do.

        Example:
            >>> clips = ps.VideoDataset.from_shards("s3://bucket/videos/", frames=4, fps=5, stride=2)
            >>> clips[1].seconds.tolist()
            [0.4, 0.6, 0.8, 1.0]
        """
        count, step = whole(frames, "frames", 1), whole(every, "every", 1)
        apart = count * step if stride is None else whole(stride, "stride", 1)
        if switch(spread, "spread"):
            if (every, stride, fps) != (1, None, None):
                raise Unusable(
                    "spread=True takes frames of the whole file, so that every=, stride= and fps= have no use"
                )
            step = apart = 0
        if max(count * step, apart) > _MOST_FRAMES:
            raise Unusable(f"clips must have at most 2^24 frames, got frames={frames}, every={every}, stride={stride}")
        rate = _check_rate(fps)
        form = VideoFormat(None if track is None else whole(track, "track", 1), switch(audio, "audio"))
        check_rule(labels)
        given = list_urls(urls)
        videos = open_indexed(given, form, index, store)
        if videos.audio is not None and (silent := int((videos.audio.column("scale") == 0).sum())):
            _LOG.warning("%s of %s files have no audio track: audio of their clips is empty", silent, len(videos))
        shape = ClipShape(count, step, apart, rate, form.track)
        windows = ClipWindows(videos, shape, label_files(videos, labels))
        if not len(windows):
            unit = "frames" if not rate else f"frames at {rate:g} per second"
            raise Unusable(
                f"there is no clip of {windows.shape.length} {unit} in {len(videos)} files: the longest has "
                f"{windows.positions.max()}; pass fewer frames="
            )
        return cls(windows, transform=transform)

    def __repr__(self) -> str:
        videos = self.windows.videos
        return (
            f"<VideoDataset of {len(self):,} clips of {self.windows.shape.frames} frames; {self.left_out:,} of "
            f"{self.windows.positions.sum():,} frames in {len(videos):,} files are left out>"
        )

    @property
    def left_out(self) -> int:
        """The number of frames in no clip of the whole dataset: at ends of files, or between clips."""
        return self.windows.left_out

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, by the numbers that labels are; () without ``labels=``."""
        return () if self.windows.labels is None else self.windows.labels.categories

    # Public here: the reference lists what a class has itself.
    batched = FileDataset.batched


def _check_rate(fps: object) -> float:
    if fps is None:
        return 0.0
    if isinstance(fps, bool) or not isinstance(fps, (int, float)) or not 0 < fps < math.inf:
        raise Unusable(f"fps must be a positive number of frames per second, got {fps!r}")
    return float(fps)
