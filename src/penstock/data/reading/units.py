"""Samples in units: a unit (a row group, a compressed shard) is fetched and decoded once for all of its samples."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from penstock.data.reading.objects import PARSING
from penstock.data.reading.runs import RunReading
from penstock.errors import Damaged, PenstockError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from penstock.data.catalog.catalog import Catalog
    from penstock.data.catalog.columns.units import UnitRows
    from penstock.data.reading.iteration import Iterations
    from penstock.data.reading.runs import Made, Runs
    from penstock.data.shards.format import UnitFormat
    from penstock.engine.contracts.fetching import ReadOperation
    from penstock.source import Source
    from penstock.values import Span

# Ranges that units have in common (footers), and that a reading keeps; and the bytes of the largest.
_SHARED, _SHARED_BYTES = 64, 1 << 20


def unit_url(catalog: Catalog, sample: int) -> str:
    """Return the URL of a sample in a unit, for reports: its shard and its number, ``…/a.parquet#sample=17``."""
    _, first, number = cast("UnitRows", catalog.units).place(sample)
    return f"{catalog.root}{catalog.span(sample).key}#sample={first + number}"


class UnitReading(RunReading):
    """Samples of batches whose units are each fetched and decoded once, and kept until their last sample is made."""

    def __init__(
        self,
        source: Source,
        runs: Runs,
        batches: Iterable[list[int]],
        workers: int,
        made: Made,
        iterations: Iterations | None,
    ) -> None:
        """Read ``batches`` of samples; ``made`` makes a sample of its index, its unit's span, and unit and number."""
        self._catalog, self._units = runs.catalog, cast("UnitRows", runs.catalog.units)
        self._sizes = self._units.units.sizes()
        self._entries: dict[int, int] = {}  # a sample of each unit that was scheduled
        self._shared: dict[Span, bytes] = {}  # last ranges of units, the latest last
        self._lent: dict[int, tuple[Span, bytes]] = {}  # for each unit that is not decoded yet, its last range
        super().__init__(source, runs, batches, workers, made, iterations)

    def _uses(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        numbers = super()._uses(samples)
        found, at = np.unique(numbers, return_index=True)
        self._entries.update(zip(found.tolist(), samples[at].tolist(), strict=True))
        return numbers

    def _size_of(self, chunk: int) -> int:
        return int(self._sizes[chunk])

    def _locate(self, chunk: int) -> list[Span]:
        spans = self._units.spans(self._entries[chunk])
        with self._lock:
            known = self._shared.get(spans[-1]) if len(spans) > 1 else None
            if known is not None:
                self._lent[chunk] = spans.pop(), known
        return spans

    def _decode_parts(self, chunk: int, reads: list[ReadOperation]) -> Any:  # noqa: ANN401  as the format returns it
        found = [(each.span, each.take()) for each in reads]
        with self._lock:
            lent = self._lent.pop(chunk, None)
            if lent is not None:
                found.append(lent)
            if len(found) > 1:
                self._share(*found[-1])
        return _decode_unit(self._catalog, self._entries[chunk], iter(found))

    def _share(self, span: Span, data: bytes) -> None:
        """Keep the last range of a unit for later ones; only of a known version, as another one may have been read."""
        if span.etag and len(data) <= _SHARED_BYTES:
            self._shared.pop(span, None)
            self._shared[span] = data
            while len(self._shared) > _SHARED:
                del self._shared[next(iter(self._shared))]

    def _name(self, sample: int) -> str:
        return unit_url(self._catalog, sample)

    def _cut(self, sample: int, number: int, span: Span) -> Any:  # noqa: ANN401  the transform decides the type
        return self._made(sample, span, (self._value(number), self._units.place(sample).number))


def read_units(catalog: Catalog, source: Source, made: Made, samples: list[int]) -> list[Any]:
    """Return samples in units, in order; each unit is read and decoded once, and released after its last sample."""
    units = cast("UnitRows", catalog.units)
    places = [units.place(sample) for sample in samples]
    left, values = Counter(place.unit for place in places), dict[int, Any]()
    first: dict[int, int] = {}
    for sample, place in zip(samples, places, strict=True):
        first.setdefault(place.unit, sample)
    spans = [span for sample in first.values() for span in units.spans(sample)]
    found = list[Any]()
    with source.lookahead(iter(spans)) as bodies:
        coming = zip(spans, bodies, strict=False)
        for sample, (unit, _, number) in zip(samples, places, strict=True):
            if unit not in values:
                count = len(units.spans(sample))
                values[unit] = _decode_unit(catalog, sample, (next(coming) for _ in range(count)))
            found.append(made(sample, catalog.span(sample), (values[unit], number)))
            left[unit] -= 1
            if not left[unit]:
                del values[unit]
    return found


def _decode_unit(catalog: Catalog, sample: int, found: Iterator[tuple[Span, bytes]]) -> Any:  # noqa: ANN401  the format's
    units, form = cast("UnitRows", catalog.units), cast("UnitFormat", catalog.format)
    pieces = units.pieces(sample, found)
    span = catalog.span(sample)
    try:
        return form.decode(pieces, units.place(sample).first)
    except PenstockError as error:
        error.url = error.url or f"{catalog.root}{span.key}"
        raise
    except PARSING as error:
        message = f"bytes {span.start} to {span.stop} are not those of a {form.name} file: {error!r}"
        raise Damaged(message, url=f"{catalog.root}{span.key}") from error
