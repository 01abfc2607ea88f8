"""Which bytes the samples of some batches are cut from, without reading them: each chunk once, in order."""

from __future__ import annotations

from itertools import chain, islice
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from penstock.datasets.zarr.indexes import ShardIndexes
from penstock.protocols.fetching import ReadCounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from penstock.datasets.zarr.contents import ZarrContents
    from penstock.values import Span

__all__ = ["chunk_spans"]

_AT_ONCE = 4096  # samples whose chunks are computed together
_LEAD = 64  # chunks whose shards' indexes are read together


def chunk_spans(contents: ZarrContents, batches: Iterable[list[int]]) -> Iterator[Span]:
    """Yield where the chunks lie that samples of ``batches`` need, in the order in which they are needed first.

    Arrays that every sample needs whole come first. Chunks that are known to be missing are left out; the indexes of
    shards are read on the way, each once.

    Raises:
        PenstockError: The index of a shard could not be read.

    """
    chunks, indexes = contents.chunks, ShardIndexes(contents.arrays, contents.source, contents.indexes, ReadCounts())
    needed = _new(chain(_kept(contents), _used(contents, batches)), chunks.bases[-1])
    try:
        while some := list(islice(needed, _LEAD)):
            chunks.prepare(some)
            indexes.ask(chunks.shards(some))
            found = (chunks.span(chunk, indexes) for chunk in some)
            yield from (span for span in found if isinstance(span, tuple))  # else missing, or within references
    finally:
        indexes.close()


def _kept(contents: ZarrContents) -> Iterator[NDArray[np.int64]]:
    """Yield the chunks of arrays that are read whole and kept."""
    first = contents.chunks.bases
    for number, (array, keeps) in enumerate(zip(contents.arrays, contents.arrangement.kept, strict=True)):
        if keeps:
            yield first[number] + np.arange(prod(array.layout.grid), dtype=np.int64)


def _used(contents: ZarrContents, batches: Iterable[list[int]]) -> Iterator[NDArray[np.int64]]:
    """Yield the chunks that samples use, those of the first sample first; -1 among them stands for none."""
    samples = chain.from_iterable(batches)
    while some := list(islice(samples, _AT_ONCE)):
        positions = contents.arrangement.space.positions(np.array(some, dtype=np.int64))
        yield contents.uses(positions).ravel()


def _new(numbers: Iterable[NDArray[np.int64]], count: int) -> Iterator[int]:
    """Yield each of some numbers below ``count`` when it comes first."""
    seen = np.zeros(count, dtype=bool)
    for some in numbers:
        valid = some[some >= 0]
        fresh = valid[~seen[valid]]
        _, firsts = np.unique(fresh, return_index=True)
        ordered = fresh[np.sort(firsts)]
        seen[ordered] = True
        yield from ordered.tolist()
