"""From indices to samples: the objects of many batches, read ahead, in order."""

from __future__ import annotations

from collections import deque
from itertools import chain, tee
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.datasets.opening import Opening
    from penstock.values import Span

__all__ = ["Item", "Reading", "lists", "singles"]


def singles(dataset: Opening, indices: Iterable[int], workers: int) -> Iterator[Any]:
    """Yield samples one by one, transformed on this thread; the first error ends it.

    ``workers`` is how many processes read side by side, and share the budget.
    """
    drawn, rows = tee(indices)
    spans, names = tee(map(dataset.catalog.span, drawn))
    with dataset._source.lookahead(spans, workers) as bodies:  # noqa: SLF001  a data set's own other half
        yield from map(dataset._sample, rows, names, bodies)  # noqa: SLF001  the same


def lists(dataset: Opening, batches: Iterable[list[int]], workers: int) -> Iterator[list[Any]]:
    """Yield the samples of each batch as a list; else as ``singles``."""
    pending: deque[tuple[list[int], list[Span]]] = deque()

    def drawn() -> Iterator[Span]:
        for batch in batches:
            spans = [dataset.catalog.span(index) for index in batch]
            pending.append((batch, spans))
            yield from spans

    with dataset._source.lookahead(drawn(), workers) as bodies:  # noqa: SLF001  see singles
        for data in bodies:
            batch, spans = pending.popleft()
            yield list(map(dataset._sample, batch, spans, chain((data,), bodies)))  # noqa: SLF001  see singles


class Item(NamedTuple):
    """One sample whose read has ended, well or not.

    Attributes:
        batch: Its batch, counted from 0.
        slot: Its place in it.
        size: How many samples that batch has.
        url: Its object's.
        make: Returns what the data set yields of it, or raises what went wrong; any thread may call it, once.

    """

    batch: int
    slot: int
    size: int
    url: str
    make: Callable[[], Any]


class Reading:
    """The samples of ``batches`` one by one, read ahead in order; an error is its own sample's and ends nothing.

    ``next`` is for one thread at a time; ``close`` may be called from another, and wakes one that waits.
    """

    def __init__(self, dataset: Opening, batches: Iterable[list[int]], workers: int) -> None:
        """Begin with the first ``next``."""
        self._dataset = dataset
        self._drawn: deque[tuple[int, int, int, int, Span]] = deque()
        self._ahead = dataset._source.lookahead(self._draw(batches), workers)  # noqa: SLF001  see singles

    def _draw(self, batches: Iterable[list[int]]) -> Iterator[Span]:
        for number, batch in enumerate(batches):
            for slot, index in enumerate(batch):
                span = self._dataset.catalog.span(index)
                self._drawn.append((number, slot, len(batch), index, span))
                yield span

    def __iter__(self) -> Self:
        """Return itself."""
        return self

    def __next__(self) -> Item:
        """Return the next sample as soon as its bytes, or an error, are there."""
        read = self._ahead.advance()
        number, slot, size, index, span = self._drawn.popleft()
        dataset = self._dataset
        url = dataset.catalog.root + span.key
        return Item(number, slot, size, url, lambda: dataset._sample(index, span, read.take()))  # noqa: SLF001  see singles

    def close(self) -> None:
        """Call off what is in flight."""
        self._ahead.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()
