"""Samples of several objects: the objects of a sample are read together, in one look-ahead for each store."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import tee
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.data.datasets.reading import Item, Reading
from penstock.engine.contracts.fetching import ReadCounts
from penstock.errors import Unusable
from penstock.source import open_source
from penstock.values import PAUSE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.data.catalog.catalog import Catalog
    from penstock.engine.contracts.fetching import ReadOperation
    from penstock.options import StoreOptions
    from penstock.source import Source
    from penstock.values import Span

    Spans = tuple[Span | None, ...]

__all__ = ["GroupReading", "Homes", "homes_of", "read_groups"]


class Homes(NamedTuple):
    """The stores of the fields of a grouped catalog.

    Attributes:
        sources: The stores, each once.
        of: For each field, the number of its store.

    """

    sources: tuple[Source, ...]
    of: tuple[int, ...]

    def spans(self, members: Iterable[Spans], number: int) -> Iterator[Span]:
        """Yield the spans of one store; ``PAUSE`` for samples that are not known yet, whose spans are ()."""
        fields = [field for field, home in enumerate(self.of) if home == number]
        for spans in members:
            if not spans:
                yield PAUSE
                continue
            for field in fields:
                if (span := spans[field]) is not None:
                    yield span


def homes_of(catalog: Catalog, store: StoreOptions | str | Mapping[str, StoreOptions | str] | None) -> Homes:
    """Return the stores of a grouped catalog's fields; no request.

    Args:
        catalog: The catalog.
        store: Options, or the name of a profile, for all fields; or a mapping with those of some fields.

    Raises:
        Unusable: ``store`` names a field that the catalog does not have.

    """
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


class _Turn(NamedTuple):
    """The next sample, with the spans of its objects."""

    batch: int
    slot: int
    size: int
    sample: int
    spans: Spans


class GroupReading(Reading):
    """A ``Reading`` of the samples of ``batches``, several objects per sample, read ahead in order."""

    def __init__(self, dataset: Any, batches: Iterable[list[int]], workers: int) -> None:  # noqa: ANN401  see _Dataset
        """Prepare to read; the first read begins with the first ``next``."""
        self._dataset: _Dataset = dataset
        homes = self._dataset._homes  # noqa: SLF001  see _Dataset
        self._of, count = homes.of, len(homes.sources)
        self._turns, *copies = tee(_turns(dataset.catalog, batches), 1 + count)
        self._aheads = [
            # The stores share one budget.
            source.lookahead(homes.spans(map(_SPANS, copy), number), workers * count)
            for number, (source, copy) in enumerate(zip(homes.sources, copies, strict=True))
        ]
        self._counts = ReadCounts()
        for ahead in self._aheads:
            self._counts.opening_s += ahead.counts.opening_s
            ahead.counts = self._counts
        self._begun = count == 1

    @property
    def counts(self) -> ReadCounts:
        """The counts of the reads so far, of the samples that were taken."""
        return self._counts

    def begin(self) -> None:
        """Send the first requests now, to all stores."""
        self._begun = True
        for ahead in self._aheads:
            ahead.begin()

    def __next__(self) -> Item:
        """Return the next item as soon as its bytes have arrived or a read has failed."""
        if not self._begun:
            self.begin()
        aheads = self._aheads
        turn = next(self._turns, None)
        while turn is not None and not turn[-1]:  # samples that were not known yet
            turn = next(self._turns, None)
        if turn is None:
            for ahead in aheads:
                # Ends the operation as done; closing would end it as cancelled.
                with suppress(StopIteration):
                    ahead.advance()
            raise StopIteration
        batch, slot, size, index, spans = turn
        reads: list[ReadOperation | None] = []
        for span, home in zip(spans, self._of, strict=True):
            reads.append(None if span is None else aheads[home].advance())
        dataset = self._dataset
        return Item(
            batch,
            slot,
            size,
            lambda: _url(dataset.catalog, spans),
            lambda: dataset._sample(index, spans, [read and read.take() for read in reads]),  # noqa: SLF001  see _Dataset
        )

    def close(self) -> None:
        """Cancel reads in flight."""
        for ahead in self._aheads:
            ahead.close()


_SPANS = attrgetter("spans")
_new = tuple.__new__


def _turns(catalog: Catalog, batches: Iterable[list[int]]) -> Iterator[_Turn]:
    number = 0
    for batch in batches:
        size = len(batch)
        if not size:
            yield _Turn(number, 0, 0, 0, ())
            continue
        for slot, (index, spans) in enumerate(zip(batch, catalog.members(batch), strict=True)):
            yield _new(_Turn, (number, slot, size, index, spans))
        number += 1


def _url(catalog: Catalog, spans: Spans) -> str:
    """Return the URL of the sample's first object."""
    first = next(each for each, span in enumerate(spans) if span is not None)
    return catalog.parts[first].root + spans[first].key  # type: ignore[union-attr]


def read_groups(dataset: Any, indices: Sequence[int]) -> list[Any]:  # noqa: ANN401  see _Dataset
    """Return samples, with all requests of each store in flight at once; transform them in order."""
    homes: Homes = dataset._homes  # noqa: SLF001  see _Dataset
    if len(homes.sources) > 1:
        with GroupReading(dataset, [[*indices]], 1) as reading:
            return [item.make() for item in reading]
    members = [*dataset.catalog.members(indices)]
    bodies = iter(homes.sources[0].read_many(homes.spans(members, 0)))
    return [
        dataset._sample(index, spans, [None if span is None else next(bodies) for span in spans])  # noqa: SLF001
        for index, spans in zip(indices, members, strict=True)
    ]
