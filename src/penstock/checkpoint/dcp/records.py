"""Conversion between a distributed checkpoint's metadata and JSON for its manifest; runs no code of a file."""

from __future__ import annotations

import json
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from penstock.checkpoint.integrity import (
    BLOCK_BYTES,
    DIGEST_BYTES,
    MOST_BYTES,
    MOST_MANIFEST_VALUES,
    BlockChecksums,
    elements,
)
from penstock.errors import CheckpointError, Unusable, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch.distributed.checkpoint.planner import SavePlan, WriteItem

    _Said = dict[str, int]
    _Listed = list[tuple[str, BlockChecksums]]

KIND = "dcp"
_FOREIGN = 'this planner has additional data, which only torch\'s layout can store: StorageWriter(url, layout="torch")'


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


def encode(metadata: Metadata, locations: Mapping[MetadataIndex, ItemLocation]) -> dict[str, Any]:
    """Return the ``content`` of a manifest; raise ``Unusable`` if JSON cannot hold the planner's data, or a name."""
    numbers: dict[str, int] = {}
    for location in locations.values():
        numbers.setdefault(location.name, len(numbers))
    described = {
        index: {"object": numbers[location.name], "start": location.start} for index, location in locations.items()
    }
    lengths = {index: location.length for index, location in locations.items()}
    state = [_describe_item(name, each, described, lengths) for name, each in metadata.state_dict_metadata.items()]
    return {"objects": list(numbers), "state": state, "paths": _paths(metadata.planner_data)}


def decode(content: Mapping[str, Any], objects: Mapping[str, BlockChecksums], url: str) -> Metadata:
    """Return the metadata in the ``content`` of an untrusted manifest; ``storage_data`` maps to ``ItemLocation``."""
    try:
        locations: dict[MetadataIndex, ItemLocation] = {}
        listed, described = [(name, objects[name]) for name in content["objects"]], content["state"]
        state = {_require_str(each["name"]): _parse_storage(each, listed, locations) for each in described}
        if not isinstance(described, list) or len(state) != len(described):
            raise ValueError("two items have the same name")
        paths = (
            None if content["paths"] is None else {name: _parse_path(each) for name, each in content["paths"].items()}
        )
        _check_apart(locations.values())
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RuntimeError) as error:
        raise CheckpointError(f"the manifest describes invalid tensors: {error!r:.200}", url=url) from None
    return Metadata(state, paths, locations)


def check_chunks(metadata: Metadata, url: str) -> None:
    """Refuse chunks that lack or repeat elements of a tensor: torch would silently keep old values there."""
    for name, stored in metadata.state_dict_metadata.items():
        if not isinstance(stored, TensorStorageMetadata):
            continue
        try:
            problem = _explain_untiled(tuple(stored.size), stored.chunks)
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            problem = f"are invalid: {error!r:.80}"
        if problem:
            raise CheckpointError(f"the chunks of tensor {name!r:.80} of {list(stored.size)!s:.80} {problem}", url=url)


def _explain_untiled(size: tuple[int, ...], chunks: Sequence[ChunkStorageMetadata]) -> str:
    """Return how chunks fail to contain each element of a tensor once; empty if they do."""
    volume = elements(size)
    if volume is None or min(size, default=0) < 0:
        return "have an impossible number of elements"
    if any(len(each.offsets) != len(size) or len(each.sizes) != len(size) for each in chunks):
        return "have another number of dimensions"
    numbers = chain.from_iterable((*each.offsets, *each.sizes) for each in chunks)
    boxes = np.fromiter(numbers, np.int64, 2 * len(size) * len(chunks)).reshape(len(chunks), 2, len(size))
    offsets, sizes = boxes[:, 0], boxes[:, 1]
    if (boxes < 0).any() or (offsets > size - sizes).any():
        return "reach beyond it"
    filled = boxes[(sizes > 0).all(axis=1)]
    if not (_is_grid(size, filled) or _apart(filled)):
        return "overlap"
    return "" if filled[:, 1].prod(axis=1).sum() == volume else "leave out some of its elements"


def _is_grid(size: tuple[int, ...], boxes: np.ndarray[Any, np.dtype[np.int64]]) -> bool:
    """Return whether chunks are all cells of a grid over a tensor, each once, as from a mesh of ranks."""
    cells = np.zeros(len(boxes), np.int64)
    count = 1
    for dimension, most in enumerate(size):
        starts, which = np.unique(boxes[:, 0, dimension], return_inverse=True)
        lengths = np.diff(starts, append=most)
        if not len(starts) or starts[0] or (boxes[:, 1, dimension] != lengths[which]).any():
            return False
        cells = cells * len(starts) + which
        count *= len(starts)
    return count == len(boxes) == len(np.unique(cells))


def _apart(boxes: np.ndarray[Any, np.dtype[np.int64]]) -> bool:
    """Return whether no two chunks overlap; sweeps along the dimension with the most different offsets."""
    if not boxes.size:
        return len(boxes) <= 1
    along = max(range(boxes.shape[2]), key=lambda dimension: len(np.unique(boxes[:, 0, dimension])))
    lows, highs = boxes[:, 0], boxes.sum(axis=1)
    active = np.zeros(0, np.int64)
    for number in np.argsort(boxes[:, 0, along], kind="stable"):
        active = active[highs[active, along] > lows[number, along]]
        if ((lows[active] < highs[number]) & (lows[number] < highs[active])).all(axis=1).any():
            return False
        active = np.append(active, number)
    return True


def check_size(plans: Sequence[SavePlan]) -> None:
    """Raise ``Unusable``, before hours of the ranks' work, if their manifest could be larger than a reader accepts."""
    values = text_bytes = data_bytes = count = 0
    names: dict[str, int] = {}
    for plan in plans:
        for name, path in plan.planner_data.items() if isinstance(plan.planner_data, dict) else ():
            names[name] = len(path)
        for item in plan.items:
            names.setdefault(item.index.fqn, 0)
            sizes = item.tensor_data.chunk.sizes if item.tensor_data is not None else torch.Size(())
            count += 1
            values += 2 * (len(sizes) or 1) + 5
            # No number of it has more than 13 digits: that is 10 TB in one rank's object.
            text_bytes += 28 * len(sizes) + _CHUNK_BYTES
            data_bytes += _planned_bytes(item)
    values += 8 * len(plans) + sum(2 * length + 20 for length in names.values())
    # A path repeats its name, and a key of one character takes four.
    text_bytes += sum(4 * len(json.dumps(name)) + 200 for name in names) + 300 * len(plans)
    text_bytes += data_bytes // BLOCK_BYTES * DIGEST_BYTES * 4 // 3
    if values > MOST_MANIFEST_VALUES or text_bytes > MOST_BYTES:
        raise Unusable(
            f"cannot save {count:,} parts of tensors in one checkpoint: its manifest could exceed {MOST_BYTES:,} bytes "
            f"or {MOST_MANIFEST_VALUES:,} values; save parts of the state at separate URLs, or use fewer shards"
        )


_CHUNK_BYTES = 70  # of a chunk's JSON, without its offsets and sizes


def _planned_bytes(item: WriteItem) -> int:
    data = item.tensor_data
    return 0 if data is None else data.chunk.sizes.numel() * data.properties.dtype.itemsize


# -- to JSON -----------------------------------------------------------------------------------------------------------


def _describe_item(
    name: object, stored: object, described: Mapping[MetadataIndex, _Said], lengths: Mapping[MetadataIndex, int]
) -> dict[str, Any]:
    if not isinstance(name, str):
        raise Unusable(f"names must be str, got {name!r}")
    if not isinstance(stored, TensorStorageMetadata):
        index = MetadataIndex(name)
        return {"name": name, "length": lengths[index], **described[index]}
    chunks = [
        {"offsets": list(each.offsets), "sizes": list(each.sizes), **described[MetadataIndex(name, each.offsets)]}
        for each in stored.chunks
    ]
    return {"name": name, "dtype": _name(stored.properties.dtype), "size": list(stored.size), "chunks": chunks}


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


def _parse_storage(
    described: Mapping[str, Any], objects: _Listed, locations: dict[MetadataIndex, ItemLocation]
) -> TensorStorageMetadata | BytesStorageMetadata:
    name = described["name"]
    if "dtype" not in described:
        locations[MetadataIndex(name)] = _location(described, described["length"], objects)
        return BytesStorageMetadata()
    dtype = getattr(torch, _require_str(described["dtype"]), None)
    if not isinstance(dtype, torch.dtype) or not is_plain_layout(dtype, torch.strided):
        raise ValueError(f"{name!r} has a dtype that this version of torch does not have: {described['dtype']!r:.40}")
    size = _naturals(described["size"])
    chunks = []
    for each in described["chunks"]:
        offsets, sizes = _naturals(each["offsets"]), _naturals(each["sizes"])
        if any(low + long > most for low, long, most in zip(offsets, sizes, size, strict=True)):
            raise ValueError(f"{name!r} of {list(size)} has a chunk of {list(sizes)} at {list(offsets)}")
        count = elements(sizes)
        if count is None:
            raise ValueError(f"{name!r} has a chunk with too many elements")
        locations[MetadataIndex(name, offsets)] = _location(each, count * dtype.itemsize, objects)
        chunks.append(ChunkStorageMetadata(offsets, sizes))
    return TensorStorageMetadata(TensorProperties(dtype), size, chunks)


def _location(described: Mapping[str, Any], length: int, objects: _Listed) -> ItemLocation:
    number, start, length = _naturals([described["object"], described["start"], length])
    name, checksums = objects[number]
    if start + length > checksums.size:
        raise ValueError(
            f"bytes {start} to {start + length} are beyond the end of {name}, which has {checksums.size} bytes"
        )
    return ItemLocation(name, start, length, checksums)


def _check_apart(locations: Iterable[ItemLocation]) -> None:
    ranges = sorted((each.name, each.start, each.length) for each in locations if each.length)
    for (name, start, length), (other, following, _) in pairwise(ranges):
        if name == other and start + length > following:
            raise ValueError(f"two items contain byte {following} of {name}")


def _naturals(value: object) -> torch.Size:
    if not isinstance(value, list) or not all(type(each) is int and each >= 0 for each in value):
        raise TypeError(f"sizes must be a list of integers from 0, got {value!r:.80}")
    return torch.Size(value)


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
