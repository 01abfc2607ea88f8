"""Lines, tar members and records in compressed files, in gzip or zstd: a sample has no separate bytes there.

So the file is inflated as a whole (``penstock.data.unpacking``), and its samples are those of the plain format in what
it inflates to.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

from penstock.data.shards.format import Ask, FieldsFormat, UnitFormat, run_walk, unit_extents
from penstock.data.shards.jsonl import JsonlFormat
from penstock.data.shards.keys import ArchiveFormat
from penstock.data.shards.tar import TarFormat
from penstock.data.shards.tfrecord import TFRecordFormat
from penstock.data.unpacking import UNPACKED_VARIABLE, inflate_file, most_unpacked
from penstock.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Generator

    from penstock.data.shards.format import Fields, ShardFormat, UnitPiece, Walk


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
    def _plain(self) -> ShardFormat: ...

    def walk(self, size: int) -> Walk:
        raw = inflate_file((yield from whole_file(size)))
        found = run_walk(self._plain().walk(len(raw)), raw)
        return unit_extents(found.sizes, len(raw), size, found)

    def decode(self, pieces: list[UnitPiece], first: int) -> Any:  # noqa: ANN401, ARG002  see ``UnitFormat.decode``
        raw, plain = inflate_file(pieces[0].data), self._plain()
        found = run_walk(plain.walk(len(raw)), raw)
        return _Inflated(raw, found.offsets.data, (found.offsets + found.sizes).data, plain)

    def row(self, unit: Any, number: int) -> Fields | memoryview:  # noqa: ANN401  an ``_Inflated``
        return cast("_Inflated", unit).plain.sample(unit.data[unit.starts[number] : unit.stops[number]])


def whole_file(size: int) -> Generator[Ask, memoryview, memoryview]:
    """Request a compressed file of ``size`` bytes, and return it."""
    if size > (most := most_unpacked()):
        raise Unsupported(
            f"the compressed file has {size} bytes, but at most {most} may be decompressed ({UNPACKED_VARIABLE}): "
            "store it decompressed"
        )
    return (yield Ask(0, size)) if size else memoryview(b"")


@dataclass(frozen=True, slots=True)
class CompressedJsonlFormat(FieldsFormat, _CompressedFormat):
    """JSON lines in files that are compressed with gzip or zstd: samples and fields are those of ``JsonlFormat``.

    A file is read and inflated as a whole, to at most 2 GiB (``PENSTOCK_UNPACKED_SIZE``), and kept until its last line
    was delivered. While files are indexed, four are inflated at once. zstd needs ``penstock[parquet]``.
    """

    name: ClassVar[str] = "jsonl.gz"
    suffixes: ClassVar[tuple[str, ...]] = (".jsonl.gz", ".ndjson.gz", ".jsonl.zst", ".ndjson.zst")

    def _plain(self) -> ShardFormat:
        return JsonlFormat(self.fields)


@dataclass(frozen=True, slots=True)
class CompressedTarFormat(ArchiveFormat, _CompressedFormat):
    """Tar files that are compressed with gzip or zstd: samples are those of ``TarFormat``, and so are the arguments.

    Files are read and inflated as those of ``CompressedJsonlFormat`` are.
    """

    name: ClassVar[str] = "tar.gz"
    suffixes: ClassVar[tuple[str, ...]] = (".tar.gz", ".tgz", ".tar.zst")

    def _plain(self) -> ShardFormat:
        return TarFormat(self.fields, self.key, self.missing, self.skip)


@dataclass(frozen=True, slots=True)
class CompressedTFRecordFormat(_CompressedFormat):
    """TFRecord files that are compressed with gzip or zstd: samples are those of ``TFRecordFormat``, with their sums.

    Files are read and inflated as those of ``CompressedJsonlFormat`` are. Needs ``penstock[tfrecord]``.
    """

    name: ClassVar[str] = "tfrecord.gz"
    suffixes: ClassVar[tuple[str, ...]] = (".tfrecord.gz", ".tfrecords.gz", ".tfrecord.zst", ".tfrecords.zst")

    def _plain(self) -> ShardFormat:
        return TFRecordFormat()
