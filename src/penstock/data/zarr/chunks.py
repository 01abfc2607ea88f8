"""Chunks of arrays, by number: location and decoding. State of one process."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property, lru_cache, partial
from math import prod
from typing import TYPE_CHECKING, Any

from penstock.data.zarr.format.codecs import decoder_of
from penstock.data.zarr.format.index import chunk_span
from penstock.data.zarr.objects.locations import check_absent
from penstock.errors import Forbidden, NotFound
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from penstock.data.zarr.arrays import Missing, StoredArray
    from penstock.data.zarr.format.layout import Layout
    from penstock.data.zarr.format.references import Records
    from penstock.data.zarr.indexes import ShardIndexes
    from penstock.data.zarr.pool import MemoryPool
    from penstock.engine.contracts.fetching import PendingRead

__all__ = ["Chunks"]

_KEPT = 4096  # chunks whose positions are cached


class Chunks:
    """Chunks of several arrays, numbered consecutively: those of the first array row by row, then of the next."""

    def __init__(self, arrays: Sequence[StoredArray], missing: Missing) -> None:
        """Number the chunks; nothing is read."""
        self._arrays, self._missing = tuple(arrays), missing
        layouts = [(array.layout, array.layout.grid) for array in arrays]
        self.bases = [0]
        for _, grid in layouts:
            self.bases.append(self.bases[-1] + prod(grid))
        self._at = lru_cache(_KEPT)(partial(_located, self.bases, layouts))  # called before and after each read
        self._records = [array.objects.records for array in arrays]
        self._sharded = any(layout.shards is not None for layout, _ in layouts)
        self._decoders = [decoder_of(array.layout, array.url) for array in arrays]
        self._sizes = [
            prod(array.layout.chunks) * dtype.itemsize for array, dtype in zip(arrays, self.dtypes, strict=True)
        ]
        self._filled: dict[int, NDArray[Any]] = {}

    @cached_property
    def dtypes(self) -> list[np.dtype[Any]]:
        """Type of the decoded values of each array."""
        return [array.decoded.dtype for array in self._arrays]

    def size_of(self, chunk: int) -> int:
        """Return the decoded size of a chunk in bytes."""
        return self._sizes[bisect_right(self.bases, chunk) - 1]

    def shards(self, chunks: Iterable[int]) -> Iterator[tuple[int, str]]:
        """Yield the shards of some chunks: number of the array, and key of the shard."""
        for chunk in chunks if self._sharded else ():
            number, layout, place = self._at(chunk)
            if layout.shards is not None:
                yield number, layout.object_key(place)

    def prepare(self, chunks: Iterable[int]) -> None:
        """Read the references of some chunks, all at once, for arrays whose references are read on demand."""
        if not any(self._records):
            return
        keys: dict[int, tuple[Records, list[str]]] = {}  # for all arrays of one document together
        for chunk in chunks:
            number, layout, place = self._at(chunk)
            if (records := self._records[number]) is not None:
                keys.setdefault(id(records), (records, []))[1].append(layout.object_key(place))
        for records, some in keys.values():
            records.prepare(some)

    def span(self, chunk: int, indexes: ShardIndexes) -> Span | bytes | None:
        """Return the location of a chunk, or its bytes if references contain them; None if it is known to be missing.

        May wait for the index of the shard.

        Raises:
            PenstockError: The index could not be read; or a reference is invalid.

        """
        number, layout, place = self._at(chunk)
        key = layout.object_key(place)
        span: Span | None = Span(key, most=layout.most_bytes)
        if layout.shards is not None:
            index = indexes.get((number, key))
            span = None if index is None else chunk_span(layout, place, index)
        return None if span is None else self._arrays[number].objects.find(span)

    def decode(self, chunk: int, read: PendingRead | bytes | None, pool: MemoryPool | None = None) -> NDArray[Any]:
        """Return the values of a chunk from a read, or from its bytes; ``read`` is None for a missing chunk.

        The values lie in memory of ``pool`` if it is given and the codecs can decode into a given array.

        Raises:
            NotFound: The chunk is missing, and missing chunks are errors.
            PenstockError: The chunk could not be read, or does not decode.

        """
        number, layout, place = self._at(chunk)
        url = self._arrays[number].objects.url(layout.object_key(place))
        try:
            data = read if read is None or isinstance(read, bytes) else read.take()
        except (NotFound, Forbidden) as error:
            self.absent(chunk, error)
            data = None
        if data is None:
            return self._fill(number, url)
        decoder = self._decoders[number]
        out = pool.empty(layout.chunks, layout.dtype) if pool is not None and decoder.direct else None
        return self._meant(number, decoder.decode(data, out, url=url))

    def absent(self, chunk: int, error: NotFound | Forbidden) -> None:
        """Accept a chunk as missing, or raise if ``error`` has another meaning: see ``check_absent``."""
        check_absent(self._arrays[self._at(chunk)[0]].objects, error)

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
    """Return the number and layout of the array of a chunk, and the chunk's coordinates in the grid."""
    number = bisect_right(bases, chunk) - 1
    (layout, grid), left, place = layouts[number], chunk - bases[number], []
    for count in reversed(grid):
        left, at = divmod(left, count)
        place.append(at)
    return number, layout, tuple(reversed(place))
