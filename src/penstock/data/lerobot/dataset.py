"""``LeRobotDataset``: the items of LeRobot's datasets, read from the bucket as it is."""

from __future__ import annotations

from copy import copy
from numbers import Real
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from penstock.data.lerobot.meta import check_episodes
from penstock.data.lerobot.opening import RobotRequest, open_robot
from penstock.data.lerobot.samples import RobotSamples, check_deltas
from penstock.data.video.frame_dataset import FrameDataset
from penstock.data.video.packets import decode_frames
from penstock.errors import PenstockError, Unusable
from penstock.values import switch, whole

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.data.video.reading import Held
    from penstock.options import StoreOptions


class LeRobotDataset(FrameDataset):
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
    of a single episode), or two for all videos with ``index``. Of a process group, one rank does it for all.

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
        index: URL of an index of ``videos/``, which ``ps.index(…, format="mp4")`` has written and which is read in
            place of each video: see ``VideoDataset.from_shards``.
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
        index: str | os.PathLike[str] | None = None,
        transform: Callable[[Any], Any] | None = None,
        store: StoreOptions | str | None = None,
    ) -> None:
        if transform is not None and not callable(transform):
            raise Unusable(f"transform must be a function of an item, got {transform!r}")
        dropped = whole(drop_last_frames, "drop_last_frames", 0)
        wanted = _check_fields(fields), check_episodes(episodes)
        request = RobotRequest(*wanted, _check_tolerance(tolerance_s), index)
        self._uint8 = switch(uint8, "uint8")
        files = open_robot(url, request, store)
        known = {**files.meta.features, **dict.fromkeys(files.meta.cameras)}
        deltas = check_deltas(delta_timestamps, known, files.meta.fps, request.tolerance_s)
        self._samples = RobotSamples(files, deltas, dropped)
        if not len(self._samples):
            raise Unusable(f"drop_last_frames must leave some row of an episode, got {dropped}")
        self.transform = transform

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

    # Public here: the reference lists what a class has itself.
    batched = FrameDataset.batched

    def _select_part(self, first: int, stop: int) -> Self:
        part = copy(self)
        part._samples = self._samples.part(first, stop)  # noqa: SLF001  itself
        return part

    def _make_sample(self, sample: int, held: Held) -> Any:  # noqa: ANN401  the transform decides the type
        return self._transform_sample(self._decode_item(sample, held), sample)

    def _decode_item(self, sample: int, held: Held) -> dict[str, Any]:
        samples, meta = self._samples, self._samples.meta
        numbers = np.array([sample])
        episodes = samples.episodes_of(numbers)
        row, episode = samples.rows_of(numbers, episodes), int(episodes[0])
        item: dict[str, Any] = {}
        for name in (*meta.cameras, *meta.features):
            rows, padded = samples.window(name, row, episodes)
            if (feature := meta.features.get(name)) is None:
                item[name] = self._decode_camera(name, rows[0], episode, held)
            else:
                stored = samples.values(name, rows[0], episode).astype(feature.dtype)
                values = torch.from_numpy(stored).reshape(-1, *feature.shape)
                item[name] = values if name in samples.deltas else values[0]
            if name in samples.deltas:
                item[f"{name}_is_pad"] = torch.from_numpy(padded[0])
        if meta.task:
            item["task"] = meta.tasks[int(samples.values("task_index", row, episode)[0, 0])]
        return item

    def _decode_camera(self, camera: str, rows: NDArray[np.int64], episode: int, held: Held) -> torch.Tensor:
        """Return the frames of rows as LeRobot does: (T, C, H, W), or (C, H, W) for a single one."""
        file, videos = self._samples.file(camera, episode), self._samples.videos
        try:
            pictures = decode_frames(videos.table(file), held[videos.keys[file]], self._samples.frames(camera, rows))
        except PenstockError as error:
            error.url = error.url or videos.url_of(file)
            raise
        frames: NDArray[Any] = pictures.transpose(0, 3, 1, 2)
        # Not by torch, whose threads would wait for those that decode.
        frames = np.ascontiguousarray(frames) if self._uint8 else np.divide(frames, 255, dtype=np.float32, order="C")
        return torch.from_numpy(frames).squeeze(0)


def _check_fields(fields: object) -> tuple[str, ...] | None:
    if fields is None:
        return None
    found = () if isinstance(fields, str) or not hasattr(fields, "__iter__") else tuple(fields)
    if not found or not all(isinstance(each, str) for each in found):
        raise Unusable(f"fields must be names of features, such as ['action', 'task'], got {fields!r}")
    return found


def _check_tolerance(tolerance_s: object) -> float:
    if isinstance(tolerance_s, bool) or not isinstance(tolerance_s, Real) or not 0 < float(tolerance_s) < np.inf:
        raise Unusable(f"tolerance_s must be seconds above 0, got {tolerance_s!r}")
    return float(tolerance_s)
