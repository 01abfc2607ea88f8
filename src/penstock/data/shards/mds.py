"""MDS files, the shards of mosaicml-streaming: a sample is the values of its columns. Pure.

Format: ``streaming/base/format/mds/writer.py`` of mosaicml-streaming 0.13. A shard is the number of samples, the first
byte of each and the end of the last (uint32 all), the description of the columns in JSON, and the samples. Compressed
shards are such files in zstd or gzip, so that no sample has bytes of its own.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from penstock.data.shards.compressed import whole_file
from penstock.data.shards.format import Ask, Extents, Fields, ShardFormat, UnitFormat, Units, field_names, run_walk
from penstock.data.shards.mds_columns import (
    MDSColumn,
    as_text,
    as_view,
    columns_of_file,
    decode_columns,
    decoder,
    refusal,
    stored,
)
from penstock.data.shards.mds_index import check_hashes, columns_of
from penstock.data.unpacking import inflate_file
from penstock.errors import Damaged, Unsupported, Unusable
from penstock.schema import read_json
from penstock.values import switch

if TYPE_CHECKING:
    from penstock.data.shards.format import UnitPiece, Walk
    from penstock.data.shards.mds_columns import Decoder
    from penstock.data.shards.mds_index import Stated

_FIRST_BYTES = 16 << 10  # of the first request, which has the header of most shards
_CONFIG_BYTES = 4 << 10  # that most descriptions of columns have at most
_MOST_CONFIG = 16 << 20
_STALE = "index.json does not fit the shard, which {}: write the index again, or pass the URLs of the shards"


class _Unit(NamedTuple):
    """The bytes of a compressed shard, inflated, and the places of its samples."""

    data: memoryview
    offsets: list[int]


@dataclass(frozen=True, slots=True)
class ColumnFormat(ShardFormat):
    """A format whose samples are the values of columns: their sizes, and then their bytes.

    Attributes:
        fields: Names of the columns to take; empty: all. A single name as a str: samples are its values.
        columns: The columns of all samples.

    """

    fields: str | tuple[str, ...] = ()
    columns: tuple[MDSColumn, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", field_names(self.fields))
        object.__setattr__(self, "columns", columns_of_file(self.columns))
        if self.columns:
            _check_wanted(self.columns, self.fields, self.coder)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The columns to take; empty: all."""
        return (self.fields,) if isinstance(self.fields, str) else self.fields

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
        """Find the samples of a shard as ``walk`` does, and compare it with what an index.json states of it."""

    def having(self, schema: Any) -> Self:  # noqa: ANN401  see ``ShardFormat.having``
        found = columns_of_file(schema)
        if not self.columns:
            return replace(self, columns=found)
        if self.columns != found:
            texts = [", ".join(f"{name}: {kind}" for name, kind, _ in each) for each in (found, self.columns)]
            raise Unusable(
                f"the columns {texts[0]:.200} are others than those of the shards before it, {texts[1]:.200}: make a "
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
        count = len(found.offsets)
        one = [[0], [len(raw)], [1], [0], [size]] if count else [[]] * 5
        units = Units(*(np.array(each, dtype=np.int64) for each in one))
        return Extents(np.arange(count, dtype=np.int64), found.sizes, schema=found.schema, units=units)

    def decode(self, pieces: list[UnitPiece], first: int) -> Any:  # noqa: ANN401, ARG002  see ``UnitFormat.decode``
        raw = inflate_file(pieces[0].data)
        found = run_walk(_walk(len(raw), None, self.columns), raw)
        return _Unit(raw, [*found.offsets.tolist(), len(raw)])

    def row(self, unit: Any, number: int) -> Fields | memoryview:  # noqa: ANN401  a ``_Unit``
        return self.made(unit.data[unit.offsets[number] : unit.offsets[number + 1]])


def _check_wanted(columns: tuple[MDSColumn, ...], fields: str | tuple[str, ...], coder: Decoder) -> None:
    """Check that wanted columns are there and can be read."""
    encodings = {each.name: each.encoding for each in columns}
    wanted = (fields,) if isinstance(fields, str) else fields or (*encodings,)
    for name in wanted:
        if name not in encodings:
            raise Unusable(f"there is no column {name!r}, only {', '.join(encodings)}")
        if why := refusal(encodings[name], coder):
            raise Unsupported(f"the column {name!r} {why}: leave it out, fields=(…)")
    if isinstance(fields, str) and coder(encodings[fields]) not in (as_view, as_text):
        raise Unusable(
            f"the column {fields!r} has the encoding {encodings[fields]}, neither bytes nor texts: pass "
            f"fields=({fields!r},), and take sample[{fields!r}]"
        )


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


def _parse_columns(config: memoryview) -> tuple[MDSColumn, ...]:
    what = "the description of the columns of an MDS shard"
    return columns_of(read_json(config, dict, what), what)
