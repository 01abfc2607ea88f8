"""Lines, tar members and records in compressed files, in gzip or zstd: a sample has no bytes of its own there.

So the file is inflated as a whole, and its samples are those of the plain format in what it inflates to.

The first bytes of a file tell its compression, as its name may not. Both formats may hold several streams, one behind
the other. gzip is read by the standard library, zstd by pyarrow.
"""

from __future__ import annotations

import zlib
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import numpy as np

from penstock.data.parquet import libraries
from penstock.data.shards.format import Ask, Extents, UnitFormat, Units, field_names, walked
from penstock.data.shards.jsonl import JsonlFormat
from penstock.data.shards.keys import ArchiveFormat
from penstock.data.shards.tar import TarFormat
from penstock.data.shards.tfrecord import TFRecordFormat
from penstock.errors import Damaged, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.data.shards.format import Fields, Piece, ShardFormat, Walk

__all__ = ["CompressedJsonlFormat", "CompressedTFRecordFormat", "CompressedTarFormat", "inflated"]

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_BLOCK_BYTES = 8 << 20  # inflated at a time, before they are counted
_MOST_BYTES = 2 << 30  # limit of a file once inflated
# Text compresses to a tenth; beyond this, and a free amount, the file is a bomb.
_RATIO, _FREE_BYTES = 200, 64 << 20


class _Inflated(NamedTuple):
    """The inflated bytes of a file, the place of each sample in them, and the format of these."""

    data: memoryview
    starts: memoryview
    stops: memoryview
    plain: ShardFormat


class _CompressedFormat(UnitFormat):
    """A format whose shards are those of another one, compressed: each is a unit."""

    most_walks: ClassVar[int] = 4

    @abstractmethod
    def _plain(self) -> ShardFormat:
        """Return the format of what a file inflates to."""

    def walk(self, size: int) -> Walk:
        """Find the samples of a file of ``size`` bytes: see ``ShardFormat.walk``."""
        if size > _MOST_BYTES:
            raise Unsupported(
                f"the compressed file has {size} bytes, and at most {_MOST_BYTES} are inflated in memory: decompress "
                "it once, and its samples have places"
            )
        data = (yield Ask(0, size)) if size else memoryview(b"")
        raw = inflated(data)
        found = walked(self._plain().walk(len(raw)), raw)
        count = len(found.offsets)
        one = [[0], [len(raw)], [1], [0], [size]] if count else [[]] * 5
        units = Units(*(np.array(each, dtype=np.int64) for each in one))
        return Extents(np.arange(count, dtype=np.int64), found.sizes, found.keys, units=units)

    def decode(self, pieces: list[Piece], first: int) -> Any:  # noqa: ANN401, ARG002  see ``UnitFormat.decode``
        """Return the samples of a file: see ``UnitFormat.decode``."""
        raw, plain = inflated(pieces[0].data), self._plain()
        found = walked(plain.walk(len(raw)), raw)
        return _Inflated(raw, found.offsets.data, (found.offsets + found.sizes).data, plain)

    def row(self, unit: Any, number: int) -> Fields | memoryview:  # noqa: ANN401  an ``_Inflated``
        """Return sample ``number`` of a file: see ``UnitFormat.row``."""
        return cast("_Inflated", unit).plain.sample(unit.data[unit.starts[number] : unit.stops[number]])


@dataclass(frozen=True, slots=True)
class CompressedJsonlFormat(_CompressedFormat):
    """JSON lines in files that are compressed with gzip or zstd: samples are those of ``JsonlFormat``.

    A file is read and inflated as a whole, to at most 2 GiB and 200 times its bytes, and kept until its last line was
    delivered. While files are indexed, four are inflated at once. zstd needs ``penstock[parquet]``.

    Args:
        fields: As for ``JsonlFormat``.

    Example:
        >>> from penstock.data.shards.compressed import CompressedJsonlFormat
        >>> CompressedJsonlFormat(fields=("text", "label")).fields
        ('text', 'label')

    """

    name: ClassVar[str] = "jsonl.gz"
    suffixes: ClassVar[tuple[str, ...]] = (".jsonl.gz", ".ndjson.gz", ".jsonl.zst", ".ndjson.zst")

    fields: str | tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the argument, which may come from a file.

        Raises:
            Unusable: It is neither the name of a field nor several.

        """
        object.__setattr__(self, "fields", field_names(self.fields))

    def _plain(self) -> ShardFormat:
        return JsonlFormat(self.fields)


@dataclass(frozen=True, slots=True)
class CompressedTarFormat(ArchiveFormat, _CompressedFormat):
    """Tar files that are compressed with gzip or zstd: samples are those of ``TarFormat``, and so are the arguments.

    Files are read and inflated as those of ``CompressedJsonlFormat`` are.

    Args:
        fields: As for ``TarFormat``.
        key: As for ``TarFormat``.
        missing: As for ``TarFormat``.
        skip: As for ``TarFormat``.

    Example:
        >>> from penstock.data.shards.compressed import CompressedTarFormat
        >>> CompressedTarFormat(fields=("jpg", "cls")).wanted
        ('jpg', 'cls')

    """

    name: ClassVar[str] = "tar.gz"
    suffixes: ClassVar[tuple[str, ...]] = (".tar.gz", ".tgz", ".tar.zst")

    def _plain(self) -> ShardFormat:
        return TarFormat(self.fields, self.key, self.missing, self.skip)


@dataclass(frozen=True, slots=True)
class CompressedTFRecordFormat(_CompressedFormat):
    """TFRecord files that are compressed with gzip or zstd: samples are those of ``TFRecordFormat``, with their sums.

    Files are read and inflated as those of ``CompressedJsonlFormat`` are. Needs ``penstock[tfrecord]``.

    Example:
        >>> from penstock.data.shards.compressed import CompressedTFRecordFormat
        >>> CompressedTFRecordFormat().described()
        {'name': 'tfrecord.gz'}

    """

    name: ClassVar[str] = "tfrecord.gz"
    suffixes: ClassVar[tuple[str, ...]] = (".tfrecord.gz", ".tfrecords.gz", ".tfrecord.zst", ".tfrecords.zst")

    def _plain(self) -> ShardFormat:
        return TFRecordFormat()


def inflated(data: memoryview, most: int | None = None) -> memoryview:
    """Return the inflated bytes of a file, which must not have more than ``most``.

    Raises:
        Damaged: The file is cut off, damaged, or inflates to more than is plausible.
        Unsupported: The file is neither gzip nor zstd.

    """
    magic = bytes(data[:4])
    if magic[:2] == _GZIP:
        blocks = _gzip(data)
    elif magic == _ZSTD:
        blocks = _zstd(data)
    elif not data:
        return data
    else:
        raise Unsupported("the file is compressed neither with gzip nor with zstd")
    plausible = min(_MOST_BYTES, _FREE_BYTES + _RATIO * len(data))
    most = plausible if most is None else min(most, plausible)
    found = bytearray()
    for block in blocks:
        found += block
        if len(found) > most:
            raise Damaged(f"{len(data)} compressed bytes inflate to more than {most}: too many")
    return memoryview(found).toreadonly()


def _gzip(data: memoryview) -> Iterator[bytes]:
    rest: memoryview | bytes = data
    try:
        while rest:
            stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
            while not stream.eof:
                block = stream.decompress(rest, _BLOCK_BYTES)
                rest = stream.unconsumed_tail
                if not block and not rest and not stream.eof:
                    raise Damaged("the gzip file is cut off")
                yield block
            # Zeros may fill up a block of a tape.
            rest = stream.unused_data.lstrip(b"\0")
    except zlib.error as error:
        raise Damaged(f"the gzip file is damaged: {error}") from error


def _zstd(data: memoryview) -> Iterator[bytes]:
    pa, _ = libraries("a file compressed with zstd")
    try:
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), "zstd") as stream:
            while block := stream.read(_BLOCK_BYTES):
                yield block
    except OSError as error:
        raise Damaged(f"the zstd file is cut off or damaged: {error}") from error
