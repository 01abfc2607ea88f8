"""All of an array, read and decoded at once."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.datasets.zarr.indexes import ShardIndexes
from penstock.protocols.fetching import ReadCounts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.datasets.zarr.arrays import StoredArray
    from penstock.datasets.zarr.chunks import Chunks
    from penstock.datasets.zarr.indexes import IndexCache
    from penstock.source import Source

__all__ = ["whole_array"]


def whole_array(
    arrays: Sequence[StoredArray], number: int, chunks: Chunks, source: Source, cache: IndexCache, parts: int = 1
) -> NDArray[Any]:
    """Return the values of array ``number`` of some, of which ``chunks`` are; all requests are in flight at once.

    What is read ahead takes at most one of so many ``parts`` of the store's own limit.

    Raises:
        PenstockError: A chunk of it could not be read.

    """
    layout, first = arrays[number].layout, chunks.bases[number]
    out = np.empty(layout.shape, chunks.dtypes[number])
    indexes = ShardIndexes(arrays, source, cache, ReadCounts())
    some = range(first, first + prod(layout.grid))
    chunks.prepare(some)
    indexes.ask(chunks.shards(some))
    spans = [chunks.span(chunk, indexes) for chunk in some]
    with source.lookahead((span for span in spans if isinstance(span, tuple)), parts) as ahead:
        for chunk, span in zip(some, spans, strict=True):
            values = chunks.decode(chunk, ahead.advance() if isinstance(span, tuple) else span)
            place = map(int, np.unravel_index(chunk - first, layout.grid))
            box = tuple(
                slice(at * size, min((at + 1) * size, length))
                for at, size, length in zip(place, layout.chunks, layout.shape, strict=True)
            )
            out[box] = values[tuple(slice(each.stop - each.start) for each in box)]
    return out
