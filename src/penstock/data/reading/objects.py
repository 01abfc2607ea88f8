"""Samples of whole objects, or of single ranges of objects: one request for each, read ahead in order.

If a sample has several objects, they are read together, in one look-ahead for each store.
"""

from __future__ import annotations

import struct
import zlib
from abc import abstractmethod
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from itertools import chain, tee
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from penstock.data.reading.reading import Item, Reading, Together, in_lists
from penstock.data.reading.sample import FieldSample, Sample
from penstock.data.shards.format import Fields
from penstock.engine.contracts.fetching import ReadCounts
from penstock.errors import Damaged, PenstockError, Unusable, add_article
from penstock.source import open_source
from penstock.values import PAUSE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.data.catalog.catalog import Catalog
    from penstock.data.shards.format import ShardFormat, UnitFormat
    from penstock.engine.contracts.fetching import ReadOperation
    from penstock.options import StoreOptions
    from penstock.source import Source
    from penstock.values import Span

    Shared = tuple[object, dict[str, Any], bool]  # label, columns and repeat of a sample
    Spans = tuple[Span | None, ...]
    Reads = list[ReadOperation | None]


# Errors of formats that parse bytes which are not what they expect.
PARSING = (ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error, zlib.error)


def span_url(root: str, span: Span) -> str:
    """Return the URL of an object, or of bytes of it up to the last: ``s3://bucket/a.tar#bytes=512-1023``."""
    url = root + span.key
    return url if span.whole or span.stop is None else f"{url}#bytes={span.start}-{span.stop - 1}"


def made_sample(root: str, form: ShardFormat | None, span: Span, data: Any, shared: Shared) -> Sample:  # noqa: ANN401  see below
    """Return a sample of an object, or of a shard's format; ``data`` has its bytes, or its unit and number."""
    if form is not None:
        try:
            found = cast("UnitFormat", form).row(*data) if form.in_units else form.sample(memoryview(data))
        except PenstockError as error:
            error.url = error.url or span_url(root, span)
            raise
        except PARSING as error:
            message = f"the bytes are not a sample of {add_article(form.name)} file: {error!r}"
            raise Damaged(message, url=span_url(root, span)) from error
        if isinstance(found, Fields):
            return FieldSample(root, span, found, *shared)
        data = found
    return Sample(root, span, data, *shared)


class _CatalogObjects(Protocol):
    """The part of a ``CatalogDataset`` that this module uses; that class imports this module."""

    catalog: Catalog
    _source: Source
    _homes: Homes

    @property
    def overrides(self) -> str: ...
    def _sample(self, index: int, span: Any, data: Any) -> Any: ...  # noqa: ANN401  the transform decides the type


def singles(dataset: _CatalogObjects, indices: Iterable[int], workers: int) -> Iterator[Any]:
    """Yield samples one by one, transformed on this thread; ``workers`` processes share the budget."""
    drawn, rows = tee(indices)
    spans, names = tee(dataset.catalog.spans(drawn))
    with dataset._source.lookahead(spans, workers) as bodies:  # noqa: SLF001  see _CatalogObjects
        yield from map(dataset._sample, rows, names, bodies)  # noqa: SLF001  see _CatalogObjects


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

    with dataset._source.lookahead(drawn(), workers) as bodies:  # noqa: SLF001  see _CatalogObjects
        if counts is not None:
            counts.opening_s += bodies.counts.opening_s
            bodies.counts = counts
        for data in bodies:
            batch, spans = pending.popleft()
            yield list(map(dataset._sample, batch, spans, chain((data,), bodies)))  # noqa: SLF001  see _CatalogObjects


class _DrawnReading(Reading):
    """Samples of ``batches``, each read separately, in order; ``Together`` sets the samples of an item."""

    def __init__(self, dataset: _CatalogObjects) -> None:
        self._dataset = dataset
        # Samples that were drawn and not taken: batch, slot, samples of the batch, index, span or spans.
        self._drawn: deque[tuple[int, int, int, Any, Any]] = deque()
        self._together = Together()

    @abstractmethod
    def _taken(self, span: Any) -> Any:  # noqa: ANN401  one span, or several
        """Return the read of the next sample, or its reads, complete."""

    @abstractmethod
    def _is_ready(self, span: Any) -> bool:  # noqa: ANN401  see _taken
        """Return whether the next sample has arrived."""

    @abstractmethod
    def _url(self, span: Any) -> str: ...  # noqa: ANN401  see _taken

    @abstractmethod
    def _made(self, index: Any, span: Any, read: Any) -> Any: ...  # noqa: ANN401  the transform decides the type

    def _item(self, row: tuple[int, int, int, Any, Any], read: Any) -> Item:  # noqa: ANN401  see _taken
        """Return the item of a drawn sample and of the following samples that have arrived."""
        number, slot, size, index, span = row
        drawn, together, name = self._drawn, self._together, partial(self._url, span)
        if together.count == 1:
            return Item(number, slot, size, name, partial(together.one, self._made, index, span, read))
        samples, spans, reads = [index], [span], [read]
        while len(reads) < together.count and drawn and drawn[0][0] == number and self._is_ready(drawn[0][4]):
            *_, index, span = drawn.popleft()
            samples.append(index)
            spans.append(span)
            reads.append(self._taken(span))
        return Item(number, slot, size, name, partial(self._make, samples, spans, reads), len(reads))

    def _make(self, samples: list[Any], spans: list[Any], reads: list[Any]) -> list[Any]:
        def name(index: Any) -> str:  # noqa: ANN401  of a sample
            return self._url(spans[samples.index(index)])

        return self._together.make(self._made, name, samples, spans, reads)


class ObjectReading(_DrawnReading):
    """A ``Reading`` of the samples of ``batches``, one object per sample, read ahead in order.

    Samples that a subclass of the dataset reads itself are not read ahead: ``Item.make`` reads them.
    """

    def __init__(self, dataset: _CatalogObjects, batches: Iterable[list[int]], workers: int) -> None:
        super().__init__(dataset)
        self._texts: dict[int, tuple[str, str]] = {}  # see Contents.spans
        self._own = _own(dataset, batches) if dataset.overrides else None
        drawn = iter(()) if dataset.overrides else self._draw(batches)
        self._ahead = dataset._source.lookahead(drawn, workers)  # noqa: SLF001  see _CatalogObjects

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
        read = self._ahead.advance()
        return self._item(self._drawn.popleft(), read)

    def _taken(self, span: Span) -> ReadOperation:  # noqa: ARG002  of the base class
        return self._ahead.advance()

    def _is_ready(self, span: Span) -> bool:  # noqa: ARG002  of the base class
        return self._ahead.ready

    def _url(self, span: Span) -> str:
        return span_url(self._dataset.catalog.root, span)

    def _made(self, index: Any, span: Span, read: ReadOperation) -> Any:  # noqa: ANN401  the transform decides the type
        return self._dataset._sample(index, span, read.take())  # noqa: SLF001  see _CatalogObjects

    def close(self) -> None:
        self._ahead.close()


class MergedReading(ObjectReading):
    """A reading of several datasets of whole objects in one store, whose samples are pairs of a dataset and an index.

    With a reading each, the requests of one dataset would wait behind all those that another one has sent ahead.
    """

    def __init__(self, parts: Mapping[int, _CatalogObjects], batches: Iterable[list[Any]], workers: int) -> None:
        """Read ``batches`` of pairs of a key of ``parts`` and an index of that dataset."""
        self._parts = parts
        self._each: dict[int, dict[int, tuple[str, str]]] = {number: {} for number in parts}  # see Contents.spans
        self.waited_s = dict.fromkeys(parts, 0.0)  # for the samples of each dataset
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
        return self._parts[number]._sample(inner, span, read.take())  # noqa: SLF001  see _CatalogObjects


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
    """Return, for each sample of a batch, a function that makes it with the methods of a subclass."""
    if dataset.overrides == "__getitem__":
        return [partial(dataset.__getitem__, index) for index in batch]
    together = _Together(dataset, batch)
    return [partial(together, slot) for slot in range(len(batch))]


def _own(dataset: _CatalogObjects, batches: Iterable[list[int]]) -> Iterator[Item]:
    name = type(dataset).__name__
    for number, batch in enumerate(batches):
        for slot, make in enumerate(_makers(dataset, batch)):
            yield Item(number, slot, len(batch), f"sample {batch[slot]} of {name}", make)


class Homes(NamedTuple):
    """The stores of the fields of a grouped catalog."""

    sources: tuple[Source, ...]  # the stores, each once
    of: tuple[int, ...]  # for each field, the number of its store

    def spans(self, members: Iterable[Spans], number: int) -> Iterator[Span]:
        fields = [field for field, home in enumerate(self.of) if home == number]
        for spans in members:
            for field in fields:
                if (span := spans[field]) is not None:
                    yield span


def homes_of(catalog: Catalog, store: StoreOptions | str | Mapping[str, StoreOptions | str] | None) -> Homes:
    """Return the stores of a catalog's fields; ``store`` is for all fields, or a mapping for some. No request."""
    by_field = store if isinstance(store, Mapping) else dict.fromkeys(catalog.fields, store)
    if odd := [field for field in by_field if field not in catalog.fields]:
        raise Unusable(f"store= has options for {odd[0]!r}, but the fields are {', '.join(catalog.fields)}")
    sources: dict[tuple[str, int], Source] = {}
    of: list[int] = []
    for field, part in zip(catalog.fields, catalog.parts, strict=True):
        given = by_field.get(field)
        # Options are compared by identity: equal ones share an engine anyway.
        place = part.root, id(given)
        if place not in sources:
            sources[place] = open_source(part.root + part.base, given)[0]
        of.append([*sources].index(place))
    return Homes(tuple(sources.values()), tuple(of))


class GroupReading(_DrawnReading):
    """A ``Reading`` of the samples of ``batches``, several objects per sample, read ahead in order."""

    def __init__(self, dataset: _CatalogObjects, batches: Iterable[list[int]], workers: int) -> None:
        super().__init__(dataset)
        homes = dataset._homes  # noqa: SLF001  see _CatalogObjects
        self._of, count = homes.of, len(homes.sources)
        self._batches, self._number = iter(batches), -1
        # Their spans, by store, as far as the look-ahead of that store has not drawn them.
        self._spans: list[deque[Span]] = [deque() for _ in homes.sources]
        # The stores share one budget.
        self._aheads = [
            source.lookahead(self._draw(number), workers * count) for number, source in enumerate(homes.sources)
        ]
        self._needs = [(ahead, homes.of.count(number)) for number, ahead in enumerate(self._aheads)]
        self._counts = ReadCounts()
        for ahead in self._aheads:
            self._counts.opening_s += ahead.counts.opening_s
            ahead.counts = self._counts
        self._begun = count == 1

    def _draw(self, number: int) -> Iterator[Span]:
        """Yield the spans of one store; ``PAUSE`` while the next samples are not known yet."""
        spans = self._spans[number]
        while True:
            while spans:
                yield spans.popleft()
            batch = next(self._batches, None)
            if batch is None:
                return
            if batch:
                self._add(batch)
            else:
                yield PAUSE

    def _add(self, batch: list[int]) -> None:
        self._number += 1
        number, size, drawn, spans = self._number, len(batch), self._drawn, self._spans
        single = spans[0] if len(spans) == 1 else None
        for slot, (index, found) in enumerate(zip(batch, self._dataset.catalog.members(batch), strict=True)):
            drawn.append((number, slot, size, index, found))
            if single is not None:
                # A span is true; a missing object has none.
                single.extend(filter(None, found))
                continue
            for span, home in zip(found, self._of, strict=True):
                if span is not None:
                    spans[home].append(span)

    @property
    def counts(self) -> ReadCounts:
        return self._counts

    def begin(self) -> None:
        """Send the first requests now, to all stores."""
        self._begun = True
        for ahead in self._aheads:
            ahead.begin()

    def __next__(self) -> Item:
        if not self._begun:
            self.begin()
        while not self._drawn:
            batch = next(self._batches, None)
            if batch is None:
                self._end()
                raise StopIteration
            if batch:  # otherwise its samples are not known yet
                self._add(batch)
        row = self._drawn.popleft()
        return self._item(row, self._taken(row[4]))

    def _taken(self, spans: Spans) -> Reads:
        """Return the reads of a sample, complete."""
        aheads = self._aheads
        if len(aheads) == 1:
            advance = aheads[0].advance
            return [span and advance() for span in spans]
        return [span and aheads[home].advance() for span, home in zip(spans, self._of, strict=True)]

    def _is_ready(self, spans: Spans) -> bool:
        missing = spans.count(None)
        if missing and len(self._needs) > 1:
            return False
        return all(ahead.has_ready(count - missing) for ahead, count in self._needs)

    def _made(self, index: int, spans: Spans, reads: Reads) -> Any:  # noqa: ANN401  the transform decides the type
        return self._dataset._sample(index, spans, [read and read.take() for read in reads])  # noqa: SLF001  see _CatalogObjects

    def _url(self, spans: Spans) -> str:
        parts = self._dataset.catalog.parts
        return next(part.root + span.key for part, span in zip(parts, spans, strict=True) if span is not None)

    def _end(self) -> None:
        for ahead in self._aheads:
            # Ends the operation as done; closing would end it as cancelled.
            with suppress(StopIteration):
                ahead.advance()

    def close(self) -> None:
        for ahead in self._aheads:
            ahead.close()


def read_groups(dataset: _CatalogObjects, indices: Sequence[int]) -> list[Any]:
    """Return samples, with all requests of each store in flight at once; transform them in order."""
    homes = dataset._homes  # noqa: SLF001  see _CatalogObjects
    if len(homes.sources) > 1:
        return [each for made in in_lists(GroupReading(dataset, [[*indices]], 1)) for each in made]
    members = [*dataset.catalog.members(indices)]
    bodies = iter(homes.sources[0].read_many(homes.spans(members, 0)))
    return [
        dataset._sample(index, spans, [None if span is None else next(bodies) for span in spans])  # noqa: SLF001
        for index, spans in zip(indices, members, strict=True)
    ]


def grouped_sample(catalog: Catalog, spans: Any, data: list[Any], shared: Shared) -> Sample:  # noqa: ANN401  a tuple
    """Return a sample of several objects, given the span and the bytes of each; None for one that is missing."""
    values: dict[str, Sample | None] = {}
    first: Any = None
    for (field, root, form), mine, body in zip(catalog.homes, spans, data, strict=True):
        if mine is None:
            values[field] = None
        elif form is None:
            values[field] = Sample(root, mine, body, *shared)
        else:
            values[field] = made_sample(root, form, mine, body, shared)
        first = first or (mine and (root, mine))
    root, mine = first
    return FieldSample(root, mine, Fields(catalog.group_key(mine.key), values), *shared)
