"""``whole_array``: an array read and decoded as a whole."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.data.zarr.indexes import ShardIndexes
from penstock.data.zarr.samples.arrangement import MOST_AT_ONCE
from penstock.engine.contracts.fetching import ReadCounts
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.data.zarr.arrays import StoredArray
    from penstock.data.zarr.chunks import Chunks
    from penstock.data.zarr.indexes import IndexCache
    from penstock.source import Source

__all__ = ["whole_array"]


def whole_array(
    arrays: Sequence[StoredArray], number: int, chunks: Chunks, source: Source, cache: IndexCache, parts: int = 1
) -> NDArray[Any]:
    """Return the values of array ``number`` of ``arrays``; all requests are in flight at once.

    ``chunks`` are the chunks of ``arrays``. Read-ahead takes at most 1 / ``parts`` of the store's own limit.

    Raises:
        Unusable: The array has too many chunks.
        PenstockError: A chunk of the array could not be read.

    """
    layout, first = arrays[number].layout, chunks.bases[number]
    if (count := prod(layout.grid)) > MOST_AT_ONCE:
        raise Unusable(
            f"the array is read as a whole, and has {count:,} chunks, of at most {MOST_AT_ONCE:,}: store it in larger "
            "ones (penstock zarr copy --chunks)",
            url=arrays[number].url,
        )
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
