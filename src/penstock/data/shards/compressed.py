"""JSON lines in a compressed file, in gzip or zstd: no line has bytes of its own, so the file is decoded as a whole.

The first bytes of a file tell its compression, as its name may not. Both formats may hold several streams, one behind
the other. gzip is read by the standard library, zstd by pyarrow.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from penstock.data.parquet import libraries
from penstock.data.shards.format import Ask, Extents, UnitFormat, Units, field_names
from penstock.data.shards.jsonl import JsonlFormat
from penstock.errors import Damaged, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.data.shards.format import Fields, Piece, Walk

__all__ = ["CompressedJsonlFormat", "inflated"]

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_BLOCK_BYTES = 8 << 20  # inflated at a time, before they are counted
_MOST_BYTES = 2 << 30  # limit of a file once inflated
# Lines compress to a tenth; beyond this, and a free amount, the file is a bomb.
_RATIO, _FREE_BYTES = 200, 64 << 20


class _Lines(NamedTuple):
    """The inflated bytes of a file, and the place of each line in them."""

    data: memoryview
    starts: memoryview
    stops: memoryview


@dataclass(frozen=True, slots=True)
class CompressedJsonlFormat(UnitFormat):
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
    most_walks: ClassVar[int] = 4

    fields: str | tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the argument, which may come from a file.

        Raises:
            Unusable: It is neither the name of a field nor several.

        """
        object.__setattr__(self, "fields", field_names(self.fields))

    def walk(self, size: int) -> Walk:
        """Find the lines of a file of ``size`` bytes: see ``ShardFormat.walk``."""
        if size > _MOST_BYTES:
            raise Unsupported(f"the compressed file has {size} bytes: decompress it once, and its lines have places")
        data = (yield Ask(0, size)) if size else memoryview(b"")
        raw = inflated(data)
        found = self._walked(raw)
        count = len(found.offsets)
        one = [[0], [len(raw)], [1], [0], [size]] if count else [[]] * 5
        units = Units(*(np.array(each, dtype=np.int64) for each in one))
        return Extents(np.arange(count, dtype=np.int64), found.sizes, units=units)

    def decode(self, pieces: list[Piece], first: int) -> Any:  # noqa: ANN401, ARG002  see ``UnitFormat.decode``
        """Return the lines of a file: see ``UnitFormat.decode``."""
        raw = inflated(pieces[0].data)
        found = self._walked(raw)
        return _Lines(raw, found.offsets.data, (found.offsets + found.sizes).data)

    def row(self, unit: Any, number: int) -> Fields | memoryview:  # noqa: ANN401  a ``_Lines``
        """Return line ``number`` of a file: see ``UnitFormat.row``."""
        return JsonlFormat(self.fields).sample(unit.data[unit.starts[number] : unit.stops[number]])

    def _walked(self, data: memoryview) -> Extents:
        walk = JsonlFormat(self.fields).walk(len(data))
        try:
            ask = next(walk)
            while True:
                ask = walk.send(data[ask.start : ask.stop])
        except StopIteration as end:
            found: Extents = end.value
            return found


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
