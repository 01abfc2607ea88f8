"""``LeRobotDataset``: the items of LeRobot's datasets, read from the bucket as it is."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, overload

import numpy as np
import torch
from torch.utils.data import Dataset

from penstock.data.datasets.batched import IndexedDataset
from penstock.data.lerobot.meta import check_episodes
from penstock.data.lerobot.opening import RobotRequest, open_robot
from penstock.data.lerobot.samples import RobotSamples, check_deltas
from penstock.data.order.orders import CatalogOrder
from penstock.data.order.sampling import sample_number
from penstock.data.video.packets import decode_frames
from penstock.data.video.reading import ClipReading, ClipRuns, fit_order, hold_bytes
from penstock.errors import Bug, PenstockError, Unusable, public_url
from penstock.values import switch, whole

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.data.order.protocol import Order
    from penstock.data.reading.iteration import Iterations
    from penstock.data.reading.reading import Reads
    from penstock.data.video.reading import Held
    from penstock.options import StoreOptions


class LeRobotDataset(IndexedDataset, Dataset[Any]):
    """A LeRobot v3 dataset as it lies in the bucket: ``dataset[i]`` is the item ``LeRobotDataset[i]`` of ``lerobot``.

    Parquet tables and MP4 files of many episodes each are read by byte ranges: a sample is the bytes from a key frame
    to the last frame that it needs, one range of each camera, decoded by PyAV. Nothing is downloaded or converted, and
    ``lerobot`` is not needed. An item is a dict of tensors: frames are float32 in [0, 1], shape (C, H, W), or
    (T, C, H, W) for a camera with more than one delta; other features have their values in this row, or in T rows;
    ``KEY_is_pad`` marks the times of ``delta_timestamps`` outside of the episode; ``task`` is a text.

    ``ps.DataLoader(dataset, B, shuffle=True)`` permutes all samples, and reads each in a request of each camera:
    right for LeRobot's own videos, with a key frame every 2 frames. ``shuffle=ps.order.Lanes()`` reads neighbours in
    requests of about 1 MiB of each camera and mixes 160 of them; each byte is read about once per epoch, which videos
    with fewer key frames need. Order, ranks, workers and exact resumption are those of any dataset of Penstock.

    A slice is a dataset of neighbours. Opening reads the descriptions, the rows, which stay in memory (some 150 bytes
    each), and the index of each video; it costs a listing of ``meta/``, ``data/`` and ``videos/``, three requests for
    the descriptions, two or three for each Parquet file and each 8 MiB of it, and one for each video (two for a video
    of a single episode). Of a process group, one rank does it for all.

    Args:
        url: The folder of the dataset, which has ``meta/info.json``.
        delta_timestamps: For each feature, seconds before (negative) and after the present row from which its values
            are, as multiples of 1/fps; times outside of the episode get its first or last row. Default: the present
            row alone.
        episodes: Numbers of the episodes to take; their order does not matter. Default: all.
        tolerance_s: Largest distance in seconds between the time of a row and the frame that belongs to it, and
            between a delta and a multiple of 1/fps.
        fields: Names of the features that items have, and ``"task"``; default: all. Videos of other cameras are not
            read.
        drop_last_frames: Rows at the end of each episode that are no samples; deltas of earlier samples reach them.
        uint8: Whether frames are uint8 from 0 to 255 instead of float32.
        transform: Function from an item to the value of ``dataset[i]``; default: the item itself.
        store: Options, or the name of a profile; default: environment and profile.

    Raises:
        MissingExtra: PyAV or pyarrow is not installed: ``pip install 'penstock[video,parquet]'``.
        NotFound: The URL has no LeRobot dataset, or a file that the episodes name does not exist.
        Damaged: The files contradict one another; or a row has no frame within ``tolerance_s``.
        Unsupported: The dataset has another version of the format, or features of images, texts or depth; ``fields=``
            leaves such features out.
        Unusable: An argument is invalid, or names an unknown feature or episode.

    Example:
        >>> actions = {"action": [0.0, 0.1, 0.2]}
        >>> dataset = ps.LeRobotDataset("s3://bucket/robot/", delta_timestamps=actions)
        >>> item = dataset[0]
        >>> item["observation.images.top"].shape, item["action"].shape, item["task"]
        (torch.Size([3, 48, 64]), torch.Size([3, 2]), 'push')
        >>> batch = next(iter(ps.DataLoader(dataset, 4, shuffle=True)))
        >>> batch["action_is_pad"].shape
        torch.Size([4, 3])
    """

    def __init__(  # noqa: PLR0913  see design/0158
        self,
        url: str | os.PathLike[str],
        *,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        episodes: Iterable[int] | None = None,
        tolerance_s: float = 1e-4,
        fields: Iterable[str] | None = None,
        drop_last_frames: int = 0,
        uint8: bool = False,
        transform: Callable[[Any], Any] | None = None,
        store: StoreOptions | str | None = None,
    ) -> None:
        if transform is not None and not callable(transform):
            raise Unusable(f"transform must be a function of an item, got {transform!r}")
        dropped = whole(drop_last_frames, "drop_last_frames", 0)
        request = RobotRequest(_check_fields(fields), check_episodes(episodes), _check_tolerance(tolerance_s))
        self._uint8 = switch(uint8, "uint8")
        files = open_robot(url, request, store)
        known = {**files.meta.features, **dict.fromkeys(files.meta.cameras)}
        deltas = check_deltas(delta_timestamps, known, files.meta.fps, request.tolerance_s)
        self._samples = RobotSamples(files, deltas, dropped)
        if not len(self._samples):
            raise Unusable(f"drop_last_frames must leave some row of an episode, got {dropped}")
        self.transform = transform
        self._runs: ClipRuns | None = None  # of the order in which this is read; None: as in the catalog's
        self._place: Iterations | None = None

    def __repr__(self) -> str:
        meta = self._samples.meta
        return (
            f"<LeRobotDataset of {len(self):,} samples in {len(self.episodes):,} episodes at {self.fps:g} fps; "
            f"{len(meta.cameras)} cameras: {', '.join(meta.cameras)}>"
        )

    @property
    def info(self) -> dict[str, Any]:
        """The description of the dataset: ``meta/info.json``."""
        return self._samples.meta.info

    @property
    def stats(self) -> dict[str, dict[str, NDArray[Any]]] | None:
        """The statistics of each feature over the whole dataset, as arrays: ``meta/stats.json``; None without it."""
        return self._samples.meta.stats

    @property
    def tasks(self) -> tuple[str, ...]:
        """The texts of the tasks, by ``task_index``."""
        return self._samples.meta.tasks

    @property
    def fps(self) -> float:
        """Rows and frames per second."""
        return self._samples.meta.fps

    @property
    def episodes(self) -> list[int]:
        """The numbers of the episodes that were taken, ascending, also for a slice."""
        found: list[int] = self._samples.numbers.tolist()
        return found

    @property
    def contents(self) -> RobotSamples:
        """The samples, whose digest is part of a state."""
        return self._samples

    @property
    def decodes(self) -> bool:
        """Whether items take so much CPU time that threads help: True with cameras."""
        return bool(self._samples.meta.cameras) or self.transform is not None

    def __len__(self) -> int:
        return len(self._samples)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...  # noqa: ANN401  the transform decides the type
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        """Read an item, in one request of each camera; for a slice of neighbours, return a dataset without reading."""
        if not isinstance(index, slice):
            return self.__getitems__((index,))[0]
        first, stop, step = index.indices(len(self))
        if step != 1 or first >= stop:
            raise Unusable(f"a slice of a LeRobotDataset must have step 1 and samples, got {index!r}")
        part = copy(self)
        part._samples, part._runs = self._samples.part(first, stop), None  # noqa: SLF001  itself
        return part

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        """Read items with all requests in flight at once."""
        samples = [sample_number(index, len(self)) for index in indices]
        spans = [self._samples.spans_of(each, each + 1) for each in samples]
        bodies = iter(self._samples.source.read_many([span for each in spans for span in each]))
        held = [hold_bytes(each, [next(bodies) for _ in each]) for each in spans]
        return [*map(self._make_item, samples, held)]

    def __iter__(self) -> Iterator[Any]:
        """Yield all items in order, read ahead in requests of about 1 MiB of each camera."""
        return self.ordered(CatalogOrder()).samples(range(len(self)), 1)

    # Public here: the reference lists what a class has itself.
    batched = IndexedDataset.batched

    def _fit_order(self, shuffle: object) -> Order:
        return fit_order(shuffle, self._samples)

    def ordered(self, order: Order, iterations: Iterations | None = None) -> Self:
        """Return this dataset, prepared to be read in ``order``: neighbouring samples in one request of each camera.

        Args:
            order: Order of the samples.
            iterations: Iterations of the dataset, which know the rank; None: a single rank reads.
        """
        dataset = copy(self)
        dataset._runs, dataset._place = ClipRuns(self._samples, order), iterations  # noqa: SLF001  itself
        return dataset

    def reading(self, batches: Iterable[list[int]], workers: int) -> ClipReading:
        """Return the items of ``batches``, made as the bytes of their cameras arrive.

        Args:
            batches: Numbers of the samples of each batch.
            workers: Number of processes that read in parallel and share the read-ahead budget.
        """
        runs = self._runs or ClipRuns(self._samples, CatalogOrder())
        return ClipReading(runs, batches, workers, self._make_item, self._place)

    def url_of(self, index: int) -> str:
        """Return the URL of the video of the first camera in which a sample is; of the dataset, without cameras.

        Args:
            index: Number of the sample, from 0.
        """
        return self._samples.url_of(index)

    def reads(self, batches: Callable[[], Iterable[list[int]]] | None = None) -> Iterator[Reads]:
        """Yield the store with the spans that are read for samples: runs of neighbours, each at its first use.

        Args:
            batches: Returns the numbers of the samples of each batch; default: all samples, in order.
        """
        runs = self._runs or ClipRuns(self._samples, CatalogOrder())
        yield self._samples.source, iter(runs) if batches is None else runs.used(batches())

    def _make_item(self, sample: int, held: Held) -> Any:  # noqa: ANN401  the transform decides the type
        item = self._decode_item(sample, held)
        if self.transform is None:
            return item
        try:
            return self.transform(item)
        except StopIteration as error:
            # A StopIteration would silently end the iteration over samples.
            raise RuntimeError(f"the transform of sample {sample} raised StopIteration") from error
        except Exception as error:
            error.add_note(f"while transforming sample {sample} of {public_url(self.url_of(sample))}")
            raise

    def _decode_item(self, sample: int, held: Held) -> dict[str, Any]:
        samples, meta = self._samples, self._samples.meta
        numbers = np.array([sample])
        episodes = samples.episodes_of(numbers)
        row, episode = samples.rows_of(numbers, episodes), int(episodes[0])
        item: dict[str, Any] = {}
        for camera in meta.cameras:
            rows, padded = samples.window(camera, row, episodes)
            item[camera] = self._decode_camera(camera, rows[0], episode, held)
            if camera in samples.deltas:
                item[f"{camera}_is_pad"] = torch.from_numpy(padded[0])
        for name, (dtype, shape) in meta.features.items():
            rows, padded = samples.window(name, row, episodes)
            values = torch.from_numpy(samples.values(name, rows[0], episode).astype(dtype)).reshape(-1, *shape)
            item[name] = values if name in samples.deltas else values[0]
            if name in samples.deltas:
                item[f"{name}_is_pad"] = torch.from_numpy(padded[0])
        if meta.task:
            item["task"] = meta.tasks[int(samples.values("task_index", row, episode)[0, 0])]
        return item

    def _decode_camera(self, camera: str, rows: NDArray[np.int64], episode: int, held: Held) -> torch.Tensor:
        """Return the frames of rows as LeRobot does: (T, C, H, W), or (C, H, W) for a single one."""
        file, videos = self._samples.file(camera, episode), self._samples.videos
        if videos is None:
            raise Bug(f"the camera {camera!r} has no videos")
        try:
            pictures = decode_frames(videos.table(file), held[videos.keys[file]], self._samples.frames(camera, rows))
        except PenstockError as error:
            error.url = error.url or videos.url_of(file)
            raise
        frames = torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous()
        frames = frames if self._uint8 else frames.to(torch.float32).div_(255.0)
        return frames.squeeze(0)


def _check_fields(fields: object) -> tuple[str, ...] | None:
    if fields is None:
        return None
    found = () if isinstance(fields, str) or not hasattr(fields, "__iter__") else tuple(fields)
    if not found or not all(isinstance(each, str) for each in found):
        raise Unusable(f"fields must be names of features, such as ['action', 'task'], got {fields!r}")
    return found


def _check_tolerance(tolerance_s: object) -> float:
    if isinstance(tolerance_s, bool) or not isinstance(tolerance_s, (int, float)) or not 0 < tolerance_s < np.inf:
        raise Unusable(f"tolerance_s must be seconds above 0, got {tolerance_s!r}")
    return float(tolerance_s)
