"""The files of a LeRobot v3 dataset: found, their rows read, and the frame of each row found in the videos.

Of a process group, one rank does it for all.
"""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.data.catalog.discovery.shards import Shards
from penstock.data.lerobot.meta import INDEXES, INFO, expand_paths, list_files, read_columns, read_meta
from penstock.data.ranks import share_named
from penstock.data.video.frames import VideoFormat
from penstock.data.video.saved import open_listed
from penstock.errors import Damaged, InvalidURL, NotFound, Unsupported, Unusable
from penstock.source import open_source
from penstock.values import as_folder

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.data.catalog.discovery.shards import Shard
    from penstock.data.lerobot.meta import Episodes, Feature, Ints, RobotMeta
    from penstock.data.video.frames import Videos
    from penstock.options import StoreOptions
    from penstock.source import Source

# Types of columns that become the type of an item without loss.
_TAKEN = {"float32": "fiu", "int64": "iu", "bool": "b"}
# ORG/NAME, by which other libraries open a dataset of the Hub.
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_PAGE = re.compile(r"https?://huggingface\.co/datasets/([^/]+/[^/?#]+)")


class RobotRequest(NamedTuple):
    """Checked arguments of ``LeRobotDataset``: which parts of a dataset are read."""

    fields: tuple[str, ...] | None  # None: all features
    episodes: tuple[int, ...] | None  # None: all
    tolerance_s: float
    video_index: str | os.PathLike[str] | None


class RobotFiles(NamedTuple):
    """An opened dataset: the wanted episodes, ascending, with their rows one after the other."""

    source: Source
    base: str  # prefix of all keys
    meta: RobotMeta
    episodes: Episodes
    rows: dict[str, NDArray[Any]]  # of each feature, the timestamp and the task: shape (rows, values of a row)
    data: list[Shard]  # files of rows
    videos: Videos | None  # None without cameras
    cameras: dict[str, tuple[Ints, NDArray[np.uint32]]]  # the video of each episode, and the frame of each row in it


def open_robot(url: str | os.PathLike[str], request: RobotRequest, store: StoreOptions | str | None) -> RobotFiles:
    """Return the dataset in the folder ``url``; of a process group, one rank reads it: see ``Catalog.scan``."""
    given = url if request.video_index is None else [url, request.video_index]
    return share_named(given, store, "LeRobot dataset of", request, lambda: _open_folder(url, request, store))


def _open_folder(url: str | os.PathLike[str], request: RobotRequest, store: StoreOptions | str | None) -> RobotFiles:
    if page := _HUB_PAGE.match(str(url)):
        raise InvalidURL(f"a dataset of the Hugging Face Hub is hf://datasets/{page[1]}, got its page", url=str(url))
    source, key = open_source(url, store)
    base = as_folder(key)
    try:
        meta, episodes = read_meta(source, base, request.fields)
    except NotFound as error:
        if error.url != source.url(base + INFO) or not _HUB_NAME.fullmatch(str(url)):
            raise
        advice = f"a dataset of the Hugging Face Hub is hf://datasets/{url}"
        raise NotFound(f"found no LeRobot dataset in the local folder {url!r}; {advice}", url=error.url) from error
    if request.episodes is not None and (missing := {*request.episodes} - {*episodes.numbers.tolist()}):
        raise Unusable(
            f"episodes: unknown episode {min(missing)}; the dataset has {len(episodes.numbers)}, from "
            f"{episodes.numbers[0]} to {episodes.numbers[-1]}",
            url=source.url(base),
        )
    episodes = episodes.select(request.episodes)
    data, rows = _read_rows(source, base, meta, episodes)
    found, places = _find_videos(source, base, meta, episodes)
    videos, cameras = None, {}
    if found:
        shards, stamps = Shards(source, base, found, VideoFormat()), rows["timestamp"][:, 0]
        videos = open_listed(shards, request.video_index, store)
        for camera, files in places.items():
            cameras[camera] = files, _find_frames(videos, files, episodes, camera, stamps, request.tolerance_s)
    return RobotFiles(source, base, meta, episodes, rows, data, videos, cameras)


def _find_files(source: Source, base: str, folder: str, names: Sequence[str], what: str) -> list[Shard]:
    listed = list_files(source, base + folder)
    # A template may name another folder.
    rest = [base + name for name in names if base + name not in listed]
    known = {meta.key: (meta.key, meta.size, meta.etag) for meta in source.stat_existing(rest) if meta is not None}
    found = []
    for name in names:
        each = listed.get(base + name) or known.get(base + name)
        if each is None:
            raise NotFound(f"meta/episodes names {what} that does not exist", url=source.url(base + name))
        found.append(each)
    return found  # type: ignore[return-value]  # both are a key, a size and an ETag


def _read_rows(
    source: Source, base: str, meta: RobotMeta, episodes: Episodes
) -> tuple[list[Shard], dict[str, NDArray[Any]]]:
    """Return the files of the episodes, and their rows, compared with the table of episodes."""
    url = source.url(base + INFO)
    paths, _ = expand_paths(meta.info["data_path"], url, *episodes.data)
    files = _find_files(source, base, "data/", paths, "a file of rows")
    names = [*dict.fromkeys((*INDEXES, *meta.features))]
    wanted = episodes.numbers
    columns: dict[str, list[NDArray[Any]]] = {name: [] for name in names}
    for file, batch in read_columns(source, files, names):
        numbers = batch["episode_index"].reshape(-1)
        chosen = np.isin(numbers, wanted)
        kept = slice(None) if chosen.all() else chosen
        for name, values in batch.items():
            if (feature := meta.features.get(name)) is not None:
                values = _fit_feature(name, feature, values, source.url(file.key))  # noqa: PLW2901
            columns[name].append(values[kept])
    rows = {name: np.concatenate(parts) if parts else np.zeros((0, 1)) for name, parts in columns.items()}
    _check_numbering(rows, episodes, source.url(base + "data/"))
    tasks = rows["task_index"]
    if tasks.dtype.kind not in "iu" or tasks.min() < 0 or tasks.max() >= len(meta.tasks):
        raise Damaged(f"a row has a task that is not among the {len(meta.tasks)} tasks", url=source.url(base + "data/"))
    # Both are arithmetic.
    for name in ("index", "episode_index"):
        del rows[name]
    return files, rows


def _fit_feature(name: str, feature: Feature, values: NDArray[Any], url: str) -> NDArray[Any]:
    """Return a column in the type of items, if it has the type and the shape that the description states."""
    width = prod(feature.shape)
    if len(values) and values.shape[1] != width:
        raise Damaged(
            f"the column {name!r} has {values.shape[1]} values in a row, and the features state {width}", url=url
        )
    if values.dtype.kind not in _TAKEN[feature.dtype] or values.dtype == np.uint64:
        raise Damaged(f"the column {name!r} has {values.dtype} values, and the features state {feature.dtype}", url=url)
    return values.astype(np.float32) if feature.dtype == "float32" else values


def _check_numbering(rows: Mapping[str, NDArray[Any]], episodes: Episodes, url: str) -> None:
    """Raise unless the rows are those of the episodes, in order, with the numbers that the table of episodes has."""
    lengths, count = episodes.stops - episodes.firsts, len(rows["index"])
    if any(rows[name].shape != (count, 1) for name in ("index", "episode_index", "timestamp", "task_index")):
        raise Damaged("a column of indexes or times has several values in a row", url=url)
    if lengths.max() > count or int(lengths.sum()) != count:
        raise Damaged(f"the episodes have {sum(lengths.tolist())} rows, and their files {count}", url=url)
    before = np.cumsum(lengths) - lengths
    expected = np.arange(count) + np.repeat(episodes.firsts - before, lengths)
    of = np.repeat(episodes.numbers, lengths)
    if not (np.array_equal(rows["index"][:, 0], expected) and np.array_equal(rows["episode_index"][:, 0], of)):
        raise Unsupported(
            "rows must be numbered through the whole dataset, episode by episode, as meta/episodes has them: write the "
            "dataset anew with lerobot-edit-dataset",
            url=url,
        )


def _find_videos(source: Source, base: str, meta: RobotMeta, episodes: Episodes) -> tuple[list[Shard], dict[str, Ints]]:
    """Return the videos of the episodes, and for each camera the number of each episode's video."""
    names, places = list[str](), dict[str, Any]()
    for camera in meta.cameras:
        chunks, files, _ = episodes.videos[camera]
        paths, numbers = expand_paths(meta.info["video_path"], source.url(base + INFO), chunks, files, camera)
        places[camera] = len(names) + numbers
        names += paths
    if len({*names}) < len(names):
        raise Damaged("two cameras have the same video", url=source.url(base + INFO))
    return _find_files(source, base, "videos/", names, "a video") if names else [], places


def _find_frames(
    videos: Videos, files: Ints, episodes: Episodes, camera: str, stamps: NDArray[Any], tolerance_s: float
) -> NDArray[np.uint32]:
    """Return the frame of each row: the one that is nearest in time, and within the tolerance.

    ``files`` has the video of each episode.
    """
    lengths = episodes.stops - episodes.firsts
    found, ends = np.empty(len(stamps), np.uint32), np.cumsum(lengths)
    times = np.repeat(episodes.videos[camera][2], lengths) + stamps.astype(np.float64)
    # LeRobot compares times as float32, which are farther apart in long videos.
    limits = tolerance_s + np.spacing(np.maximum(np.abs(times), np.abs(stamps)).astype(np.float32))
    first = 0
    for cut in (*(np.flatnonzero(np.diff(files)) + 1).tolist(), len(files)):
        stop, file = int(ends[cut - 1]), int(files[cut - 1])
        table = videos.table(file)
        with np.errstate(invalid="ignore"):
            frames, away = table.nearest(times[first:stop])
        far = ~(away < limits[first:stop])
        if far.any():
            at = int(np.argmax(np.where(far, np.nan_to_num(away, nan=np.inf), -1)))
            near = table.seconds_of(frames[at : at + 1])[0]
            raise Damaged(
                f"no frame is within {tolerance_s} s of the time {times[first + at]:.6f} s of row {first + at}: the "
                f"nearest is at {near:.6f} s; {far.sum()} of {stop - first} rows have none",
                url=videos.url_of(file),
            )
        found[first:stop] = frames
        first = stop
    return found
