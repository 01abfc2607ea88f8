"""``AudioDataset``: windows of sound files as they lie in the bucket, each read by its byte range."""

from __future__ import annotations

import struct
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from penstock.data.catalog.labels import check_rule
from penstock.data.reading.sample import Sample
from penstock.data.video.audio import Sound, decode_audio, find_packets, find_pieces
from penstock.data.video.frame_dataset import FileDataset, label_files, list_urls
from penstock.data.video.frames import NO_AUDIO, AudioFormat, Videos, join_pieces
from penstock.data.video.packets import HeldBytes
from penstock.data.video.reading import FileWindows
from penstock.data.video.saved import open_indexed
from penstock.errors import Unusable, public_url
from penstock.values import whole

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator

    from penstock.data.catalog.columns.column import Column
    from penstock.data.catalog.labels import Rule
    from penstock.data.video.frames import Ints, Table
    from penstock.data.video.reading import Held
    from penstock.options import StoreOptions
    from penstock.values import Span

_MOST_SECONDS = 1 << 20
_HEAD = struct.Struct("<4sI8sI2H2I2H4sI")  # of a WAV file of 32-bit floats


class AudioClip(Sample):
    """A window of a sound file, decoded when it is first asked for.

    A window holds its bytes, and those of its neighbours that were read with them: about 1 MiB with
    ``ps.order.Lanes()``. Decode in the dataset's ``transform``, which the loader's threads run. Pickled for another
    process, it is its small WAV file.

    Args:
        root: URL of the bucket.
        span: The file below ``root``.
        sound: The stretch of its audio track.
        held: Bytes of the file that were read.

    Attributes:
        sample_rate: Samples per second, in Hz.
        seconds: Time of the first sample, in seconds from the beginning of the file.
        key: Key of the file.
        url: URL of the file.
        label: Number of its class in ``dataset.classes``; None without ``labels=``.

    Example:
        >>> window = ps.AudioDataset.from_shards("s3://bucket/sound/", seconds=1)[1]
        >>> window.audio.shape, window.sample_rate, window.seconds
        (torch.Size([1, 16000]), 16000, 1.0)
    """

    __slots__ = ("_held", "_samples", "_sound", "sample_rate", "seconds")

    def __init__(self, root: str, span: Span, sound: Sound, held: HeldBytes) -> None:
        super().__init__(root, span, b"")
        self._sound, self._held = sound, held
        self._samples: torch.Tensor | None = None
        self.sample_rate = sound.table.scale
        self.seconds = sound.begin / sound.table.scale

    @property
    def audio(self) -> torch.Tensor:
        """The samples: float32 in [-1, 1), shape (channels, samples). The first access decodes them, on this thread.

        Raises:
            MissingExtra: PyAV is not installed (the extra ``video``), and the file is not WAV or PCM.
            Damaged: The bytes cannot be decoded.
            Unsupported: The decoder contradicts the description in the file, as for undeclared HE-AAC.
        """
        if self._samples is None:
            self._samples = torch.from_numpy(decode_audio(self._sound, self._held))
        return self._samples

    @property
    def data(self) -> memoryview:
        """A WAV file of 32-bit floats with the samples, for other readers; ``read`` returns it, too.

        Example:
            >>> import soundfile
            >>> window = ps.AudioDataset.from_shards("s3://bucket/sound/", seconds=1)[1]
            >>> samples, rate = soundfile.read(window)
            >>> samples.shape, rate
            ((16000,), 16000)
        """
        self._make_file()
        return memoryview(self._bytes)

    @property
    def size(self) -> int:
        """Number of bytes of ``data``."""
        return len(self.data)

    def _make_file(self) -> None:
        if not self._bytes:
            channels, count = self.audio.shape
            size, frame_bytes = 4 * channels * count, 4 * channels
            shape = 3, channels, self.sample_rate, self.sample_rate * frame_bytes, frame_bytes, 32
            head = _HEAD.pack(b"RIFF", size + 36, b"WAVEfmt ", 16, *shape, b"data", size)
            self._bytes = head + self.audio.numpy().T.tobytes()

    def _opened(self) -> Any:  # noqa: ANN401  as in the base class
        self._make_file()
        return super()._opened()

    def __repr__(self) -> str:
        length = self._sound.stop - self._sound.begin
        seconds = length / self.sample_rate
        return f"<AudioClip of {seconds:.3f} s from {self.seconds:.3f} s of {public_url(self.url)}>"

    def _content(self) -> Iterator[str]:
        return iter(())

    def __getstate__(self) -> Any:  # noqa: ANN401  the state of a sample, and its own
        """Return the state: the small WAV file, and its time."""
        self._make_file()
        return super().__getstate__(), len(self.audio), self.sample_rate, self.seconds

    def __setstate__(self, state: Any) -> None:  # noqa: ANN401  as __getstate__ returns it
        sample, channels, self.sample_rate, self.seconds = state
        super().__setstate__(sample)
        samples = np.frombuffer(self._bytes, np.float32, offset=_HEAD.size).reshape(-1, channels).T
        self._samples, self._held = torch.from_numpy(np.ascontiguousarray(samples)), HeldBytes([], [])
        begin = round(self.seconds * self.sample_rate)
        self._sound = Sound(NO_AUDIO._replace(scale=self.sample_rate), begin, begin + samples.shape[1])


class AudioWindows(FileWindows):
    """The windows of sound files, by arithmetic: no table has an entry for each window."""

    def __init__(self, videos: Videos, shape: tuple[float, float, int | None], labels: Column | None = None) -> None:
        """Cut ``videos``, tables of audio tracks, into windows: seconds, stride in seconds, and ID of the track."""
        self.shape = shape
        frames, rates = videos.counts, videos.column("scale")
        self.lengths, self._strides = (np.maximum(np.rint(rates * each).astype(np.int64), 1) for each in shape[:2])
        counts = np.maximum((frames - self.lengths) // self._strides + 1, 0)
        super().__init__(videos, counts, labels)
        self._covered = counts * self.lengths
        covered = np.maximum(counts - 1, 0) * np.minimum(self._strides, self.lengths) + self.lengths * (counts > 0)
        self.left_out = float(((frames - covered) / rates).sum())

    @cached_property
    def digest(self) -> str:
        """Digest of the names and sizes of the files, their numbers of samples, and the shape of windows."""
        return self._hash(self.videos.counts.tolist(), self.videos.column("scale").tolist(), self.shape)

    @property
    def total_bytes(self) -> int:
        """Bytes of all windows, by the mean of the files."""
        share = float(self._covered.sum()) / max(int(self.videos.counts.sum()), 1)
        return int(self.videos.frame_bytes * share * len(self) / max(int(self._firsts[-1]), 1))

    def _find_begins(self, table: Table, file: int, first: int, stop: int) -> Ints:
        begins: Ints = table.begin + self.numbers_in(file, first, stop) * self._strides[file]
        return begins

    def _find_starts(self, table: Table, file: int, first: int, stop: int) -> Ints:
        begins = self._find_begins(table, file, first, stop)
        return find_packets(table, begins, begins + 1)[0]

    def spans_of(self, first: int, stop: int) -> list[Span]:
        """Return the byte ranges of samples ``first`` to ``stop``, which are of one file."""
        file = self.file_of(first)
        table = self.videos.table(file)
        begins = self._find_begins(table, file, first, stop)
        pieces = join_pieces(find_pieces(table, begins, begins + self.lengths[file]))
        return [self._span(file, start, end) for start, end in pieces if start < end]

    def make_clip(self, sample: int, held: Held) -> AudioClip:
        file = self.file_of(sample)
        table, span = self.videos.table(file), self._span(file)
        [begin] = self._find_begins(table, file, sample, sample + 1).tolist()
        sound = Sound(table, begin, begin + int(self.lengths[file]))
        return self._describe(AudioClip(self.root, span, sound, held.get(span.key, HeldBytes([], []))), sample, file)


class AudioDataset(FileDataset):
    """Windows of sound files: ``dataset[i]`` is window ``i``, a ``ps.AudioClip``.

    ``from_shards`` makes one. The files stay as they are: WAV, and MP4 or MOV (``.m4a``, ``.m4b``, videos) with AAC-LC,
    Opus, ALAC, FLAC or PCM. A window is read by its byte range; PyAV (the extra ``video``) decodes all but PCM. Samples
    are at the rate of their file: resample in ``transform``.

    ``ps.DataLoader(dataset, B, shuffle=ps.order.Lanes())`` reads neighbouring windows in one request of about 1 MiB,
    and mixes those of 160 such requests. ``shuffle=True`` permutes all windows, and reads each in a separate request.
    Order, ranks, workers and exact resumption are those of any dataset of Penstock. A slice is a dataset of neighbours.

    Args:
        windows: The windows, as ``from_shards`` finds them.
        transform: Function from a ``ps.AudioClip`` to the value that is yielded; default: the window itself.

    Attributes:
        windows: The windows.

    Raises:
        Unusable: An argument is invalid.

    Example:
        >>> windows = ps.AudioDataset.from_shards("s3://bucket/sound/", seconds=1, transform=lambda each: each.audio)
        >>> len(windows), windows.left_out
        (6, 0.0)
        >>> next(iter(ps.DataLoader(windows, 2, shuffle=ps.order.Lanes()))).shape
        torch.Size([2, 1, 16000])
    """

    windows: AudioWindows

    def __init__(self, windows: AudioWindows, *, transform: Callable[[AudioClip], Any] | None = None) -> None:
        self._take_windows(windows, transform, AudioWindows)

    @classmethod
    def from_shards(  # noqa: PLR0913  see design/0020
        cls,
        urls: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        seconds: float = 10.0,
        stride: float | None = None,
        track: int | None = None,
        labels: Rule | None = None,
        index: str | os.PathLike[str] | None = None,
        transform: Callable[[AudioClip], Any] | None = None,
        store: StoreOptions | str | None = None,
    ) -> Self:
        """Return a dataset of windows of sound files; nothing is copied, converted or resampled.

        Costs the requests of a listing, or a HEAD for each file that is named, and one read of 64 KiB to 1 MiB for each
        file; two where the index (``moov``) is at the end of a large file. Reads run in parallel. Memory: 4 bytes for a
        packet, of 1,024 samples (AAC) to 4,096 (WAV), and 12 for each stretch of packets without other bytes in it.

        Windows do not cross files. Seconds that are in no window are counted by ``left_out``.

        Args:
            urls: The files: a prefix, below which all ``.wav``, ``.m4a``, ``.m4b``, ``.mp4`` and ``.mov`` files are
                taken; a glob; a pattern such as ``"s3://bucket/{000..127}.wav"``; or a list of URLs, in the order of
                the windows.
            seconds: Length of a window in seconds; the samples of a file are this times its rate, rounded.
            stride: Seconds from the beginning of a window to that of the next; default: ``seconds``, end to end.
            track: ID of the audio track; default: the first audio track of each file. WAV files have one.
            labels: Labels of the files by name: ``"folder"``, a pattern with one group, or a function of the name.
            index: URL of an index that ``ps.index(…, format="audio")`` has written, and which is read in place of each
                file: see ``VideoDataset.from_shards``.
            transform: Function from a ``ps.AudioClip`` to a value, such as ``lambda each: (each.audio, each.label)``.
            store: Options, or the name of a profile; default: environment and profile.

        Returns:
            A dataset of ``ps.AudioClip``, or of the values of ``transform``.

        Raises:
            Unusable: An argument is invalid, or no file is long enough.
            NotFound: No sound file was found.
            Damaged: A file was cut short, or contradicts itself; or ``index`` does.
            Changed: None of the files is in ``index``.
            Unsupported: A file has no audio track, is FLAC or MP3 by itself, encrypted, of another codec, or has PCM in
                fragments; the text says what to do.

        Example:
            >>> windows = ps.AudioDataset.from_shards("s3://bucket/sound/", seconds=1, stride=0.5)
            >>> [each.seconds for each in windows[:3]]
            [0.0, 0.5, 1.0]
        """
        length = _check_seconds(seconds, "seconds")
        shape = length, length if stride is None else _check_seconds(stride, "stride")
        form = AudioFormat(None if track is None else whole(track, "track", 1))
        check_rule(labels)
        given = list_urls(urls)
        videos = open_indexed(given, form, index, store)
        windows = AudioWindows(videos, (*shape, form.track), label_files(videos, labels))
        if not len(windows):
            longest = (videos.counts / videos.column("scale")).max()
            raise Unusable(
                f"windows of {length:g} s fit into none of {len(videos)} files: the longest has {longest:.3f} s; "
                "pass fewer seconds="
            )
        return cls(windows, transform=transform)

    def __repr__(self) -> str:
        return (
            f"<AudioDataset of {len(self):,} windows of {self.windows.shape[0]:g} s; {self.left_out:,.1f} s in "
            f"{len(self.windows.videos):,} files are left out>"
        )

    @property
    def left_out(self) -> float:
        """The seconds in no window of the whole dataset: at ends of files, or between windows."""
        return self.windows.left_out

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, by the numbers that labels are; () without ``labels=``."""
        return () if self.windows.labels is None else self.windows.labels.categories

    # Public here: the reference lists what a class has itself.
    batched = FileDataset.batched


def _check_seconds(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _MOST_SECONDS:
        raise Unusable(f"{name} must be a positive number of seconds, at most 2^20, got {value!r}")
    return float(value)
