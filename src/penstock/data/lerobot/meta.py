"""The description of a LeRobot v3 dataset: ``meta/info.json``, tasks, statistics, and where each episode lies.

Columns of numbers of Parquet files are read by their byte ranges: the other columns stay in the bucket.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.data.catalog.discovery.shards import Shard, Shards, walked
from penstock.data.parquet import coded_columns
from penstock.data.reading.runs import merged_spans
from penstock.data.shards.format import UnitPiece
from penstock.data.shards.parquet import ParquetFormat
from penstock.errors import Damaged, NotFound, PenstockError, Unsupported, Unusable
from penstock.options.typed import suggest_word
from penstock.schema import COUNT, check_json, read_json
from penstock.values import Span, whole

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.data.shards.format import Units
    from penstock.source import Source

    Ints = NDArray[np.int64]

INFO = "meta/info.json"
_TASKS, _STATS = "meta/tasks.parquet", "meta/stats.json"
_EPISODES = re.compile(r"meta/episodes/[^/]+/[^/]+\.parquet")
_MOST_BYTES = 64 << 20  # of a JSON document, and of the tasks
_MOST_FEATURES = 10_000
_VERSION = {"codebase_version": str}
_SCHEMA = {
    "fps": float,
    "features": {str: {"dtype": str, "shape": [COUNT], "info?": (dict, None), "video_info?": (dict, None)}},
    "data_path": str,
    "video_path?": (str, None),
}
_DEPTH = ("is_depth_map", "video.is_depth_map")
_LANGUAGE = ("language_persistent", "language_events")
# Types of features, by the type in LeRobot's items.
_KINDS = {
    "float32": ("float16", "float32", "float64"),
    "int64": ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"),
    "bool": ("bool",),
}
# What a template of paths may hold; other forms of Python's could name attributes, or take gigabytes.
_PLACE = re.compile(r"\{(video_key|chunk_index|file_index)(?::0?([1-9]?)d)?\}")
_CONVERT = "convert it once with LeRobot: python -m lerobot.scripts.convert_dataset_v21_to_v30"
# Columns that each row has.
INDEXES = ("timestamp", "index", "episode_index", "task_index")


class Feature(NamedTuple):
    """A value of each row: its type in torch, and its shape; ``()`` for a single number."""

    dtype: str  # "float32", "int64" or "bool", as LeRobot's items have it
    shape: tuple[int, ...]


class RobotMeta(NamedTuple):
    """The description of a dataset."""

    info: dict[str, Any]  # meta/info.json
    stats: dict[str, dict[str, NDArray[Any]]] | None  # meta/stats.json
    tasks: tuple[str, ...]  # by their index
    features: dict[str, Feature]  # of the items, cameras left out
    cameras: tuple[str, ...]  # of the items
    task: bool  # whether items have the text of their task

    @property
    def fps(self) -> float:
        found: float = self.info["fps"]
        return found


class Episodes(NamedTuple):
    """The episodes of a dataset, ascending; arrays have one value, or row, for each."""

    numbers: Ints
    firsts: Ints  # number of the first row
    stops: Ints
    data: tuple[Ints, Ints]  # chunk and file of the rows
    videos: dict[str, tuple[Ints, Ints, NDArray[np.float64]]]  # by camera: chunk, file, and where the episode begins

    def select(self, wanted: Collection[int] | None) -> Episodes:
        """Return the episodes with these numbers; None: all."""
        if wanted is None:
            return self
        kept = np.isin(self.numbers, [*wanted])
        videos = {key: (chunk[kept], file[kept], start[kept]) for key, (chunk, file, start) in self.videos.items()}
        data = self.data[0][kept], self.data[1][kept]
        return Episodes(self.numbers[kept], self.firsts[kept], self.stops[kept], data, videos)


def read_meta(source: Source, base: str, fields: Sequence[str] | None) -> tuple[RobotMeta, Episodes]:
    """Return the description of the dataset below ``base``, with the features ``fields`` (None: all)."""
    info = _read_info(source, base)
    features, cameras, task = _choose_features(info, fields, source.url(base + INFO))
    listed = list_files(source, f"{base}meta/")
    if base + _TASKS not in listed:
        raise NotFound("the dataset has no file of tasks", url=source.url(base + _TASKS))
    spans = [_span(listed[base + _TASKS], source)]
    if base + _STATS in listed:
        spans.append(_span(listed[base + _STATS], source))
    tasks, *stats = source.read_many(spans)
    files = [each for key, each in sorted(listed.items()) if _EPISODES.fullmatch(key[len(base) :])]
    if not files:
        raise NotFound("the dataset has no file of episodes", url=source.url(f"{base}meta/episodes/"))
    meta = RobotMeta(
        info,
        _read_stats(stats[0], source.url(base + _STATS)) if stats else None,
        _read_tasks(tasks, source.url(base + _TASKS)),
        *(features, cameras, task),
    )
    return meta, _read_episodes(source, files, cameras)


def _span(file: Shard, source: Source) -> Span:
    if file.size > _MOST_BYTES:
        raise Damaged(f"the file has {file.size} bytes, and {_MOST_BYTES} at most are read", url=source.url(file.key))
    return Span(file.key, 0, file.size, file.etag, whole=True)


def list_files(source: Source, prefix: str) -> dict[str, Shard]:
    return {each.key: Shard(each.key, each.size, each.etag) for page in source.pages(prefix) for each in page.entries}


def _read_info(source: Source, base: str) -> dict[str, Any]:
    url = source.url(base + INFO)
    try:
        data = source.read(Span(base + INFO, most=1 << 16))
    except NotFound as error:
        raise NotFound(
            "found no LeRobot dataset: pass the URL of the folder that has meta/info.json", url=url
        ) from error
    info: dict[str, Any] = read_json(data, _VERSION, "the description of the dataset", url)
    version = info["codebase_version"]
    if not version.startswith("v3."):
        raise Unsupported(f"the dataset has version {version!r} of LeRobot's format, not v3: {_CONVERT}", url=url)
    check_json(info, _SCHEMA, "the description of the dataset", url)
    if not info["fps"] > 0 or len(info["features"]) > _MOST_FEATURES:
        raise Damaged(f"fps must be above 0, with at most {_MOST_FEATURES} features, got {info['fps']}", url=url)
    return info


def _choose_features(
    info: Mapping[str, Any], fields: Sequence[str] | None, url: str
) -> tuple[dict[str, Feature], tuple[str, ...], bool]:
    """Return the wanted features of rows, the wanted cameras, and whether the task is wanted."""
    known = info["features"]
    if missing := [name for name in INDEXES if name not in known]:
        raise Damaged(f"the features lack {missing[0]!r}, which each LeRobot dataset has", url=url)
    for name in fields or ():
        check_feature(name, (*known, "task"), "fields", url)
    features, cameras = {}, list[str]()
    for name, each in known.items():
        if fields is not None and name not in fields:
            continue
        more = {**(each.get("info") or {}), **(each.get("video_info") or {})}
        if each["dtype"] == "video" and not any(more.get(key) for key in _DEPTH):
            cameras.append(name)
        else:
            features[name] = _parse_feature(name, each, url)
    if cameras and not info.get("video_path"):
        raise Damaged("the description of the dataset has videos and no video_path", url=url)
    return features, tuple(cameras), fields is None or "task" in fields


def check_feature(name: object, known: Iterable[str], what: str, url: str = "") -> None:
    """Raise unless a feature is known; the message has those that contain ``name``, else the most similar one."""
    names = [*known]
    if name not in names:
        near = [each for each in names if str(name).rstrip(".*") in each]
        advice = f": did you mean {', '.join(near)}?" if near else f"; features are {', '.join(names)}"
        raise Unusable(
            f"{what}: unknown feature {name!r}{advice if near else suggest_word(str(name), names, advice)}", url=url
        )


def _parse_feature(name: str, each: Mapping[str, Any], url: str) -> Feature:
    dtype, shape = each["dtype"], tuple(each["shape"])
    kind = next((kind for kind, kinds in _KINDS.items() if dtype in kinds), "")
    if not kind or name in _LANGUAGE:
        what = "depth" if dtype == "video" else f"values of type {dtype!r}"
        message = f"the feature {name!r} has {what}, which are not supported: pass fields= without it"
        raise Unsupported(message, url=url)
    return Feature(kind, () if shape == (1,) else shape)


def _read_stats(data: bytes, url: str) -> dict[str, dict[str, NDArray[Any]]]:
    stats = read_json(data, {str: {str: object}}, "the statistics of the dataset", url)
    try:
        return {key: {name: np.array(value) for name, value in each.items()} for key, each in stats.items()}
    except ValueError as error:
        raise Damaged(f"the statistics of the dataset have values of no common shape: {error}", url=url) from error


def _read_tasks(data: bytes, url: str) -> tuple[str, ...]:
    texts, numbers, count = coded_columns(data, url, ("task", "__index_level_0__"), ("task_index",))
    found = next((texts[name] for name in ("task", "__index_level_0__") if name in texts), None)
    if found is None or "task_index" not in numbers:
        raise Damaged("the tasks lack their texts or the column 'task_index'", url=url)
    order = numbers["task_index"]
    if sorted(order.tolist()) != [*range(count)] or (found.codes < 0).any():
        raise Damaged(f"the {count} tasks are not numbered from 0, or lack a text", url=url)
    by_index = np.argsort(order)
    return tuple(str(found.values[code]) for code in found.codes[by_index].tolist())


def _read_episodes(source: Source, files: Sequence[Shard], cameras: Iterable[str]) -> Episodes:
    plain = ("episode_index", "dataset_from_index", "dataset_to_index", "data/chunk_index", "data/file_index")
    places = {key: [f"videos/{key}/{name}" for name in ("chunk_index", "file_index")] for key in cameras}
    starts = {key: f"videos/{key}/from_timestamp" for key in places}
    names = [*plain, *(name for each in places.values() for name in each), *starts.values()]
    columns: dict[str, list[NDArray[Any]]] = {name: [] for name in names}
    for file, batch in read_columns(source, files, names):
        for name, values in batch.items():
            if values.shape[1:] != (1,) and len(values):
                raise Damaged(f"the column {name!r} must have one value for each episode", url=source.url(file.key))
            whole_numbers = name not in starts.values()
            if whole_numbers and (values.dtype.kind not in "iu" or (values < 0).any()):
                raise Damaged(f"the column {name!r} must hold whole numbers from 0 on", url=source.url(file.key))
            columns[name].append(values.reshape(-1).astype(np.int64 if whole_numbers else np.float64))
    joined = {
        name: np.concatenate([np.zeros(0), *parts]).astype(parts[0].dtype if parts else np.int64)
        for name, parts in columns.items()
    }
    order = np.argsort(joined["episode_index"], kind="stable")
    numbers, firsts, stops, chunks, numbered = (joined[name][order] for name in plain)
    url = source.url(files[0].key)
    if not len(numbers) or (np.diff(numbers) <= 0).any() or (stops <= firsts).any():
        raise Damaged("the episodes must have different numbers and at least one row each", url=url)
    videos = {key: (*(joined[name][order] for name in places[key]), joined[starts[key]][order]) for key in places}
    if any(not np.isfinite(each[2]).all() for each in videos.values()):
        raise Damaged("an episode begins in its video at a time that is not finite", url=url)
    return Episodes(numbers, firsts, stops, (chunks, numbered), videos)  # type: ignore[arg-type]  # three arrays each


def expand_paths(template: str, url: str, chunks: Ints, files: Ints, key: str = "") -> tuple[list[str], Ints]:
    """Return the different paths of a template for pairs of a chunk and a file, and the number of each pair's path."""
    pairs, numbers = np.unique(np.stack([chunks, files], axis=1), axis=0, return_inverse=True)
    if {*"{}"} & {*_PLACE.sub("", template)}:
        raise Damaged(
            f"a template of paths must use video_key, chunk_index and file_index only, got {template!r}", url=url
        )
    paths = []
    for chunk, file in pairs.tolist():
        values = {"video_key": key, "chunk_index": chunk, "file_index": file}
        path = _PLACE.sub(lambda found: str(values[found[1]]).zfill(int(found[2] or 0)), template)  # noqa: B023  used at once
        if any(part in ("", ".", "..") for part in path.split("/")) or "\0" in path:
            raise Damaged(f"a path of the dataset must be below its folder, got {path!r}", url=url)
        paths.append(path)
    if len({*paths}) < len(paths):
        raise Damaged(f"the template {template!r} gives several files one path", url=url)
    return paths, numbers.reshape(-1)


def check_episodes(episodes: object) -> tuple[int, ...] | None:
    """Return numbers of episodes, ascending, each once; None: all."""
    if episodes is None:
        return None
    if isinstance(episodes, (str, bytes)) or not hasattr(episodes, "__iter__"):
        raise Unusable(f"episodes must be numbers of episodes, such as range(40), got {episodes!r}")
    found = sorted({whole(each, "each of episodes", 0) for each in episodes})
    if not found:
        raise Unusable("episodes must name at least one episode, got none")
    return tuple(found)


def read_columns(
    source: Source, files: Sequence[Shard], names: Sequence[str]
) -> Iterator[tuple[Shard, dict[str, NDArray[Any]]]]:
    """Yield columns of numbers of files, in order and in pieces of their rows: see ``ParquetFormat.numbers``.

    Costs a request for the footer of each file, two if it is larger than 64 KiB, and those of the columns, whose ranges
    are joined to requests of at most 8 MiB.
    """
    form = ParquetFormat(tuple(names))
    shards = Shards(source, "", [*files], form)
    found: list[Any] = [None] * len(files)
    try:
        for number, extents in walked(shards, range(len(files))):
            found[number] = extents
    except Unsupported:
        raise
    except Unusable as error:
        # The dataset names its columns, not the user.
        raise Damaged(f"a file of the dataset lacks a column: {error.message}", url=error.url) from error
    for shard, extents in zip(shards.found, found, strict=True):
        try:
            having = form.having(extents.schema)
            for first, pieces in _read_units(source, shard, extents.units):
                for batch in having.numbers(pieces, first):
                    yield shard, batch
        except PenstockError as error:
            error.url = error.url or source.url(shard.key)
            raise


def _read_units(source: Source, shard: Shard, units: Units) -> Iterator[tuple[int, list[UnitPiece]]]:
    """Yield the first row and the bytes of each row group, the footer last."""
    starts, stops = units.starts.tolist(), units.stops.tolist()
    ranges = [
        Span(shard.key, start, stop, shard.etag, most=shard.size) for start, stop in zip(starts, stops, strict=True)
    ]
    different = [*dict.fromkeys(ranges)]
    merged, places = merged_spans(different)
    bodies = [memoryview(each) for each in source.read_many(merged)]
    held = {
        span: UnitPiece(span.start, bodies[number][start:stop])
        for span, (number, start, stop) in zip(different, places, strict=True)
    }
    begin = 0
    for first, end in zip(units.firsts.tolist(), units.ends.tolist(), strict=True):
        yield first, [held[each] for each in ranges[begin:end]]
        begin = end
