"""Samples of several objects: the objects of a sample are read together, in one look-ahead for each store."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.data.reading.objects import made_sample
from penstock.data.reading.reading import Item, Reading, Together, in_lists
from penstock.data.reading.sample import FieldSample, Sample
from penstock.data.shards.format import Fields
from penstock.engine.contracts.fetching import ReadCounts
from penstock.errors import Unusable
from penstock.source import open_source
from penstock.values import PAUSE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.data.catalog.catalog import Catalog
    from penstock.data.reading.objects import Shared
    from penstock.engine.contracts.fetching import ReadOperation
    from penstock.options import StoreOptions
    from penstock.source import Source
    from penstock.values import Span

    Spans = tuple[Span | None, ...]
    Reads = list[ReadOperation | None]


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


class _Dataset:
    """The part of a ``CatalogDataset`` that this module uses; that class imports this module."""

    catalog: Catalog
    _homes: Homes

    def _sample(self, index: int, span: Any, data: Any) -> Any: ...  # noqa: ANN401


class GroupReading(Reading):
    """A ``Reading`` of the samples of ``batches``, several objects per sample, read ahead in order."""

    def __init__(self, dataset: Any, batches: Iterable[list[int]], workers: int) -> None:  # noqa: ANN401  see _Dataset
        self._dataset: _Dataset = dataset
        homes = self._dataset._homes  # noqa: SLF001  see _Dataset
        self._of, count = homes.of, len(homes.sources)
        self._batches, self._number = iter(batches), -1
        # Samples that were drawn and not taken: batch, slot, samples of the batch, index, spans.
        self._drawn: deque[tuple[int, int, int, int, Spans]] = deque()
        # Their spans, by store, as far as the look-ahead of that store has not drawn them.
        self._spans: list[deque[Span]] = [deque() for _ in homes.sources]
        self._aheads = [
            # The stores share one budget.
            source.lookahead(self._draw(number), workers * count)
            for number, source in enumerate(homes.sources)
        ]
        self._needs = [(ahead, homes.of.count(number)) for number, ahead in enumerate(self._aheads)]
        self._together = Together()
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
        drawn, together = self._drawn, self._together
        while not drawn:
            batch = next(self._batches, None)
            if batch is None:
                self._end()
                raise StopIteration
            if batch:  # otherwise its samples are not known yet
                self._add(batch)
        number, slot, size, index, spans = drawn.popleft()
        reads = self._taken(spans)
        name = partial(_url, self._dataset.catalog, spans)
        if together.count == 1:
            return Item(number, slot, size, name, partial(together.one, self._made, index, spans, reads))
        samples, members, arrived = [index], [spans], [reads]
        while len(samples) < together.count and drawn and drawn[0][0] == number and self._is_ready(drawn[0][-1]):
            *_, index, spans = drawn.popleft()
            samples.append(index)
            members.append(spans)
            arrived.append(self._taken(spans))
        return Item(number, slot, size, name, partial(self._make, samples, members, arrived), len(samples))

    def _taken(self, spans: Spans) -> Reads:
        """Return the reads of a sample, complete."""
        aheads = self._aheads
        if len(aheads) == 1:
            advance = aheads[0].advance
            return [span and advance() for span in spans]
        return [span and aheads[home].advance() for span, home in zip(spans, self._of, strict=True)]

    def _is_ready(self, spans: Spans) -> bool:
        """Return whether the objects of the next sample have all arrived."""
        missing = spans.count(None)
        if missing and len(self._needs) > 1:
            return False
        return all(ahead.has_ready(count - missing) for ahead, count in self._needs)

    def _make(self, samples: list[int], spans: list[Spans], reads: list[Reads]) -> list[Any]:
        def name(index: int) -> str:
            return _url(self._dataset.catalog, spans[samples.index(index)])

        return self._together.make(self._made, name, samples, spans, reads)

    def _made(self, index: int, spans: Spans, reads: Reads) -> Any:  # noqa: ANN401  the transform decides the type
        return self._dataset._sample(index, spans, [read and read.take() for read in reads])  # noqa: SLF001  see _Dataset

    def _end(self) -> None:
        for ahead in self._aheads:
            # Ends the operation as done; closing would end it as cancelled.
            with suppress(StopIteration):
                ahead.advance()

    def close(self) -> None:
        for ahead in self._aheads:
            ahead.close()


def _url(catalog: Catalog, spans: Spans) -> str:
    """Return the URL of the sample's first object."""
    first = next(each for each, span in enumerate(spans) if span is not None)
    return catalog.parts[first].root + spans[first].key  # type: ignore[union-attr]


def read_groups(dataset: Any, indices: Sequence[int]) -> list[Any]:  # noqa: ANN401  see _Dataset
    """Return samples, with all requests of each store in flight at once; transform them in order."""
    homes: Homes = dataset._homes  # noqa: SLF001  see _Dataset
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
