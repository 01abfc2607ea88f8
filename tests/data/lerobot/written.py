"""LeRobot v3 datasets as LeRobot writes them: tables by pyarrow, videos of several episodes each by PyAV.

Each picture has the number of its row drawn into it, and a background for each camera, so that a wrong frame shows.
"""

from __future__ import annotations

import io
import json
import tempfile
from functools import cache
from typing import TYPE_CHECKING, Any

import av
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from av.video.frame import PictureType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

HEIGHT, WIDTH, BITS, FPS = 48, 64, 8, 10
TOP, WRIST = "observation.images.top", "observation.images.wrist"
LENGTHS = (7, 5, 9, 4, 6)
# Episodes of each file: a file of one episode has its index at the end, as LeRobot leaves it.
VIDEOS = {TOP: ((0, 1), (2,), (3, 4)), WRIST: ((0,), (1, 2, 3, 4))}
DATA = ((0, 1, 2), (3, 4))
TASKS = ("push", "pick the cube")


def picture(number: int, camera: int) -> np.ndarray:
    """Return the picture of a row: its number as squares of 8 pixels."""
    found = np.full((HEIGHT, WIDTH, 3), (40 + 90 * camera, 120, 200 - 90 * camera), np.uint8)
    found[20:40, 4 + number % 40 : 24 + number % 40] = 90
    for bit in range(BITS):
        found[:16, bit * 8 : bit * 8 + 8] = 255 if number >> bit & 1 else 0
    return found


def number_in(pixels: Any) -> int:
    """Return the number that is drawn into a frame of an item: (3, height, width), of any type."""
    found = np.asarray(pixels, np.float32).mean(0) / (255 if np.asarray(pixels).dtype == np.uint8 else 1)
    return sum(int(found[4:12, bit * 8 + 2 : bit * 8 + 6].mean() > 0.5) << bit for bit in range(BITS))


@cache
def video(episodes: tuple[range, ...], camera: int, g: int = 2, options: tuple[tuple[str, str], ...] = ()) -> bytes:
    """Return an MP4 file with the rows of episodes, each of which begins with a key frame."""
    flags = {"movflags": "faststart"} if len(episodes) > 1 else {}
    with tempfile.NamedTemporaryFile(suffix=".mp4") as file:
        with av.open(file.name, "w", options=flags) as out:
            stream: Any = out.add_stream("libx264", FPS, options={"g": str(g), "bf": "0", "crf": "20", **dict(options)})
            stream.pix_fmt, stream.width, stream.height = "yuv420p", WIDTH, HEIGHT
            stream.codec_context.thread_count = 1
            for episode in episodes:
                for row in episode:
                    frame = av.VideoFrame.from_ndarray(picture(row, camera), format="rgb24")
                    frame.pict_type = PictureType.I if row == episode[0] else PictureType.NONE
                    out.mux(stream.encode(frame))
            out.mux(stream.encode())
        return file.read()


def rows_of(lengths: Sequence[int]) -> dict[str, np.ndarray]:
    """Return the columns of all rows, by feature."""
    draw, count = np.random.default_rng(3), sum(lengths)
    within = np.concatenate([np.arange(each) for each in lengths])
    episodes = np.repeat(np.arange(len(lengths)), lengths)
    return {
        "observation.state": draw.normal(size=(count, 3)).astype(np.float32),
        "action": draw.normal(size=(count, 2)).astype(np.float32),
        "matrix": draw.integers(-9, 9, (count, 2, 2)).astype(np.int16),
        "force": draw.normal(size=count),
        "done": draw.random(count) > 0.5,
        "timestamp": (within / FPS).astype(np.float32),
        "frame_index": within,
        "episode_index": episodes,
        "index": np.arange(count),
        "task_index": episodes % len(TASKS),
    }


def features_of(columns: Mapping[str, np.ndarray], cameras: Sequence[str]) -> dict[str, Any]:
    """Return the features of ``meta/info.json``."""
    found: dict[str, Any] = {
        name: {"dtype": str(each.dtype), "shape": list(each.shape[1:]) or [1], "names": None}
        for name, each in columns.items()
    }
    info = {"video.codec": "h264", "video.fps": FPS, "is_depth_map": False}
    for camera in cameras:
        found[camera] = {"dtype": "video", "shape": [HEIGHT, WIDTH, 3], "names": None, "info": info}
    return found


def table(columns: Mapping[str, Any]) -> pa.Table:
    """Return a table of Arrow; columns of several values are lists."""
    return pa.table({name: pa.array(np.asarray(each).tolist(), _type_of(each)) for name, each in columns.items()})


def _type_of(values: Any) -> Any:
    array = np.asarray(values)
    kind = pa.string() if array.dtype.kind == "U" else pa.from_numpy_dtype(array.dtype)
    for _ in array.shape[1:]:
        kind = pa.list_(kind)
    return kind


def parquet(*parts: pa.Table) -> bytes:
    """Return a file with a row group for each part."""
    file = io.BytesIO()
    with pq.ParquetWriter(file, parts[0].schema, compression="snappy") as writer:
        for each in parts:
            writer.write_table(each)
    return file.getvalue()


def robot(  # noqa: PLR0913  the parts of the layout
    lengths: Sequence[int] = LENGTHS,
    *,
    videos: Mapping[str, Sequence[Sequence[int]]] = VIDEOS,
    data: Sequence[Sequence[int]] = DATA,
    info: Mapping[str, Any] | None = None,
    columns: Mapping[str, np.ndarray] | None = None,
    episodes: Mapping[str, Any] | None = None,
    g: int = 2,
) -> dict[str, bytes]:
    """Return the files of a dataset by their names; ``info``, ``columns`` and ``episodes`` replace what they name."""
    columns = {**rows_of(lengths), **(columns or {})}
    ends = np.cumsum(lengths)
    spans = [range(end - length, end) for end, length in zip(ends.tolist(), lengths, strict=True)]
    described = {
        "codebase_version": "v3.0",
        "robot_type": "sim",
        "total_episodes": len(lengths),
        "total_frames": int(ends[-1]),
        "total_tasks": len(TASKS),
        "fps": FPS,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "features": features_of(columns, [*videos]),
        **(info or {}),
    }
    found = {
        "meta/info.json": json.dumps(described).encode(),
        "meta/stats.json": json.dumps({"action": {"mean": [0.5, 0.25], "count": [int(ends[-1])]}}).encode(),
        "meta/tasks.parquet": parquet(
            pa.Table.from_pandas(pd.DataFrame({"task_index": range(len(TASKS))}, index=[*TASKS]))
        ),
    }
    places: dict[str, Any] = {
        "episode_index": np.arange(len(lengths)),
        "tasks": [[TASKS[number % len(TASKS)]] for number in range(len(lengths))],
        "length": np.array(lengths),
        "dataset_from_index": ends - lengths,
        "dataset_to_index": ends,
    }
    for file, group in enumerate(data):
        name = f"data/chunk-000/file-{file:03}.parquet"
        parts = [{key: each[spans[one].start : spans[one].stop] for key, each in columns.items()} for one in group]
        found[name] = parquet(*map(table, parts))
    places |= {"data/chunk_index": np.zeros(len(lengths), int), "data/file_index": _files_of(data)}
    for camera, (key, groups) in enumerate(videos.items()):
        starts = {}
        for file, group in enumerate(groups):
            found[f"videos/{key}/chunk-000/file-{file:03}.mp4"] = video(tuple(spans[one] for one in group), camera, g)
            at = 0.0
            for one in group:
                starts[one] = at
                at += lengths[one] / FPS
        places |= {
            f"videos/{key}/chunk_index": np.zeros(len(lengths), int),
            f"videos/{key}/file_index": _files_of(groups),
            f"videos/{key}/from_timestamp": np.array([starts[one] for one in range(len(lengths))]),
            f"stats/{key}/mean": np.zeros((len(lengths), 3)),
        }
    found["meta/episodes/chunk-000/file-000.parquet"] = parquet(table({**places, **(episodes or {})}))
    return found


def _files_of(groups: Sequence[Sequence[int]]) -> np.ndarray:
    files = {one: file for file, group in enumerate(groups) for one in group}
    return np.array([files[one] for one in range(len(files))])


def put_robot(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write the files of a dataset below a folder."""
    for name, body in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    return folder
