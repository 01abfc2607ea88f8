"""Chunks of LitData, which an index.json names and describes: a sample is the leaves of a tree. Pure.

Format: ``litdata/streaming/writer.py`` and ``framed_zstd.py`` of LitData 0.2.76. A chunk is the number of samples, the
first byte of each and the end of the last (uint32 all), and the samples. A sample is the size of each leaf, a uint32
each, and then the leaves. zstd compresses whole chunks, frames of several samples, or each sample.

Leaves are decoded as ``serializers.py`` does; serializers that can run code are refused. Dicts of bytes, texts,
numbers, lists and dicts are rows in Arrow (``append_arrow_row_footer`` of ``item_loader.py``): behind the offsets of a
chunk, which are all equal, are an Arrow file (or stream), its size, a uint32, and a magic.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from json import loads
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from penstock.data.parquet import libraries
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
from penstock.data.shards.mds import ColumnFormat
from penstock.data.shards.mds_columns import MDSColumn, as_image, as_text, as_view, check_count, list_parts, refusal
from penstock.data.unpacking import check_unpacked, inflate_file
from penstock.errors import Damaged, PenstockError, Unsupported, Unusable, add_article
from penstock.schema import COUNT, check_json, read_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.data.shards.format import UnitPiece, Walk
    from penstock.data.shards.mds_columns import Decode, Decoder

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


# LitData's numbers of element types. Those of torch have synonyms, and bfloat16, 10, which NumPy lacks.
_NUMPY = dict(enumerate(("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", "?")))
_TORCH = {number: kind for kind, numbers in {
    "f4": (0, 1), "f8": (2, 3), "c8": (4, 5), "c16": (6, 7), "f2": (8, 9), "u1": (11,), "i1": (12,),
    "i2": (13, 14), "i4": (15, 16), "i8": (17, 18), "?": (19,), "u2": (20,),
}.items() for number in numbers}  # fmt: skip


def _find_dtype(number: int, kinds: dict[int, str]) -> np.dtype[Any]:
    if number not in kinds:
        raise Unsupported(f"has elements of LitData's type {number}, which NumPy lacks")
    return np.dtype(f"<{kinds[number]}")


def _array(kinds: dict[int, str], order: str, data: memoryview) -> NDArray[Any]:
    """Return the array after its element type, number of axes and shape: uint32 each, in byte order ``order``."""
    number, axes = struct.unpack_from(f"{order}II", data)
    shape = struct.unpack_from(f"{order}{axes}I", data, 8)
    found = np.frombuffer(data[8 + 4 * axes :], _find_dtype(number, kinds))
    check_count(prod(shape), found.size)
    # A copy may be written to, is aligned, and does not keep the block that was read.
    return found.reshape(shape).copy()


def _flat(kind: np.dtype[Any], data: memoryview) -> NDArray[Any]:
    return np.frombuffer(data, kind).copy()


def _scalar(form: str, data: memoryview) -> Any:  # noqa: ANN401  a number
    (found,) = struct.unpack(form, data)
    return found


class _Nested:
    """Lists and dicts as LitData writes them: a type byte, then numbers of 32 bits.

    The numbers are not trusted: each element takes at least a byte, of which there are as many as the sample has.
    """

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def value(self) -> Any:  # noqa: ANN401  any value of JSON
        tag = self.number("<B")
        if tag in _SCALARS:
            return _SCALARS[tag](self)
        count = self.number("<I")
        if tag == 0:
            return loads(as_text(self._bytes(count)))
        if tag in (2, 3, 4):
            kind = np.dtype(("<i8", "<f8", "?")[tag - 2])
            return np.frombuffer(self._bytes(count * kind.itemsize), kind).tolist()
        if tag == 1:
            return [self.text() for _ in range(count)]
        if tag == 5:  # noqa: PLR2004  a dict
            return {self.text(): self.value() for _ in range(count)}
        if tag == 6:  # noqa: PLR2004  dicts with the same keys
            keys = [self.text() for _ in range(self.number("<I"))]
            if not keys:
                raise Damaged("its records have no keys")
            return [{key: _RECORDS[self.number("<B")](self) for key in keys} for _ in range(count)]
        raise Damaged(f"it has the tag {tag}, which is unknown")

    def text(self) -> str:
        return as_text(self._bytes(self.number("<I")))

    def end(self) -> None:
        if self._at != len(self._data):
            raise Damaged(f"it ends at byte {self._at} of {len(self._data)}")

    def number(self, form: str) -> Any:  # noqa: ANN401  as ``form`` has it
        (found,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return found

    def _bytes(self, count: int) -> memoryview:
        found = self._data[self._at : self._at + count]
        if len(found) < count:
            raise Damaged(f"it declares {count} bytes at byte {self._at}, but has {len(self._data)}")
        self._at += count
        return found


_Read = Callable[[_Nested], Any]
_PLAIN: tuple[_Read, ...] = (
    _Nested.text,
    partial(_Nested.number, form="<q"),
    partial(_Nested.number, form="<d"),
    partial(_Nested.number, form="<?"),
)
# By the tags of values, and of values of records.
_SCALARS: dict[int, _Read] = dict(enumerate((*_PLAIN, lambda _: None), 7))
_RECORDS: dict[int, _Read] = dict(enumerate((lambda _: None, *_PLAIN), 16))


def _decode_nested(data: memoryview) -> Any:  # noqa: ANN401  any value of JSON
    # Older versions wrote JSON, which begins with none of the tags.
    if len(data) and data[0] > 0x20:  # noqa: PLR2004  the last byte that no text of JSON begins with
        return loads(as_text(data))
    nested = _Nested(data)
    found = nested.value()
    nested.end()
    return found


_DECODE: dict[str, Decode] = {
    **dict.fromkeys(("bytes", "jpeg", "image", "video", "audio", "file", "tiff", "tifffile"), as_view),
    **dict.fromkeys(("str", "text"), as_text),
    "bool": partial(_scalar, "<?"),
    "int": partial(_scalar, "<q"),
    "float": partial(_scalar, "<d"),
    "json": _decode_nested,
    "pil": as_image,
    "jpeg_array": lambda data: [bytes(each) for each in list_parts(data, 0)],
    "numpy": partial(_array, _NUMPY, "<"),
    "tensor": partial(_array, _TORCH, ">"),
}


@lru_cache(maxsize=256)
def decoder(encoding: str) -> Decode:
    """Return the function that decodes values of one of LitData's serializers: ``"jpeg"``, ``"no_header_numpy:9"``."""
    name, _, rest = encoding.partition(":")
    if name in ("no_header_numpy", "no_header_tensor") and rest.isdecimal() and len(rest) < 4:  # noqa: PLR2004  digits
        return partial(_flat, _find_dtype(int(rest), _NUMPY if name == "no_header_numpy" else _TORCH))
    if name in _DECODE:
        return _DECODE[name]
    if name in ("pickle", "graph"):
        raise Unsupported("is a pickle, or holds one, which can run any code when it is read")
    raise Unsupported(f"has the unsupported serializer {encoding!r}")


MAGIC = b"LDARW01\0"
_TAIL = 4 + len(MAGIC)
_FILE = b"ARROW1\0\0"  # what precedes a stream in an Arrow file


class Rows(NamedTuple):
    """The wanted values of a chunk as Arrow's arrays by name, None for a name that is missing, of each record batch.

    ``firsts`` are the numbers of their first rows.
    """

    firsts: list[int]
    columns: list[dict[str, Any]]

    def row(self, number: int) -> dict[str, Any]:
        """Return the values of row ``number`` by name: a memoryview for bytes, or any Python value."""
        at = max(at for at, first in enumerate(self.firsts) if first <= number)
        return {name: _value(column, number - self.firsts[at]) for name, column in self.columns[at].items()}


def read_rows(data: memoryview, places: Sequence[int], names: Sequence[str], wanted: Sequence[str]) -> Rows:
    """Return the wanted values in the rows of a chunk, of all that index.json ``names``.

    ``places`` has the end of the header once for each row that it states, and once more.
    """
    size = int.from_bytes(data[-_TAIL : -len(MAGIC)], "little")
    start, count = places[0], len(places) - 1
    if bytes(data[-len(MAGIC) :]) != MAGIC or start + size + _TAIL != len(data):
        raise Damaged(f"the rows in Arrow do not end where the chunk of {len(data)} bytes does")
    rows = data[start : start + size]
    try:
        batches = _batches(rows[len(_FILE) :] if rows[: len(_FILE)] == _FILE else rows)
        columns = [_columns(each.to_struct_array(), names, wanted) for each in batches]
    except PenstockError:
        raise
    except Exception as error:
        raise Damaged(f"cannot decode the rows in Arrow ({error})") from error
    firsts = [0]
    for each in batches:
        firsts.append(firsts[-1] + each.num_rows)
    if firsts[-1] != count:
        raise Damaged(f"the chunk has {firsts[-1]} rows in Arrow, but its header declares {count}")
    return Rows(firsts[:-1], columns)


def _batches(stream: memoryview) -> list[Any]:
    """Return the record batches of a stream, which are bounded before they are inflated."""
    pa, _ = libraries("the chunk")
    schema, found, unpacked = None, [], 0
    for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(pa.py_buffer(stream))):
        if message.type == "schema":
            schema = pa.ipc.read_schema(message)
        elif message.type == "record batch":
            unpacked += _unpacked_bytes(message)
            check_unpacked(unpacked, "the rows of a chunk")
            batch = pa.ipc.read_record_batch(message, schema)
            # Offsets that lead elsewhere would be followed without a check.
            batch.validate(full=True)
            found.append(batch)
        else:
            raise Unsupported(f"the Arrow rows contain an unsupported message: {message.type}")
    return found


def _unpacked_bytes(message: Any) -> int:  # noqa: ANN401  pyarrow's
    """Return the decompressed bytes of a record batch as its buffers declare; pyarrow enforces them.

    Format: ``Message.fbs`` of Arrow: the third field of a message is its header, whose third field are the buffers, and
    whose fourth says that they are compressed.
    """
    data, body = memoryview(message.metadata), memoryview(message.body)
    batch = _follow_reference(data, _field(data, _follow_reference(data, 0), 2))
    if not _field(data, batch, 3):
        return len(body)
    buffers = _follow_reference(data, _field(data, batch, 2))
    count, total = struct.unpack_from("<I", data, buffers)[0], 0
    for start, size in struct.iter_unpack("<qq", data[buffers + 4 : buffers + 4 + 16 * count]):
        stated = struct.unpack_from("<q", body, start)[0] if size else 0
        total += size if stated < 0 else stated
    return total


def _follow_reference(data: memoryview, at: int) -> int:
    """Return the place of the table, or vector, to which a reference of FlatBuffers leads."""
    return at + int(struct.unpack_from("<I", data, at)[0])


def _field(data: memoryview, table: int, number: int) -> int:
    """Return the place of a field of a table of FlatBuffers; 0 if the table lacks it."""
    layout = table - struct.unpack_from("<i", data, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", data, layout)[0]:
        return 0
    offset = struct.unpack_from("<H", data, layout + 4 + 2 * number)[0]
    return table + offset if offset else 0


def _columns(array: Any, names: Sequence[str], wanted: Sequence[str]) -> dict[str, Any]:  # noqa: ANN401  pyarrow's
    """Return the arrays of the wanted paths in an array of structs.

    A chunk may lack a value that none of its rows has, and may have values that the first sample of all had not; a
    chunk of which both are true has other names.
    """
    found = {name: _column(array, name) for name in names}
    lost = next((name for name, column in found.items() if column is None), None)
    if lost is not None:
        for path in _paths(array.type):
            if not any(f"{path}.".startswith(f"{each}.") or each.startswith(f"{path}.") for each in names):
                raise Damaged(f"the rows in Arrow have {path!r} instead of {lost!r} in index.json")
    return {name: found[name] for name in wanted}


def _paths(kind: Any, above: str = "") -> Iterator[str]:  # noqa: ANN401  pyarrow's
    pa, _ = libraries("the chunk")
    for field in kind if pa.types.is_struct(kind) else ():
        yield above + field.name
        yield from _paths(field.type, f"{above}{field.name}.")


def _column(array: Any, name: str) -> Any:  # noqa: ANN401  pyarrow's
    """Return the array of a path such as ``meta.width`` in an array of structs; None without it."""
    pa, _ = libraries("the chunk")
    if not pa.types.is_struct(array.type):
        return None
    for field, inner in zip(array.type, array.flatten(), strict=True):
        if field.name == name:
            return inner
        rest = name.removeprefix(f"{field.name}.")
        if rest != name and (found := _column(inner, rest)) is not None:
            return found
    return None


def _value(column: Any, number: int) -> Any:  # noqa: ANN401  pyarrow's
    if column is None or not (found := column[number]).is_valid:
        return None
    is_bytes = "binary" in str(column.type) and hasattr(found, "as_buffer")
    return memoryview(found.as_buffer()) if is_bytes else found.as_py()
