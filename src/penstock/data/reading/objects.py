"""Samples of whole objects, or of single ranges of objects: one request for each, read ahead in order."""

from __future__ import annotations

import struct
import zlib
from collections import deque
from functools import partial
from itertools import chain, tee
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol, cast

from penstock.data.reading.reading import Item, Reading, Together
from penstock.data.reading.sample import FieldSample, Sample
from penstock.data.shards.format import Fields
from penstock.errors import Damaged, PenstockError, Unusable, add_article
from penstock.values import PAUSE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from penstock.data.catalog.catalog import Catalog
    from penstock.data.shards.format import ShardFormat, UnitFormat
    from penstock.engine.contracts.fetching import ReadCounts, ReadOperation
    from penstock.source import Source
    from penstock.values import Span

    Shared = tuple[object, dict[str, Any], bool]  # label, columns and repeat of a sample

# Errors of formats that parse bytes which are not what they expect.
PARSING = (ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error, zlib.error)


def span_url(root: str, span: Span) -> str:
    """Return the URL of an object, or of a range of its bytes, for reports: ``s3://bucket/a.tar#bytes=512-1023``.

    The last byte is inclusive, as in HTTP's ``Range``.
    """
    url = root + span.key
    return url if span.whole or span.stop is None else f"{url}#bytes={span.start}-{span.stop - 1}"


def made_sample(root: str, form: ShardFormat | None, span: Span, data: Any, shared: Shared) -> Sample:  # noqa: ANN401  see below
    """Return a sample of an object, or of a shard of a format, whose bytes, or unit and number, ``data`` is."""
    if form is not None:
        try:
            found = cast("UnitFormat", form).row(*data) if form.in_units else form.sample(memoryview(data))
        except PenstockError as error:
            error.url = error.url or span_url(root, span)
            raise
        except PARSING as error:
            message = f"the bytes are not those of a sample of {add_article(form.name)} file: {error!r}"
            raise Damaged(message, url=span_url(root, span)) from error
        if isinstance(found, Fields):
            return FieldSample(root, span, found, *shared)
        data = found
    return Sample(root, span, data, *shared)


class _CatalogObjects(Protocol):
    """The part of a ``CatalogDataset`` that this module uses; that class imports this module."""

    catalog: Catalog
    _source: Source

    @property
    def overrides(self) -> str: ...
    def _sample(self, index: int, span: Span, data: bytes) -> Any: ...  # noqa: ANN401  the transform decides the type


def singles(dataset: _CatalogObjects, indices: Iterable[int], workers: int) -> Iterator[Any]:
    """Yield samples one by one, transformed on this thread; the first error ends the iteration.

    ``workers`` is the number of processes that read in parallel and share the read-ahead budget.
    """
    drawn, rows = tee(indices)
    spans, names = tee(dataset.catalog.spans(drawn))
    with dataset._source.lookahead(spans, workers) as bodies:  # noqa: SLF001  see _Objects
        yield from map(dataset._sample, rows, names, bodies)  # noqa: SLF001  see _Objects


def lists(
    dataset: _CatalogObjects, batches: Iterable[list[int]], workers: int, counts: ReadCounts | None = None
) -> Iterator[list[Any]]:
    """Yield the samples of each batch as a list, and add their reads to ``counts``; otherwise like ``singles``."""
    if dataset.overrides:
        yield from ([make() for make in _makers(dataset, batch)] for batch in batches)
        return
    pending: deque[tuple[list[int], list[Span]]] = deque()

    def drawn() -> Iterator[Span]:
        for batch in batches:
            spans = [*dataset.catalog.spans(batch)]
            pending.append((batch, spans))
            yield from spans

    with dataset._source.lookahead(drawn(), workers) as bodies:  # noqa: SLF001  see _Objects
        if counts is not None:
            counts.opening_s += bodies.counts.opening_s
            bodies.counts = counts
        for data in bodies:
            batch, spans = pending.popleft()
            yield list(map(dataset._sample, batch, spans, chain((data,), bodies)))  # noqa: SLF001  see _Objects


class ObjectReading(Reading):
    """A ``Reading`` of the samples of ``batches``, one object per sample, read ahead in order.

    Samples that a subclass of the dataset reads itself are not read ahead: ``Item.make`` reads them.
    """

    def __init__(self, dataset: _CatalogObjects, batches: Iterable[list[int]], workers: int) -> None:
        self._dataset = dataset
        self._drawn: deque[tuple[int, int, int, Any, Span]] = deque()
        self._together = Together()
        self._texts: dict[int, tuple[str, str]] = {}  # see Contents.spans
        self._own = _own(dataset, batches) if dataset.overrides else None
        drawn = iter(()) if dataset.overrides else self._draw(batches)
        self._ahead = dataset._source.lookahead(drawn, workers)  # noqa: SLF001  see _Objects

    def _draw(self, batches: Iterable[list[int]]) -> Iterator[Span]:
        number = -1
        for batch in batches:
            if not batch:
                yield PAUSE
                continue
            number += 1
            for slot, (index, span) in enumerate(self._rows(batch)):
                self._drawn.append((number, slot, len(batch), index, span))
                yield span

    def _rows(self, batch: list[Any]) -> Iterable[tuple[Any, Span]]:
        """Return the samples of a batch, as ``_made`` takes them, each with its span."""
        return zip(batch, self._dataset.catalog.spans(batch, self._texts), strict=True)

    def begin(self) -> None:
        self._ahead.begin()

    @property
    def counts(self) -> ReadCounts:
        return self._ahead.counts

    def __next__(self) -> Item:
        if self._own is not None:
            return next(self._own)
        ahead, drawn = self._ahead, self._drawn
        read = ahead.advance()
        number, slot, size, index, span = drawn.popleft()
        samples, spans, reads = [index], [span], [read]
        while len(reads) < self._together.count and ahead.ready and drawn[0][0] == number:
            reads.append(ahead.advance())
            *_, index, span = drawn.popleft()
            samples.append(index)
            spans.append(span)
        name = partial(span_url, self._dataset.catalog.root, spans[0])
        if len(reads) == 1:
            return Item(number, slot, size, name, partial(self._together.one, self._made, index, span, read))
        return Item(number, slot, size, name, partial(self._make, samples, spans, reads), len(reads))

    def _make(self, samples: list[Any], spans: list[Span], reads: list[ReadOperation]) -> list[Any]:
        def name(index: Any) -> str:  # noqa: ANN401  see _rows
            return span_url(self._dataset.catalog.root, spans[samples.index(index)])

        return self._together.make(self._made, name, samples, spans, reads)

    def _made(self, index: Any, span: Span, read: ReadOperation) -> Any:  # noqa: ANN401  the transform decides the type
        return self._dataset._sample(index, span, read.take())  # noqa: SLF001  see _Objects

    def close(self) -> None:
        self._ahead.close()


class MergedReading(ObjectReading):
    """A reading of several datasets of whole objects in one store, whose samples are pairs of a dataset and an index.

    With a reading each, the requests of one dataset would wait behind all those that another one has sent ahead.

    Attributes:
        waited_s: Seconds that the samples of each dataset were waited for.

    """

    def __init__(self, parts: Mapping[int, _CatalogObjects], batches: Iterable[list[Any]], workers: int) -> None:
        """Read ``batches`` of pairs of a key of ``parts`` and an index of that dataset."""
        self._parts = parts
        self._each: dict[int, dict[int, tuple[str, str]]] = {number: {} for number in parts}  # see Contents.spans
        self.waited_s = dict.fromkeys(parts, 0.0)
        super().__init__(next(iter(parts.values())), batches, workers)

    def __next__(self) -> Item:
        """Return the next item; only its first sample may have been waited for."""
        drawn, counts = self._drawn, self.counts
        before = counts.waiting_s
        if not drawn:
            self._ahead.refill()
        number = drawn[0][3][0] if drawn else None
        item = super().__next__()
        if number is not None:
            self.waited_s[number] += counts.waiting_s - before
        return item

    def _rows(self, batch: list[Any]) -> Iterable[tuple[Any, Span]]:
        rows: dict[int, list[int]] = {}
        for number, index in batch:
            rows.setdefault(number, []).append(index)
        spans = {each: iter(self._parts[each].catalog.spans(mine, self._each[each])) for each, mine in rows.items()}
        return ((pair, next(spans[pair[0]])) for pair in batch)

    def _made(self, index: Any, span: Span, read: ReadOperation) -> Any:  # noqa: ANN401  see the base class
        number, inner = index
        return self._parts[number]._sample(inner, span, read.take())  # noqa: SLF001  see _Objects


class _Together:
    """The samples of a batch that a subclass reads together, on the thread that first needs one of them."""

    def __init__(self, dataset: Any, batch: list[int]) -> None:  # noqa: ANN401  a MapDataset
        self._read: Callable[[], list[Any]] = partial(dataset.__getitems__, batch)
        self._size = len(batch)
        self._lock = Lock()
        self._samples: list[Any] | None = None
        self._failure: Exception | None = None

    def __call__(self, slot: int) -> Any:  # noqa: ANN401  a sample
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._samples is None:
                try:
                    self._samples = list(self._read())
                except Exception as error:
                    self._failure = error
                    raise
        if len(self._samples) != self._size:
            raise Unusable(f"__getitems__ returned {len(self._samples)} samples for {self._size} indices")
        return self._samples[slot]


def _makers(dataset: Any, batch: list[int]) -> list[Callable[[], Any]]:  # noqa: ANN401  a MapDataset
    """Return a function for each sample of a batch that makes it with the methods of a subclass."""
    if dataset.overrides == "__getitem__":
        return [partial(dataset.__getitem__, index) for index in batch]
    together = _Together(dataset, batch)
    return [partial(together, slot) for slot in range(len(batch))]


def _own(dataset: _CatalogObjects, batches: Iterable[list[int]]) -> Iterator[Item]:
    name = type(dataset).__name__
    for number, batch in enumerate(batches):
        for slot, make in enumerate(_makers(dataset, batch)):
            yield Item(number, slot, len(batch), f"sample {batch[slot]} of {name}", make)
