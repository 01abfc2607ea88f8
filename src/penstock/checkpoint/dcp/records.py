"""The items of a distributed checkpoint as columns of its index, and back; runs no code of a file.

An item is a tensor or bytes. A tensor's chunks are the cells of a grid, described by a step along each dimension, or
else boxes. Each chunk has a row: its object and its first byte in it. Rows are in the order of chunks, and within it of
items, in a group for each number of chunks: what one rank has saved, or loads, is together.
"""

from __future__ import annotations

import json
from functools import cached_property, partial
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from penstock.checkpoint.columns import LAYOUT, MOST_INDEX_BYTES, ROW
from penstock.checkpoint.dcp.chunks import (
    StoredChunks,
    collect_boxes,
    count_cells,
    explain_holes,
    find_steps,
    refuse_untiled,
)
from penstock.checkpoint.integrity import (
    BLOCK_BYTES,
    DIGEST_BYTES,
    MOST_BYTES,
    MOST_MANIFEST_VALUES,
    BlockChecksums,
    check_value_count,
    elements,
)
from penstock.errors import CheckpointError, Unusable, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch.distributed.checkpoint.planner import SavePlan, WriteItem

    from penstock.checkpoint.columns import Column, IndexColumns
    from penstock.checkpoint.commit import CommittedCheckpoint
    from penstock.checkpoint.gather import Object

    _Integers = np.ndarray[Any, np.dtype[np.int64]]

KIND = "dcp"
_FOREIGN = 'this planner has additional data, which only torch\'s layout can store: StorageWriter(url, layout="torch")'
# The kind of an item of bytes; that of a tensor is the number of its dtype.
_BYTES = 255
# Rows that are read to save a request: as many bytes as gather reads for that.
_GAP_ROWS = (256 << 10) // ROW.itemsize


class ItemLocation(NamedTuple):
    """Location of an item's bytes in an object, whose name is relative to the checkpoint's folder."""

    name: str
    start: int
    length: int
    checksums: BlockChecksums | None = None  # None in torch's layout


def is_plain_layout(dtype: torch.dtype, layout: torch.layout) -> bool:
    return layout is torch.strided and not _name(dtype).startswith(("q", "bits"))  # qint8, quint4x2, …


def planned(item: WriteItem, data: object) -> torch.Tensor:
    """Return a planner's tensor, checked against the plan: a reader will know only what the plan contains."""
    plan = item.tensor_data
    if plan is None or not isinstance(data, torch.Tensor) or not is_plain_layout(data.dtype, data.layout):
        raise Unusable(f"{item.index.fqn!r} must be a plain tensor (dense, not quantized), got {kind_of(data)}")
    if data.dtype != plan.properties.dtype or data.shape != plan.chunk.sizes or data.is_meta:
        kind = f"{data.dtype} {list(data.shape)} on {data.device}"
        raise Unusable(
            f"{item.index.fqn!r} was planned as {plan.properties.dtype} {list(plan.chunk.sizes)}, but is {kind}"
        )
    return data


def check_size(plans: Sequence[SavePlan]) -> None:
    """Raise ``Unusable``, before hours of the ranks' work, if their index could be larger than a reader accepts."""
    index_bytes = count = 0
    names: dict[str, int] = {}
    for plan in plans:
        for name, path in plan.planner_data.items() if isinstance(plan.planner_data, dict) else ():
            names[name] = len(path)
        for item in plan.items:
            names.setdefault(item.index.fqn, 0)
            data = item.tensor_data
            count += 1
            if data is not None:
                # Boxes, if chunks do not form a grid, and digests.
                sizes = data.chunk.sizes
                size_bytes = sizes.numel() * data.properties.dtype.itemsize
                index_bytes += 16 * len(sizes) + size_bytes // BLOCK_BYTES * DIGEST_BYTES
    values = sum(length + 3 for length in names.values())
    # A path repeats its name, and a key of one character takes four.
    text_bytes = sum(4 * len(json.dumps(name)) + 50 for name in names)
    index_bytes += text_bytes + count * ROW.itemsize + 200 * len(names)
    if values > MOST_MANIFEST_VALUES or text_bytes > MOST_BYTES or index_bytes > MOST_INDEX_BYTES:
        raise Unusable(
            f"cannot save {count:,} parts of {len(names):,} tensors in one checkpoint: its index could exceed "
            f"{MOST_INDEX_BYTES:,} bytes, or the names of tensors {MOST_BYTES:,} bytes or {MOST_MANIFEST_VALUES:,} "
            "values; save parts of the state at separate URLs, or use fewer shards"
        )


# -- to columns --------------------------------------------------------------------------------------------------------


def encode(
    metadata: Metadata, locations: Mapping[MetadataIndex, ItemLocation], objects: Mapping[str, BlockChecksums]
) -> dict[str, Column]:
    """Return the columns of an index; raise ``Unusable`` if it cannot hold the planner's data, or a name.

    Raises ``CheckpointError`` for items that no reader would take: their bytes overlap, or are beyond an object.
    """
    encoder = _Encoder(locations, sorted(objects))
    for name, stored in metadata.state_dict_metadata.items():
        encoder.add(name, stored)
    columns = encoder.columns(_paths(metadata.planner_data))
    digests = b"".join(objects[name].digests for name in sorted(objects))
    columns["digests"] = np.frombuffer(digests, LAYOUT["digests"])
    if len(columns["text"]) > MOST_BYTES or sum(each.nbytes for each in columns.values()) > MOST_INDEX_BYTES:
        raise Unusable(f"cannot encode the index: it has more than {MOST_INDEX_BYTES:,} bytes, or too long names")
    sizes = np.array([objects[name].size for name in sorted(objects)], np.int64)
    placed = np.concatenate([np.empty(0, _PLACED), *encoder.placed])
    if problem := _explain_places(placed["object"], placed["start"], placed["length"], sizes):
        raise CheckpointError(f"cannot encode the index: {problem}")
    return columns


_PLACED = np.dtype([("object", "<i8"), ("start", "<i8"), ("length", "<i8")])  # an item's bytes


class _Encoder:
    """Encoder that is given each item in turn."""

    def __init__(self, locations: Mapping[MetadataIndex, ItemLocation], objects: Sequence[str]) -> None:
        self.placed: list[Column] = []  # of each item, its chunks
        self._locations = locations
        self._numbers = {name: number for number, name in enumerate(objects)}
        self._names: list[str] = []
        self._dtypes: dict[str, int] = {}
        self._kinds: list[int] = []
        self._shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = []  # size and steps of each
        self._boxes: list[_Integers | None] = []

    def add(self, name: object, stored: object) -> None:
        if not isinstance(name, str):
            raise Unusable(f"names must be str, got {name!r}")
        self._names.append(name)
        if not isinstance(stored, TensorStorageMetadata):
            location = self._locations[MetadataIndex(name)]
            self.placed.append(self._place([location], [location.length]))
            self._shapes.append(((location.length,), (1,)))
            self._kinds.append(_BYTES)
            self._boxes.append(None)
            return
        size = tuple(stored.size)
        boxes = collect_boxes(stored.chunks, len(size))
        # Chunks without elements are left out: no load asks for them.
        filled = np.flatnonzero((boxes[:, 1] > 0).all(axis=1))
        order = filled[np.lexsort(boxes[filled, 0].T[::-1])] if size else filled
        boxes, steps = boxes[order], find_steps(size, boxes[order])
        if steps is None:
            refuse_untiled(name, size, explain_holes(size, boxes), "")
        chunks = stored.chunks
        found = [self._locations[MetadataIndex(name, chunks[number].offsets)] for number in order.tolist()]
        lengths = boxes[:, 1].prod(axis=1) * stored.properties.dtype.itemsize
        self.placed.append(self._place(found, lengths))
        self._shapes.append((size, steps or (1,) * len(size)))
        self._kinds.append(self._dtypes.setdefault(_name(stored.properties.dtype), len(self._dtypes)))
        self._boxes.append(boxes if steps is None else None)

    def _place(self, locations: Sequence[ItemLocation], lengths: Iterable[int]) -> Column:
        placed = np.empty(len(locations), _PLACED)
        placed["object"] = [self._numbers[each.name] for each in locations]
        placed["start"] = [each.start for each in locations]
        placed["length"] = lengths
        return placed

    def columns(self, paths: object) -> dict[str, Column]:
        text = {"dtypes": list(self._dtypes), "names": self._names, "paths": paths}
        boxes = [np.empty(0, np.int64), *(each.reshape(-1) for each in self._boxes if each is not None)]
        return {
            "text": np.frombuffer(json.dumps(text, sort_keys=True, separators=(",", ":")).encode(), np.uint8),
            "kinds": np.array(self._kinds, LAYOUT["kinds"]),
            "dimensions": np.array([len(size) for size, _ in self._shapes], LAYOUT["dimensions"]),
            "boxed": np.array([0 if each is None else len(each) for each in self._boxes], LAYOUT["boxed"]),
            "sizes": np.array([each for size, _ in self._shapes for each in size], LAYOUT["sizes"]),
            "steps": np.array([each for _, steps in self._shapes for each in steps], LAYOUT["steps"]),
            "boxes": np.concatenate(boxes),
            "rows": self._rows(),
        }

    def _rows(self) -> Column:
        grouped = _RowGroups(np.array([len(each) for each in self.placed], np.int64))
        rows = np.empty(grouped.count, ROW)
        for number, placed in enumerate(self.placed):
            first, step = grouped.rows_of(number)
            for name in ROW.names or ():
                rows[name][first : first + len(placed) * step : step] = placed[name]
        return rows


class _RowGroups:
    """Numbers of the rows of items with ``counts`` chunks: of all items with as many chunks, chunk by chunk."""

    def __init__(self, counts: _Integers) -> None:
        different, group, widths = np.unique(counts, return_inverse=True, return_counts=True)
        starts = np.cumsum([0, *(different * widths).tolist()])
        order = np.argsort(group, kind="stable")
        within = np.empty(len(counts), np.int64)
        within[order] = np.arange(len(counts)) - np.repeat(np.cumsum(widths) - widths, widths)
        self.count = int(starts[-1])
        self._first: list[int] = (starts[group] + within).tolist()
        self._step: list[int] = widths[group].tolist()

    def rows_of(self, item: int) -> tuple[int, int]:
        """Return the row of an item's first chunk, and the distance between the rows of its chunks."""
        return self._first[item], self._step[item]


def _explain_places(objects: _Integers, starts: _Integers, lengths: _Integers, sizes: _Integers) -> str:
    """Return how items' bytes are beyond their objects, or overlap; empty if they do not."""
    if (objects >= len(sizes)).any():
        return "an item is in an unknown object"
    if ((starts < 0) | (starts > sizes[objects] - lengths)).any():
        return "an item's bytes are beyond the end of its object"
    filled = np.flatnonzero(lengths)
    order = filled[np.lexsort((starts[filled], objects[filled]))]
    same = np.diff(objects[order]) == 0
    if (same & ((starts + lengths)[order][:-1] > starts[order][1:])).any():
        return "two items contain the same byte of an object"
    return ""


def _paths(planned: object) -> dict[str, list[str | int]] | None:
    """Return the data of torch's own planner: the path of keys and indices of each name in the nested state."""
    if planned is None:
        return None
    if not isinstance(planned, dict):
        raise Unusable(_FOREIGN)
    try:
        return {_require_str(name): list(_parse_path(path)) for name, path in planned.items()}
    except TypeError:
        raise Unusable(_FOREIGN) from None


# -- and back ----------------------------------------------------------------------------------------------------------


def decode(committed: CommittedCheckpoint, url: str) -> Metadata:
    """Return the metadata in an untrusted index; its ``storage_data`` is a ``StoredItems``.

    Reads names and shapes. Chunks are made, and their locations read, when they are asked for.
    """
    try:
        items = StoredItems(committed, url)
        return Metadata(items.state, items.paths, items)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RuntimeError, RecursionError) as error:
        raise CheckpointError(f"the index describes invalid tensors: {error!r:.200}", url=url) from None


class FoundItem(NamedTuple):
    """Item's object and place, and its chunk's dtype and shape."""

    of: Object
    location: ItemLocation
    dtype: torch.dtype | None  # None for bytes
    sizes: tuple[int, ...]


class StoredItems:
    """Items that the index of a checkpoint describes."""

    def __init__(self, committed: CommittedCheckpoint, url: str) -> None:
        self._committed = committed
        self._url = url
        columns = committed.columns
        _check_lengths(columns)
        text, *numbers = columns.read("text", "kinds", "dimensions", "boxed", "sizes", "steps")
        document = _parse_text(text.tobytes())
        kinds, dimensions, boxed, sizes, steps = (each.tolist() for each in numbers)
        self._names = [_require_str(name) for name in document["names"]]
        self._dtypes = [_parse_dtype(name) for name in document["dtypes"]]
        self.paths = None if document["paths"] is None else {k: _parse_path(v) for k, v in document["paths"].items()}
        self.state: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
        self._lengths: dict[str, int] = {}  # of items that are bytes
        self._box_starts = list(accumulate((2 * n * d for n, d in zip(boxed, dimensions, strict=True)), initial=0))
        at, counts = 0, []
        for number in range(len(self._names)):
            stop = at + dimensions[number]
            counts.append(self._add(number, kinds[number], (sizes[at:stop], steps[at:stop]), boxed[number]))
            at = stop
        if len(self.state) != len(self._names) or len(kinds) != len(self._names) or at != len(sizes):
            raise ValueError("two items have the same name, or one has none")
        if sum(counts) != columns.lengths["rows"] or self._box_starts[-1] != columns.lengths["boxes"]:
            raise ValueError("the number of chunks differs from that of rows")
        self._groups = _RowGroups(np.array(counts, np.int64))
        self._items = {name: number for number, name in enumerate(self._names)}

    def _add(self, number: int, kind: int, shape: tuple[list[int], list[int]], boxed: int) -> int:
        """Add an item, and return the number of its chunks."""
        size, steps = map(tuple, shape)
        name, most = self._names[number], self._committed.columns.lengths["rows"]
        if elements(size) is None or min((*size, boxed), default=0) < 0 or min(steps, default=1) < 1:
            raise ValueError(f"{name!r:.80} has an impossible shape")
        if kind == _BYTES:
            (self._lengths[name],) = size
            self.state[name] = BytesStorageMetadata()
            return 1
        count = boxed or count_cells(size, steps)
        if count > most:
            raise ValueError(f"{name!r:.80} has more chunks than rows")
        chunks = StoredChunks(size, steps, count, partial(self._load_boxes, number) if boxed else None)
        properties = TensorProperties(self._dtypes[kind])
        self.state[name] = TensorStorageMetadata(properties, torch.Size(size), chunks)  # type: ignore[arg-type]  # torch says list
        return count

    @cached_property
    def _all_boxes(self) -> _Integers:
        (found,) = self._committed.columns.read("boxes")
        return found

    def _load_boxes(self, number: int) -> _Integers:
        """Return the boxes of a tensor; refuse holes and overlaps: torch would silently keep old values there."""
        name = self._names[number]
        stored = self.state[name]
        assert isinstance(stored, TensorStorageMetadata)  # noqa: S101  tells the type checker what _add has seen
        size = tuple(stored.size)
        boxes = self._all_boxes[self._box_starts[number] : self._box_starts[number + 1]]
        boxes = boxes.reshape(len(stored.chunks), 2, len(size))
        refuse_untiled(name, size, explain_holes(size, boxes), self._url)
        return boxes

    def find(self, indexes: Sequence[MetadataIndex]) -> list[FoundItem]:
        """Return the place of each item; reads their rows, and the digests of their objects, and sends a HEAD for each.

        Raises ``CheckpointError`` for an item that the checkpoint lacks, or that has an impossible place.
        """
        try:
            places = [self._locate(index) for index in indexes]
        except (KeyError, ValueError) as error:
            raise CheckpointError(f"the checkpoint does not record the location of {error}", url=self._url) from None
        if not places:
            return []
        numbers, first, which = np.unique([row for row, *_ in places], return_index=True, return_inverse=True)
        rows = self._read_rows(numbers)
        objects, starts = rows["object"].astype(np.int64), rows["start"].astype(np.int64)
        lengths = np.array([places[each][1] for each in first.tolist()], np.int64)
        sizes = self._committed.manifest.indexed
        if problem := _explain_places(objects, starts, lengths, np.array(list(sizes.values()), np.int64)):
            raise CheckpointError(f"the index describes invalid tensors: {problem}", url=self._url)
        names = list(sizes)
        found = self._committed.objects(sorted({names[each] for each in objects.tolist()}))
        result = []
        for at, (_, length, dtype, shape) in zip(which.tolist(), places, strict=True):
            location = ItemLocation(names[objects[at]], int(starts[at]), length)
            result.append(FoundItem(found[location.name], location, dtype, shape))
        return result

    def _locate(self, index: MetadataIndex) -> tuple[int, int, torch.dtype | None, tuple[int, ...]]:
        """Return the row of an item's chunk, and its length, dtype and shape."""
        number = self._items[index.fqn]
        row, step = self._groups.rows_of(number)
        stored = self.state[index.fqn]
        if not isinstance(stored, TensorStorageMetadata):
            return row, self._lengths[index.fqn], None, ()
        chunks, dtype = stored.chunks, stored.properties.dtype
        assert isinstance(chunks, StoredChunks)  # noqa: S101  see _add
        offsets = index.offset or ()
        chunk = chunks.number_of(offsets)
        sizes = chunks.sizes_at(chunk, offsets)
        return row + chunk * step, prod(sizes) * dtype.itemsize, dtype, sizes

    def _read_rows(self, numbers: _Integers) -> Column:
        """Return rows, whose numbers ascend; nearby rows are read together."""
        breaks = np.flatnonzero(np.diff(numbers) > _GAP_ROWS) + 1
        parts = np.split(numbers, breaks)
        ranges = [("rows", int(part[0]), int(part[-1]) + 1) for part in parts]
        found = self._committed.columns.read_ranges(ranges)
        return np.concatenate([rows[part - part[0]] for part, rows in zip(parts, found, strict=True)])


def _check_lengths(columns: IndexColumns) -> None:
    """Raise ``ValueError`` before columns are read that take more memory than a save may fill."""
    lengths = columns.lengths
    same = {lengths[name] for name in ("kinds", "dimensions", "boxed")}
    if len(same) != 1 or max(same) > MOST_MANIFEST_VALUES or lengths["text"] > MOST_BYTES:
        raise ValueError("too many items, or columns of different lengths")
    if lengths["sizes"] != lengths["steps"] or lengths["sizes"] > MOST_MANIFEST_VALUES:
        raise ValueError("too many dimensions, or columns of different lengths")


def _parse_text(raw: bytes) -> Any:  # noqa: ANN401  any JSON
    check_value_count(raw, MOST_MANIFEST_VALUES)
    document = json.loads(raw)
    if not all(isinstance(document[name], list) for name in ("names", "dtypes")):
        raise TypeError("names and dtypes must be lists")
    return document


def _parse_dtype(name: object) -> torch.dtype:
    dtype = getattr(torch, _require_str(name), None)
    if not isinstance(dtype, torch.dtype) or not is_plain_layout(dtype, torch.strided):
        raise ValueError(f"this version of torch does not have the dtype {name!r:.40}")
    return dtype


def _parse_path(value: object) -> tuple[str | int, ...]:
    if not isinstance(value, list | tuple) or not all(type(each) in (str, int) for each in value):
        raise TypeError(f"a path must be a list of str and int, got {value!r:.80}")
    return tuple(value)


def _require_str(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a str, got {value!r:.80}")
    return value


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
