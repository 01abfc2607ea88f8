"""Chunks of LitData, which an index.json names and describes: a sample is the leaves of a tree. Pure.

Format: ``litdata/streaming/writer.py`` and ``framed_zstd.py`` of LitData 0.2.76. A chunk is the number of samples, the
first byte of each and the end of the last (uint32 all), and the samples. A sample is the size of each leaf, a uint32
each, and then the leaves. zstd compresses whole chunks, frames of several samples, or each sample.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from penstock.data.shards.compressed import whole_file
from penstock.data.shards.format import (
    Ask,
    Extents,
    Fields,
    InflatedUnit,
    UnitFormat,
    Units,
    extents_of,
    run_walk,
    unit_extents,
)
from penstock.data.shards.litdata_columns import MAGIC, Rows, decoder, read_rows
from penstock.data.shards.mds import ColumnFormat
from penstock.data.shards.mds_columns import MDSColumn, as_text, as_view, refusal
from penstock.data.unpacking import inflate_file
from penstock.errors import Damaged, Unsupported, Unusable, add_article
from penstock.schema import COUNT, check_json, read_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.data.shards.format import UnitPiece, Walk
    from penstock.data.shards.mds_columns import Decoder

HEAD_BYTES = 12  # that say whether a chunk has rows in Arrow

_FIRST_BYTES = 16 << 10  # of the first request, which has the header of most chunks
_MOST_NAME = 1 << 12
_WHAT = "the index.json of LitData's chunks"
_INDEX = {
    "config": {"compression": (str, None), "data_format": [str], "data_spec": str},
    "chunks": [{"filename": str, "chunk_bytes": COUNT, "chunk_size": COUNT}],
}
_FRAMED = struct.Struct("<8sHHIII")  # magic, version, flags, samples, samples of a frame, frames
_MAGIC = b"LDFZ01\0\0"
_FRAME = np.dtype([("first", "<u4"), ("count", "<u4"), ("start", "<u8"), ("size", "<u4"), ("raw", "<u4")])
# Serializers of what rows in Arrow hold.
_IN_ROWS = {"bytes", "str", "int", "float", "bool", "json"}


class NamedChunk(NamedTuple):
    """A chunk that index.json names: its file, its bytes (-1: not stated), and its samples."""

    name: str
    size: int
    samples: int


@dataclass(frozen=True, slots=True)
class _LitDataChunks(ColumnFormat):
    """Arguments and leaves of LitData's chunks."""

    packed: str = ""

    most_walks: ClassVar[int] = 32
    # What each value of ``packed`` compresses; empty: nothing.
    levels: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if self.packed not in self.levels:
            raise Unusable(f"packed must be one of {self.levels}, got {self.packed!r}")
        ColumnFormat.__post_init__(self)

    @property
    def coder(self) -> Decoder:
        return decoder


@dataclass(frozen=True, slots=True)
class LitDataFormat(_LitDataChunks):
    """Chunks of LitData whose samples have separate bytes: ``sample["label"]`` is the value of a key.

    Values of nested dicts and lists are named by their path, ``"meta.width"`` and ``"boxes.0"``, those of a tuple
    ``"0"`` and ``"1"``. Encoded images, audio, video and files are bytes; ``pil`` is the array of its pixels; tensors
    are arrays. A sample that is itself bytes or a text has no fields. Pickles are refused, as they can run any code:
    leave them out with ``fields``.

    Args:
        fields: Names of the values to take; empty: all. A single name as a str, of bytes or texts: samples are these.
        columns: Name and serializer of each value, as index.json has them.
        packed: ``"sample"``: each sample is compressed with zstd.
    """

    name: ClassVar[str] = "litdata"
    suffixes: ClassVar[tuple[str, ...]] = ()
    levels: ClassVar[tuple[str, ...]] = ("", "sample")

    def walk(self, size: int) -> Walk:
        return _walk(size)

    def sample(self, data: memoryview) -> Fields | memoryview:
        return self.made(inflate_file(data) if self.packed else data)


@dataclass(frozen=True, slots=True)
class CompressedLitDataFormat(_LitDataChunks, UnitFormat):
    """Chunks of LitData that zstd compresses as a whole, or in frames of several samples; and those of rows in Arrow.

    A chunk or frame is read and inflated at once, to at most 2 GiB (``PENSTOCK_UNPACKED_SIZE``), and kept until its
    last sample was delivered. Needs ``penstock[parquet]``. Arguments are those of ``LitDataFormat``, but ``packed`` is
    the part that is compressed, ``"chunk"`` or ``"batch"``; or ``"rows"``: chunks of rows in Arrow.
    """

    name: ClassVar[str] = "litdata.zst"
    suffixes: ClassVar[tuple[str, ...]] = ()
    most_walks: ClassVar[int] = 4
    levels: ClassVar[tuple[str, ...]] = ("batch", "chunk", "rows")

    packed: str = "batch"

    def walk(self, size: int) -> Walk:
        if self.packed == "batch":
            return (yield from _walk_frames(size))
        if self.packed == "rows":
            sizes, unpacked = (yield from _walk(size, rows=True)).sizes, size
            # Rows have no bytes of their own.
            sizes = sizes if sizes.all() else np.full_like(sizes, -(-size // len(sizes)))
        else:
            raw = inflate_file((yield from whole_file(size)))
            sizes, unpacked = np.diff(_places(raw)), len(raw)
        return unit_extents(sizes, unpacked, size)

    def decode(self, pieces: list[UnitPiece], first: int) -> Any:  # noqa: ANN401, ARG002  see ``UnitFormat.decode``
        if self.packed == "rows":
            raw, places = pieces[0].data, _places(pieces[0].data, rows=True)
            if places[0] < places[-1]:
                return InflatedUnit(raw, places)
            names = [each.name for each in self.columns]
            return read_rows(raw, places, names, self.wanted or names)
        raw = inflate_file(pieces[0].data)
        return InflatedUnit(raw, _places(raw) if self.packed == "chunk" else [*_sum_leaves(raw, len(self.columns))])

    def row(self, unit: Any, number: int) -> Fields | memoryview:  # noqa: ANN401  an ``InflatedUnit``
        if isinstance(unit, Rows):
            values = unit.row(number)
            if not isinstance(self.fields, str):
                return Fields("", values)
            if (value := values[self.fields]) is None:
                raise Damaged(f"{self.fields!r} has no value in row {number} of a chunk: pass fields=(…,)")
            return memoryview(value.encode()) if isinstance(value, str) else value
        return self.made(unit.sample(number))


def described_chunks(data: bytes, form: ColumnFormat) -> tuple[list[NamedChunk], ColumnFormat]:
    """Return the chunks that an index.json names, in order, and their format, with the ``fields`` of ``form``."""
    index = read_json(data, {"config": dict}, _WHAT)
    config = index["config"]
    _check_config(config)
    check_json(index, _INDEX, _WHAT)
    try:
        tree = read_json(config["data_spec"], [object, dict], "the description of LitData's samples")[1]
        names = [*_leaves(tree)]
        columns = tuple(MDSColumn(*each, None) for each in zip(names, config["data_format"], strict=True))
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise Damaged(f"cannot read {_WHAT}: data_spec and data_format do not fit ({error!r:.200})") from None
    check_json(names, [str], "the names of LitData's values")
    packed = (config.get("compression_level") or "chunk") if config["compression"] else ""
    found = [_parse_chunk_entry(each, exact=packed != "chunk") for each in index["chunks"]]
    files = [each.name for each in found]
    if len(set(files)) < len(files):
        raise Damaged(f"index.json names {next(name for at, name in enumerate(files) if name in files[:at])!r} twice")
    if len(set(names)) < len(names):
        raise Damaged(f"two values have the same name: {names!r:.200}")
    kind = next((each for each in (LitDataFormat, CompressedLitDataFormat) if packed in each.levels), None)
    if kind is None:
        raise Unsupported(f"the chunks have an unsupported compression: {packed!r}")
    alone = tree["type"] is None and not refusal(columns[0].encoding, decoder)
    bare = alone and decoder(columns[0].encoding) in (as_view, as_text)
    return found, kind(form.fields or (names[0] if bare else ()), columns, packed)


def form_of_rows(form: ColumnFormat, head: bytes | memoryview) -> ColumnFormat:
    """Return the format for rows in Arrow if the first bytes of a chunk declare them, else ``form``."""
    _, first, second = struct.unpack("<3I", head)
    return CompressedLitDataFormat(form.fields, form.columns, "rows") if first == second else form


def may_have_rows(form: ColumnFormat) -> bool:
    """Return whether LitData writes chunks of these values as rows in Arrow, where it has pyarrow."""
    return isinstance(form, LitDataFormat) and not form.packed and {each.encoding for each in form.columns} <= _IN_ROWS


def _check_config(config: dict[str, Any]) -> None:
    if config.get("encryption"):
        raise Unsupported("the chunks are encrypted: decrypt them, and write them again")
    loader = config.get("item_loader") or "PyTreeLoader"
    if loader != "PyTreeLoader":
        raise Unsupported(
            f"the chunks are for LitData's {loader}, and only those for PyTreeLoader are read: ps.TokenDataset reads "
            "files of tokens, and ps.MapDataset.from_shards Parquet files"
        )
    compression = config.get("compression")
    if compression and str(compression).partition(":")[0] != "zstd":
        raise Unsupported(f"the chunks have an unsupported compression, {compression!r}: write them with zstd")


def _leaves(spec: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield the names of the leaves of a tree: the keys and numbers on the way to each."""
    kind, children = spec["type"], spec["children_spec"]
    if kind is None:
        yield path or "0"
        return
    if kind in ("builtins.dict", "collections.OrderedDict", "collections.defaultdict"):
        keys = json.loads(spec["context"])
        # A defaultdict has its factory before its keys.
        keys = keys[1] if kind == "collections.defaultdict" else keys
    elif kind in ("builtins.tuple", "builtins.list"):
        keys = range(len(children))
    else:
        raise Unsupported(f"samples must be nested dicts, lists and tuples, got {add_article(kind)}")
    for key, child in zip(keys, children, strict=True):
        yield from _leaves(child, f"{path}.{key}" if path else str(key))


def _parse_chunk_entry(chunk: dict[str, Any], *, exact: bool) -> NamedChunk:
    name, size, samples = chunk["filename"], chunk["chunk_bytes"], chunk["chunk_size"]
    if not 0 < len(name) < _MOST_NAME or "\0" in name or "/" in name or name == "..":
        raise Damaged(f"index.json names {name!r:.200}, which cannot be a file in its folder")
    return NamedChunk(name, size if exact else -1, samples)


def _walk(size: int, *, rows: bool = False) -> Walk:
    """Find the samples of a chunk that is not compressed, by its header; rows in Arrow have no bytes."""
    if size < 8:  # noqa: PLR2004  the number of samples, and the end of none
        raise Damaged(f"{size} bytes are not a chunk of LitData")
    view = yield Ask(0, min(size, _FIRST_BYTES))
    if view[:8] == _MAGIC:
        raise Damaged("the chunk is compressed in frames, but index.json does not declare this: write the index again")
    count = int.from_bytes(view[:4], "little")
    end = 8 + 4 * count
    if end > size:
        raise Damaged(f"a chunk of {size} bytes cannot have {count} samples")
    if end > len(view):
        view = memoryview(bytes(view) + (yield Ask(len(view), end)))
    places = np.frombuffer(view[4:end], "<u4").astype(np.int64)
    stop, arrow = size, False
    if places[-1] < size:
        last = bytes(view if len(view) == size else (yield Ask(max(len(view), size - len(MAGIC)), size)))
        if last.endswith(MAGIC):
            stop = int(places[-1])
            arrow = stop == end and count > 0
            if arrow and not rows:
                raise Unsupported("the chunk has Arrow rows, but the first chunk has none: write the samples again")
    steps = np.diff(places)
    if places[0] != end or places[-1] != stop or (steps if arrow else steps <= 0).any():
        raise Damaged(f"the offsets of {count} samples do not ascend from byte {end} to the end at byte {size}")
    return extents_of(places[:-1].tolist(), places[1:].tolist())


def _places(data: memoryview, *, rows: bool = False) -> list[int]:
    """Return the first byte of each sample of an inflated chunk, and the end of the last."""
    found = run_walk(_walk(len(data), rows=rows), data)
    return [*found.offsets.tolist(), int((found.offsets + found.sizes)[-1]) if len(found.offsets) else len(data)]


def _walk_frames(size: int) -> Walk:
    """Find the samples of a chunk of compressed frames."""
    if size < _FRAMED.size:
        raise Damaged(f"{size} bytes are not a chunk of frames of LitData")
    view = yield Ask(0, min(size, _FIRST_BYTES))
    magic, version, _, count, _, frames = _FRAMED.unpack_from(view)
    if magic != _MAGIC or version != 1:
        raise Damaged("the chunk does not begin like a LitData chunk with frames: it or index.json is outdated")
    middle = _FRAMED.size + 4 * (count + 1)
    end = middle + _FRAME.itemsize * frames
    if end > size:
        raise Damaged(f"a chunk of {size} bytes cannot have {count} samples in {frames} frames")
    if end > len(view):
        view = memoryview(bytes(view) + (yield Ask(len(view), end)))
    places = np.frombuffer(view[_FRAMED.size : middle], "<u4").astype(np.int64)
    table = np.frombuffer(view[middle:end], _FRAME)
    first, counts, starts, sizes, raw = (table[name].astype(np.int64) for name in table.dtype.names or ())
    stops = starts + sizes
    whole = (
        (np.cumsum(counts) - counts == first).all()
        and counts.sum() == count
        and (counts > 0).all()
        and np.array_equal(starts, np.concatenate(([end], stops[:-1])))
        and (stops[-1] if frames else end) == size
        and (np.diff(places) > 0).all()
        and np.array_equal(places[np.append(first, count)], np.concatenate(([0], np.cumsum(raw))))
    )
    if not whole:
        raise Damaged(f"the table of {frames} frames does not fit {count} samples in {size} bytes")
    units = Units(first, raw, np.arange(1, frames + 1, dtype=np.int64), starts, stops)
    return Extents(np.arange(count, dtype=np.int64), np.diff(places), units=units)


def _sum_leaves(data: memoryview, leaves: int) -> Iterator[int]:
    """Yield the first byte of each sample of an inflated frame, found by leaves' sizes, and the last end."""
    heads, at = struct.Struct(f"<{leaves}I"), 0
    yield at
    while leaves and at < len(data):
        at += heads.size + sum(heads.unpack_from(data, at))
        yield at
    if at != len(data):
        raise Damaged(f"the samples of a frame end at byte {at} of {len(data)}")
