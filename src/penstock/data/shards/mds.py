"""MDS files, the shards of mosaicml-streaming: a sample is the values of its columns. Pure.

Format: ``streaming/base/format/mds/writer.py`` of mosaicml-streaming 0.13. A shard is the number of samples, the first
byte of each and the end of the last (uint32 all), the description of the columns in JSON, and the samples. Compressed
shards are such files in zstd or gzip, so that no sample has separate bytes.

The index.json of shards (``streaming/base/format/base/writer.py``, version 2) names them and states their columns,
sizes and hashes. Nothing in it is trusted: names cannot leave its folder.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import xxhash

from penstock.data.shards.compressed import whole_file
from penstock.data.shards.format import (
    Ask,
    Extents,
    Fields,
    FieldsFormat,
    InflatedUnit,
    UnitFormat,
    run_walk,
    unit_extents,
)
from penstock.data.shards.mds_columns import (
    MDSColumn,
    as_text,
    as_view,
    columns_of_file,
    decode_columns,
    decoder,
    fixed_size,
    refusal,
    stored,
)
from penstock.data.unpacking import inflate_file
from penstock.errors import ChecksumMismatch, Damaged, Unsupported, Unusable
from penstock.schema import COUNT, check_json, read_json
from penstock.values import switch

if TYPE_CHECKING:
    from penstock.data.shards.format import UnitPiece, Walk
    from penstock.data.shards.mds_columns import Decoder

_FIRST_BYTES = 16 << 10  # of the first request, which has the header of most shards
_CONFIG_BYTES = 4 << 10  # that most descriptions of columns have at most
_MOST_CONFIG = 16 << 20
_STALE = "index.json does not fit the shard, which {}: write the index again, or pass the URLs of the shards"


@dataclass(frozen=True, slots=True)
class ColumnFormat(FieldsFormat):
    """A format whose samples are the values of columns: their sizes, and then their bytes."""

    columns: tuple[MDSColumn, ...] = ()

    def __post_init__(self) -> None:
        FieldsFormat.__post_init__(self)
        object.__setattr__(self, "columns", columns_of_file(self.columns))
        if self.columns:
            self._check_wanted()

    def _check_wanted(self) -> None:
        encodings, single = {each.name: each.encoding for each in self.columns}, self.fields
        for name in self.wanted or encodings:
            if name not in encodings:
                raise Unusable(f"unknown column {name!r}; columns are {', '.join(encodings)}")
            if why := refusal(encodings[name], self.coder):
                raise Unsupported(f"the column {name!r} {why}: leave it out, fields=(…)")
        if isinstance(single, str) and self.coder(encodings[single]) not in (as_view, as_text):
            raise Unusable(
                f"the column {single!r} has the encoding {encodings[single]}, neither bytes nor texts: pass "
                f"fields=({single!r},), and take sample[{single!r}]"
            )

    @property
    @abstractmethod
    def coder(self) -> Decoder:
        """The function from an encoding to the function that decodes its values."""

    def made(self, data: memoryview) -> Fields | memoryview:
        """Return the wanted columns of the sample in ``data``, or the bytes of the only one."""
        values = decode_columns(data, self.columns, self.wanted, self.coder)
        if not isinstance(self.fields, str):
            return Fields("", values)
        value = values[self.fields]
        return memoryview(value.encode()) if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class _MdsShards(ColumnFormat):
    """Arguments and columns of MDS files, compressed or not."""

    stored: bool = False

    def __post_init__(self) -> None:
        switch(self.stored, "stored")
        ColumnFormat.__post_init__(self)

    @property
    def coder(self) -> Decoder:
        """The decoders of Mosaic's encodings; with ``stored``, all bytes are taken as they are."""
        return stored if self.stored else decoder

    def walk(self, size: int) -> Walk:
        return self.stated_walk(size, None)

    @abstractmethod
    def stated_walk(self, size: int, stated: Stated | None) -> Walk:
        """Find the samples of a shard as ``walk`` does, and compare it with its entry in an index.json."""

    def having(self, schema: Any) -> Self:  # noqa: ANN401  see ``ShardFormat.having``
        found = columns_of_file(schema)
        if not self.columns:
            return replace(self, columns=found)
        if self.columns != found:
            texts = [", ".join(f"{name}: {kind}" for name, kind, _ in each) for each in (found, self.columns)]
            raise Unusable(
                f"the columns {texts[0]:.200} differ from those of the shards before it, {texts[1]:.200}: make a "
                "dataset of each kind, by the URLs of its shards, and join them with ps.concat"
            )
        return self


@dataclass(frozen=True, slots=True)
class MdsFormat(_MdsShards):
    """MDS files that are not compressed: ``sample["label"]`` is the value of a column.

    Encoded images (``jpeg``, ``png``) and ``bytes`` are bytes; ``pil`` is the array of its pixels; numbers have the
    type of their column, as numpy has it; lists of images are lists of bytes. Pickles are refused, as they can run any
    code: leave their columns out with ``fields``.

    Args:
        fields: Names of the columns to take; empty: all. A single name as a str, of a column of bytes, images or
            texts: samples are its values.
        columns: Name, encoding and size of each column, which the shards agree on; found by the index.
        stored: Take the bytes of each value as they are stored, of pickles, too.
    """

    name: ClassVar[str] = "mds"
    suffixes: ClassVar[tuple[str, ...]] = (".mds",)

    def stated_walk(self, size: int, stated: Stated | None) -> Walk:
        return _walk(size, stated)

    def sample(self, data: memoryview) -> Fields | memoryview:
        return self.made(data)


@dataclass(frozen=True, slots=True)
class CompressedMdsFormat(_MdsShards, UnitFormat):
    """MDS files that are compressed with zstd or gzip: samples are those of ``MdsFormat``, and so are the arguments.

    A shard is read and inflated as a whole, to at most 2 GiB (``PENSTOCK_UNPACKED_SIZE``), and kept until its last
    sample was delivered. While shards are indexed, four are inflated at once, and their hashes compared. zstd needs
    ``penstock[parquet]``.
    """

    name: ClassVar[str] = "mds.zst"
    suffixes: ClassVar[tuple[str, ...]] = (".mds.zstd", ".mds.zst", ".mds.gz")
    most_walks: ClassVar[int] = 4

    def stated_walk(self, size: int, stated: Stated | None) -> Walk:
        data = yield from whole_file(size)
        if stated is not None and stated.packed is not None:
            check_hashes(data, stated.packed)
        raw = inflate_file(data, None if stated is None else stated.raw.size)
        if stated is not None:
            if len(raw) != stated.raw.size:
                raise Damaged(_STALE.format(f"inflates to {len(raw)} bytes, not {stated.raw.size}"))
            check_hashes(raw, stated.raw)
        found = run_walk(_walk(len(raw), stated, ()), raw)
        return unit_extents(found.sizes, len(raw), size, found)

    def decode(self, pieces: list[UnitPiece], first: int) -> Any:  # noqa: ANN401, ARG002  see ``UnitFormat.decode``
        raw = inflate_file(pieces[0].data)
        found = run_walk(_walk(len(raw), None, self.columns), raw)
        return InflatedUnit(raw, [*found.offsets.tolist(), len(raw)])

    def row(self, unit: Any, number: int) -> Fields | memoryview:  # noqa: ANN401  an ``InflatedUnit``
        return self.made(unit.sample(number))


def _walk(size: int, stated: Stated | None, columns: tuple[MDSColumn, ...] = ()) -> Walk:
    """Find the samples of a shard that is not compressed: its header says where they are.

    The description of the columns may be missing where they are known already.
    """
    if size < 8:  # noqa: PLR2004  the number of samples, and the end of none
        raise Damaged(f"{size} bytes are not an MDS shard")
    if stated is not None:
        columns = stated.columns
    first = _FIRST_BYTES if stated is None else 8 + 4 * stated.samples + _CONFIG_BYTES
    view = yield Ask(0, min(size, first))
    count = int.from_bytes(view[:4], "little")
    end = 8 + 4 * count
    if end > size:
        raise Damaged(f"an MDS shard of {size} bytes cannot have {count} samples")
    if end > len(view):
        view = memoryview(bytes(view) + (yield Ask(len(view), min(size, end + _CONFIG_BYTES))))
    offsets = np.frombuffer(view[4:end], "<u4").astype(np.int64)
    start = int(offsets[0])
    if start < end or offsets[-1] != size or (np.diff(offsets) <= 0).any():
        raise Damaged(f"the offsets of {count} samples do not ascend from byte {end} to the end at byte {size}")
    if start - end > _MOST_CONFIG:
        raise Damaged(f"the description of the columns would have {start - end} bytes")
    if start > len(view):
        view = memoryview(bytes(view) + (yield Ask(len(view), start)))
    found = _parse_columns(view[end:start]) if start > end else columns
    if not found:
        raise Unsupported(
            "the shard has no description of its columns: pass the URL of the folder whose index.json has them"
        )
    if columns and found != columns:
        raise Damaged(_STALE.format(f"has the columns {[*map(tuple, found)]!r:.200}"))
    return Extents(offsets[:-1], np.diff(offsets), schema=[[*each] for each in found])


_VERSION = 2
_INFLATED = ("zstd", "gz")
_MOST_NAME = 1 << 12
_WHAT = "the index.json of MDS shards"
_FILE = {"basename": str, "bytes": COUNT, "hashes": ({str: str}, None)}
_SHARD = {"raw_data": _FILE, "zip_data": (_FILE, None), "compression": (str, None), "samples": COUNT}
_COLUMNS = {"column_names": [str], "column_encodings": [str], "column_sizes": [(COUNT, None)]}


def _parse_columns(config: memoryview) -> tuple[MDSColumn, ...]:
    what = "the description of the columns of an MDS shard"
    return columns_of(read_json(config, dict, what), what)


class StatedFile(NamedTuple):
    """A file that index.json names: its key below the folder, its bytes, and its hashes by their algorithm."""

    name: str
    size: int
    hashes: dict[str, str]


class Stated(NamedTuple):
    """A shard in index.json: ``packed`` is None if it is not compressed; if it is, ``raw`` may be absent."""

    raw: StatedFile
    packed: StatedFile | None
    samples: int
    columns: tuple[MDSColumn, ...]


def stated_shards(data: bytes) -> list[Stated]:
    """Return the shards that an index.json describes, in order."""
    index = read_json(data, dict, _WHAT)
    if "chunks" in index:
        raise Unsupported('this index.json describes chunks of LitData: pass format="litdata"')
    check_json(index, {"version": int}, _WHAT)
    if index["version"] != _VERSION:
        raise Unsupported(f"index.json has the version {index['version']!r}, not {_VERSION}")
    check_json(index, {"shards": [dict]}, _WHAT)
    found = [_shard(each) for each in index["shards"]]
    names = [file.name for each in found for file in (each.raw, each.packed) if file is not None]
    if len(set(names)) < len(names):
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise Damaged(f"index.json names {twice!r} twice")
    return found


def _shard(given: dict[str, Any]) -> Stated:
    columns = columns_of(given, _WHAT)
    check_json(given, _SHARD, _WHAT)
    compression = (given["compression"] or "").partition(":")[0]
    packed = given["zip_data"]
    if packed and compression not in _INFLATED:
        raise Unsupported(
            f"the compression {compression or 'unknown'} of the shards is not supported: write them with "
            'compression="zstd", or without'
        )
    return Stated(_file(given["raw_data"]), packed and _file(packed), given["samples"], columns)


def _file(given: dict[str, Any]) -> StatedFile:
    name = given["basename"]
    if len(name) >= _MOST_NAME or "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise Damaged(f"index.json names {name!r:.200}, which cannot be a file below its folder")
    return StatedFile(name, given["bytes"], given["hashes"] or {})


def columns_of(given: dict[str, Any], what: str) -> tuple[MDSColumn, ...]:
    """Return the columns that ``what`` describes: a shard's header, or its entry in index.json."""
    check_json(given, {"format": str, "version": int}, what)
    if given["format"] != "mds" or given["version"] != _VERSION:
        raise Unsupported(
            f"the shards have the format {given['format']!r} in version {given['version']!r}, not 'mds' in {_VERSION}: "
            "write them again with MDSWriter"
        )
    check_json(given, _COLUMNS, what)
    every = [given[name] for name in _COLUMNS]
    if len({*map(len, every)}) > 1:
        raise Damaged(f"cannot read {what}: {', '.join(_COLUMNS)} have different lengths")
    # A size of 0 stands for none.
    columns = tuple(MDSColumn(name, encoding, size or None) for name, encoding, size in zip(*every, strict=True))
    for name, encoding, size in columns:
        if not refusal(encoding) and size != fixed_size(encoding):
            raise Damaged(f"the column {name!r} ({encoding}) declares {size} bytes, not {fixed_size(encoding)}")
    if len({each.name for each in columns}) < len(columns) or not columns:
        raise Damaged(f"two columns have the same name: {[each.name for each in columns]!r:.200}")
    return columns


def check_hashes(data: memoryview, file: StatedFile) -> None:
    """Compare a file with all hashes that index.json states of it."""
    for name, stated in file.hashes.items():
        if name in xxhash.algorithms_available:
            found = getattr(xxhash, name)(data).hexdigest()
        elif name in hashlib.algorithms_available and not name.startswith("shake_"):
            found = hashlib.new(name, data, usedforsecurity=False).hexdigest()
        else:
            raise Unsupported(f"index.json states the hash {name!r} of {file.name!r}, which is unknown")
        if found != stated.lower():
            raise ChecksumMismatch(
                f"index.json states the {name} {stated} of {file.name!r}, which has {found}: the file was damaged or "
                "replaced"
            )
