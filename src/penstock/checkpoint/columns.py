"""The index of a distributed checkpoint: columns of numbers in one object, of which a reader reads only some rows.

The manifest names the object, the digests of its blocks and the length of each column, so a reader knows where each
row is and verifies what it reads. ``checkpoint/dcp/records`` says what the columns mean.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from penstock.checkpoint.gather import Object, Want, gather
from penstock.checkpoint.integrity import BLOCK_BYTES, DIGEST_BYTES, BlockChecksums, Manifest, count_blocks
from penstock.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.source import Source

    Column = np.ndarray[Any, np.dtype[Any]]

INDEX: Final = "penstock.index"  # its name below the save's id
# A save beyond it is refused before its data is written: 10^9 chunks.
MOST_INDEX_BYTES: Final = 1 << 34
ROW: Final = np.dtype([("object", "<u4"), ("start", "<u8")])
# In this order in the object, without gaps; ``checkpoint/dcp/records`` describes each.
LAYOUT: Final[Mapping[str, np.dtype[Any]]] = {
    "text": np.dtype("u1"),
    "kinds": np.dtype("u1"),
    "dimensions": np.dtype("u1"),
    "boxed": np.dtype("<i8"),
    "sizes": np.dtype("<i8"),
    "steps": np.dtype("<i8"),
    "boxes": np.dtype("<i8"),
    "rows": ROW,
    "digests": np.dtype((np.void, DIGEST_BYTES)),
}
# A smaller index is read whole, by one request.
_WHOLE_BYTES = 2 * BLOCK_BYTES


def describe_columns(name: str, columns: Mapping[str, Column]) -> dict[str, Any]:
    """Return the manifest's description of an index that holds ``columns`` in the object ``name``."""
    return {"object": name, "columns": {column: len(columns[column]) for column in LAYOUT}}


def iterate_columns(columns: Mapping[str, Column]) -> Iterator[memoryview]:
    """Yield the bytes of an index."""
    for name, dtype in LAYOUT.items():
        yield np.ascontiguousarray(columns[name], dtype).view(np.uint8).data


class IndexColumns:
    """Columns of the index that a manifest names; each read is verified."""

    def __init__(self, source: Source, folder: str, manifest: Manifest) -> None:
        """Check the manifest's description, without a request; raise ``CheckpointError`` if it is invalid."""
        try:
            name, lengths = manifest.content["index"]["object"], manifest.content["index"]["columns"]
            checksums = manifest.objects[name]
            if lengths.keys() != LAYOUT.keys() or not all(type(each) is int and each >= 0 for each in lengths.values()):
                raise ValueError("a column has no valid length")
            sizes = [lengths[column] * dtype.itemsize for column, dtype in LAYOUT.items()]
            if sum(sizes) != checksums.size:
                raise ValueError(f"columns of {sum(sizes)} bytes in an object of {checksums.size}")
            if lengths["digests"] != sum(map(count_blocks, manifest.indexed.values())):
                raise ValueError("the number of digests differs from that of blocks")
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            url = source.url(folder)
            raise CheckpointError(f"the manifest describes an invalid index: {error!r:.200}", url=url) from None
        key = folder + name
        self.lengths: dict[str, int] = lengths
        self._source = source
        self._of = Object(key, "", checksums.size, source.url(key), checksums)
        self._starts = dict(zip(LAYOUT, accumulate(sizes, initial=0), strict=False))
        self._whole: Column | None = None

    def read(self, *names: str) -> list[Column]:
        """Return whole columns, in the order of the layout."""
        return self.read_ranges([(name, 0, self.lengths[name]) for name in names])

    def read_ranges(self, ranges: Sequence[tuple[str, int, int]]) -> list[Column]:
        """Return rows ``[start, stop)`` of a column for each of ``ranges``, which ascend: nearby ranges share requests.

        The caller has checked that they are within the column.
        """
        if self._of.size <= _WHOLE_BYTES and self._whole is None:
            whole = np.empty(self._of.size, np.uint8)
            self._fill([Want(self._of, 0, self._of.size, whole.data)])
            self._whole = whole
        wants = [self._want(*each) for each in ranges]
        if self._whole is None:
            self._fill(wants)
        else:
            for want in wants:
                want.memory[:] = self._whole[want.start : want.stop]
        return [want.memory.view(LAYOUT[name]) for want, (name, *_) in zip(wants, ranges, strict=True)]

    def _want(self, name: str, start: int, stop: int) -> Want:
        origin, size = self._starts[name], LAYOUT[name].itemsize
        return Want(self._of, origin + start * size, origin + stop * size, np.empty((stop - start) * size, np.uint8))

    def _fill(self, wants: list[Want]) -> None:
        for _ in gather(self._source, wants):
            pass


def read_checksums(
    columns: IndexColumns, indexed: Mapping[str, int], names: Iterable[str]
) -> dict[str, BlockChecksums]:
    """Return the checksums of objects whose digests are in an index; ``indexed`` has the sizes of all, by name."""
    ends = dict(zip(indexed, accumulate(map(count_blocks, indexed.values())), strict=True))
    wanted = sorted(set(names), key=ends.__getitem__)
    found = columns.read_ranges([("digests", ends[name] - count_blocks(indexed[name]), ends[name]) for name in wanted])
    return {name: BlockChecksums(indexed[name], each.tobytes()) for name, each in zip(wanted, found, strict=True)}
