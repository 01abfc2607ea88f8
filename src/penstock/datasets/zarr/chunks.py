"""The chunks of some arrays, by number: where each lies, and what its bytes mean. Of one process."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property, lru_cache, partial
from math import prod
from typing import TYPE_CHECKING, Any

from penstock.datasets.zarr.objects.locations import check_absent
from penstock.errors import NotFound
from penstock.formats.zarr.decoding.codecs import decoder_of
from penstock.formats.zarr.index import chunk_span
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from penstock.datasets.zarr.arrays import Missing, StoredArray
    from penstock.datasets.zarr.indexes import ShardIndexes
    from penstock.datasets.zarr.pool import MemoryPool
    from penstock.formats.zarr.layout import Layout
    from penstock.formats.zarr.virtual.records import Records
    from penstock.protocols.fetching import PendingRead

__all__ = ["Chunks"]

_KEPT = 4096  # chunks whose places are remembered


class Chunks:
    """The chunks of arrays, numbered through: those of the first array, row by row, then those of the next."""

    def __init__(self, arrays: Sequence[StoredArray], missing: Missing) -> None:
        """Number them; nothing is read."""
        self._arrays, self._missing = tuple(arrays), missing
        layouts = [(array.layout, array.layout.grid) for array in arrays]
        self.bases = [0]
        for _, grid in layouts:
            self.bases.append(self.bases[-1] + prod(grid))
        self._at = lru_cache(_KEPT)(partial(_located, self.bases, layouts))  # asked for before reading, and after it
        self._records = [array.objects.records for array in arrays]
        self._sharded = any(layout.shards is not None for layout, _ in layouts)
        self._decoders = [decoder_of(array.layout, array.url) for array in arrays]
        self._sizes = [
            prod(array.layout.chunks) * dtype.itemsize for array, dtype in zip(arrays, self.dtypes, strict=True)
        ]
        self._filled: dict[int, NDArray[Any]] = {}

    @cached_property
    def dtypes(self) -> list[np.dtype[Any]]:
        """Of the values of each array, decoded."""
        return [array.decoded.dtype for array in self._arrays]

    def size_of(self, chunk: int) -> int:
        """Return the decoded bytes of a chunk."""
        return self._sizes[bisect_right(self.bases, chunk) - 1]

    def shards(self, chunks: Iterable[int]) -> Iterator[tuple[int, str]]:
        """Yield the shards that some chunks lie in: the array's number, and the shard's key."""
        for chunk in chunks if self._sharded else ():
            number, layout, place = self._at(chunk)
            if layout.shards is not None:
                yield number, layout.object_key(place)

    def prepare(self, chunks: Iterable[int]) -> None:
        """Read what says where some chunks lie, all at once, of arrays of which that is read when it is needed."""
        if not any(self._records):
            return
        keys: dict[int, tuple[Records, list[str]]] = {}  # of several arrays of one document together
        for chunk in chunks:
            number, layout, place = self._at(chunk)
            if (records := self._records[number]) is not None:
                keys.setdefault(id(records), (records, []))[1].append(layout.object_key(place))
        for records, some in keys.values():
            records.prepare(some)

    def span(self, chunk: int, indexes: ShardIndexes) -> Span | bytes | None:
        """Return where a chunk lies, or its bytes where references have them; None where it is known to be missing.

        May wait for the index of its shard.

        Raises:
            PenstockError: That index could not be read; a reference cannot be meant.

        """
        number, layout, place = self._at(chunk)
        key = layout.object_key(place)
        span: Span | None = Span(key, most=layout.most_bytes)
        if layout.shards is not None:
            index = indexes.get((number, key))
            span = None if index is None else chunk_span(layout, place, index)
        return None if span is None else self._arrays[number].objects.find(span)

    def decode(self, chunk: int, read: PendingRead | bytes | None, pool: MemoryPool | None = None) -> NDArray[Any]:
        """Return the values of a chunk, of which ``read`` has the bytes, or is them; None: it is missing.

        They lie in memory of ``pool``, where it is given and the codecs write where they are told to.

        Raises:
            NotFound: It is missing, and that is an error.
            PenstockError: It could not be read, or does not decode.

        """
        number, layout, place = self._at(chunk)
        objects = self._arrays[number].objects
        url = objects.url(layout.object_key(place))
        try:
            data = read if read is None or isinstance(read, bytes) else read.take()
        except NotFound as error:
            check_absent(objects, error)
            data = None
        if data is None:
            return self._fill(number, url)
        decoder = self._decoders[number]
        out = pool.empty(layout.chunks, layout.dtype) if pool is not None and decoder.direct else None
        return self._meant(number, decoder.decode(data, out, url=url))

    def _meant(self, number: int, values: NDArray[Any]) -> NDArray[Any]:
        meaning = self._arrays[number].meaning
        return values if meaning is None else meaning.apply(values)

    def _fill(self, number: int, url: str) -> NDArray[Any]:
        if self._missing == "error":
            raise NotFound('this chunk of the array was never written; missing="fill" reads its fill value', url=url)
        filled = self._filled.get(number)
        if filled is None:
            filled = self._filled[number] = self._meant(number, self._decoders[number].filled())
        return filled


def _located(
    bases: Sequence[int], layouts: Sequence[tuple[Layout, tuple[int, ...]]], chunk: int
) -> tuple[int, Layout, tuple[int, ...]]:
    """Return the array that a chunk belongs to, and the chunk's place in its grid."""
    number = bisect_right(bases, chunk) - 1
    (layout, grid), left, place = layouts[number], chunk - bases[number], []
    for count in reversed(grid):
        left, at = divmod(left, count)
        place.append(at)
    return number, layout, tuple(reversed(place))
