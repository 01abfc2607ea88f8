"""Runs: neighbouring samples of one object that are read in one request, and the reading that cuts samples from them.

Which samples are neighbours is known from the catalog; which of them are read together depends on the order. An order
of blocks, or catalog order, reads runs; a full permutation reads each sample by itself. A unit (a row group, a
compressed shard) is fetched and decoded once for all of its samples.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from penstock.data.catalog.contents import GAP_BYTES
from penstock.data.order.block_permutation import BlockShuffle
from penstock.data.order.lanes import Lanes, open_blocks
from penstock.data.order.orders import CatalogOrder, FullShuffle, order_of
from penstock.data.order.weighted import WeightedShuffle
from penstock.data.reading.chunks import Bounds, ChunkReading
from penstock.data.reading.objects import PARSING, span_url
from penstock.data.reading.reading import Item, Together
from penstock.errors import Damaged, PenstockError, Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.data.catalog.catalog import Catalog
    from penstock.data.catalog.columns.units import UnitRows
    from penstock.data.order.protocol import Order
    from penstock.data.order.schedule import Turn
    from penstock.data.reading.iteration import Iterations
    from penstock.data.shards.format import UnitFormat
    from penstock.engine.contracts.fetching import ReadOperation
    from penstock.source import Source
    from penstock.values import Span

    # Of a sample, its span, and its bytes; or its unit and its number in that.
    Made = Callable[[int, Span, Any], Any]


_BLOCK_BYTES = 1 << 20  # of a run in catalog order
_MOST_BYTES = 8 << 20  # of a run, whatever the blocks of an order are
_AHEAD_BYTES = 64 << 20
_MARGIN = 4096  # samples beyond a window whose runs are known
_AT_ONCE = 1 << 16  # rows that are handled together
_FEW = 32  # samples in a stretch, on the average, from which stretches are handled one by one
_LEAST_UNITS = 2  # units of a window, however large they are


class Runs(NamedTuple):
    """The runs of a dataset in some order."""

    catalog: Catalog
    # First sample of each run, and at the end the number of samples: int64, shape (runs + 1,).
    starts: NDArray[np.int64]
    blocks: int  # runs that are mixed with one another in each lane
    lanes: int | None  # lanes of the order; 0: one for each rank; None: the order has no lanes

    def of(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.searchsorted(self.starts, samples, side="right") - 1

    def span(self, run: int) -> Span:
        first, last = (self.catalog.span(int(self.starts[run + end]) - end) for end in (0, 1))
        return first._replace(stop=last.stop)

    def bounds(self, world: int, lanes: int) -> Bounds:
        """Return how far to read ahead: one window beyond the window in use; at least 64 MiB.

        ``lanes`` are those of the state that the run resumed from; 0: unknown.
        """
        blocks = self.blocks if self.lanes is None else open_blocks(self.blocks, lanes or self.lanes or world, world)
        count = max(len(self.starts) - 1, 1)
        mean_bytes = self.held_bytes() // count
        samples = 2 * blocks * (len(self.catalog) // count + 1) + _MARGIN
        window_bytes = blocks * mean_bytes
        return Bounds(window_bytes + max(window_bytes, _AHEAD_BYTES), samples)

    def held_bytes(self) -> int:
        return max(self.catalog.total_bytes, 0)


class UnitRuns(Runs):
    """The runs of samples in units: a run is a unit, regardless of the borders of an order's blocks."""

    __slots__ = ()

    def of(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        return cast("UnitRows", self.catalog.units).of(samples)

    def held_bytes(self) -> int:
        units = cast("UnitRows", self.catalog.units)
        return int(units.units.sizes()[units.of(self.starts[:-1])].sum())


def fitted_order(shuffle: object, catalog: Catalog) -> Order:
    """Return the order for ``shuffle=``, with blocks cut by the bytes of ``catalog``'s samples."""
    order = order_of(shuffle)
    if catalog.units is not None:
        return _unit_order(order, catalog)
    if isinstance(order, WeightedShuffle):
        return order.fitted(*classes_of([catalog], order.by)) if order.needs_classes else order
    return order.fitted(partial(block_sizes, catalog)) if isinstance(order, (BlockShuffle, Lanes)) else order


def _unit_order(order: Order, catalog: Catalog) -> Order:
    """Return ``order`` with windows of as many whole units as its bytes allow; refuse to decode units repeatedly."""
    if isinstance(order, (FullShuffle, WeightedShuffle)):
        raise Unusable(
            "shuffle=True would read and decode a whole unit (a row group, a compressed shard) for each sample, and so "
            "would ps.order.WeightedShuffle: pass shuffle=ps.order.Lanes(), which mixes several units and reads each "
            "once"
        )
    if not isinstance(order, (BlockShuffle, Lanes)):
        return order
    if order.block_bytes:
        window_bytes = order.block_bytes * (order.window_blocks or 1)
        fitted = order.fitted(partial(block_sizes, catalog))
        blocks = len(cast("NDArray[np.int64]", fitted.block_samples))
        held = UnitRuns(catalog, _unit_starts(catalog), 1, None).held_bytes()
        fits = max(_LEAST_UNITS, window_bytes * blocks // max(held, 1))
        return replace(fitted, window_blocks=min(fitted.window_blocks or 1, fits))
    if isinstance(order, BlockShuffle) or order.shuffle:
        borders = _borders(order, len(catalog))
        if not np.isin(borders[borders < len(catalog)], _unit_starts(catalog)).all():
            raise Unusable(
                "block_samples would cut units (row groups, compressed shards) apart, so that each block reads the "
                "whole unit: leave it out, and each block is one unit, or several small ones"
            )
    return order


def classes_of(catalogs: Sequence[Catalog], by: str) -> tuple[NDArray[np.int64], Sequence[str]]:
    """Return the class of each entry, by its number, and the names; ``by`` is "label", or a column of values."""
    if by == "label":
        return np.concatenate([catalog.labels for catalog in catalogs]), catalogs[0].classes
    for catalog in catalogs:
        if by not in catalog.columns:
            known = ", ".join(map(repr, catalog.columns)) or "none: with_columns(…) adds some"
            raise Unusable(f"the catalog has no column {by!r}; its columns are {known}")
    values = np.concatenate([np.asarray(catalog.columns[by]) for catalog in catalogs])
    found, numbers = np.unique(values, return_inverse=True)
    return numbers.astype(np.int64), [str(value) for value in found.tolist()]


def block_sizes(catalog: Catalog, block_bytes: int) -> NDArray[np.int64]:
    """Return the number of samples of each block of about ``block_bytes``; of samples in units, whole units."""
    if catalog.units is not None:
        return _unit_blocks(catalog, block_bytes)
    if catalog.extents(range(0)) is not None:
        return np.diff(_starts(catalog, block_bytes, np.zeros(0, np.int64)))
    before, last, found = 0, 0, [np.zeros(1, np.int64)]
    for first in range(0, len(catalog), _AT_ONCE):
        sizes = catalog[first : first + _AT_ONCE].sizes
        if (sizes < 0).any():
            raise Unusable(
                "blocks are cut by bytes, but not all sizes are known (from_objects, manifests without sizes): pass "
                "block_samples= to the order"
            )
        ends = np.cumsum(sizes) + before
        numbers = (ends - sizes) // block_bytes
        found.append(np.flatnonzero(np.diff(numbers, prepend=last)) + first)
        before, last = int(ends[-1]), int(numbers[-1])
    return np.diff(np.concatenate((*found, [len(catalog)]))) if len(catalog) else found[0][:0]


def runs_of(catalog: Catalog, order: Order) -> Runs | None:
    """Return the runs in which ``order`` reads ``catalog``; None if it reads sample by sample."""
    if catalog.units is not None:
        return _unit_runs(catalog, order)
    if catalog.extents(range(0)) is None:
        return None
    nothing = np.zeros(0, np.int64)
    if isinstance(order, CatalogOrder):
        return Runs(catalog, _starts(catalog, _BLOCK_BYTES, nothing), 1, None)
    if not isinstance(order, (BlockShuffle, Lanes)):
        return None
    lanes = (order.lanes or 0) if isinstance(order, Lanes) else None
    if isinstance(order, Lanes) and not order.shuffle:
        return Runs(catalog, _starts(catalog, _BLOCK_BYTES, nothing), 1, lanes)
    borders = _borders(order, len(catalog))
    starts = _starts(catalog, _MOST_BYTES, borders)
    # A block may be several runs.
    runs = -(-(len(starts) - 1) // max(len(borders), 1))
    return Runs(catalog, starts, (order.window_blocks or 1) * max(runs, 1), lanes)


def _unit_runs(catalog: Catalog, order: Order) -> UnitRuns:
    starts, lanes, blocks = _unit_starts(catalog), None, 1
    if isinstance(order, Lanes):
        lanes = order.lanes or 0
    if isinstance(order, BlockShuffle) or (isinstance(order, Lanes) and order.shuffle):
        runs = -(-(len(starts) - 1) // max(len(_borders(order, len(catalog))), 1))
        blocks = (order.window_blocks or 1) * max(runs, 1)
    return UnitRuns(catalog, starts, blocks, lanes)


def _borders(order: BlockShuffle | Lanes, samples: int) -> NDArray[np.int64]:
    """Return a border of each block of an order, as numbers of samples."""
    sizes = order.block_samples
    return np.arange(0, samples, sizes) if isinstance(sizes, int) else np.cumsum(np.asarray(sizes, dtype=np.int64))


def _unit_starts(catalog: Catalog) -> NDArray[np.int64]:
    """Return the first sample of each unit, and the number of samples."""
    total, found = len(catalog), [np.zeros(1, np.int64)]
    units = cast("UnitRows", catalog.units)
    for first in range(0, total, _AT_ONCE):
        numbers = units.of(np.arange(first, min(total, first + _AT_ONCE + 1)))
        found.append(np.flatnonzero(np.diff(numbers)) + first + 1)
    starts = np.concatenate(found)
    return np.append(starts[starts < total], total)


def _unit_blocks(catalog: Catalog, block_bytes: int) -> NDArray[np.int64]:
    """Return the number of samples of each block: a unit, or several small ones of about ``block_bytes`` together."""
    starts, units = _unit_starts(catalog), cast("UnitRows", catalog.units)
    held = np.cumsum(units.units.sizes()[units.of(starts[:-1])])
    number = np.concatenate(([0], held))[:-1] // block_bytes
    first = np.concatenate(([True], number[1:] != number[:-1])) if len(number) else np.zeros(0, bool)
    return np.diff(np.append(starts[:-1][first], starts[-1]))


def _starts(catalog: Catalog, most_bytes: int, borders: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first sample of each run, and the number of samples.

    A run ends where the next sample is in another object, precedes it, is too far after it, or begins in another
    piece of ``most_bytes`` of the object; and at each of ``borders``.
    """
    total, stretches = len(catalog), catalog.stretches
    found = [stretches, borders]
    if _FEW * len(stretches) > total:
        for first in range(0, total, _AT_ONCE):
            offsets = catalog.offsets(first, min(total, first + _AT_ONCE + 1))
            pieces = offsets.astype(np.int64) // most_bytes
            found.append(np.flatnonzero(pieces[1:] != pieces[:-1]) + first + 1)
    else:
        # Offsets ascend in a stretch, so that looking for the borders of pieces takes no step for each sample.
        for first, stop in pairwise(stretches.tolist()):
            offsets = catalog.offsets(first, stop)
            pieces = np.arange(int(offsets[0]) // most_bytes + 1, int(offsets[-1]) // most_bytes + 1) * most_bytes
            found.append(np.searchsorted(offsets, pieces.astype(offsets.dtype)) + first)
    # np.unique would hash each of them.
    starts = np.sort(np.concatenate(found), kind="stable")
    return np.append(starts[(starts < total) & (np.diff(starts, prepend=-1) > 0)], total)


def merged_spans(spans: Sequence[Span]) -> tuple[list[Span], list[tuple[int, int, int | None]]]:
    """Merge neighbouring ranges to spans of at most 8 MiB; return these, and the span and the place of each range."""
    read: list[Span] = []
    places: list[tuple[int, int, int | None]] = [(0, 0, 0)] * len(spans)
    for at in sorted(range(len(spans)), key=lambda at: (spans[at].key, spans[at].start)):
        span = spans[at]
        last = read[-1] if read else None
        if last is None or not _joins(last, span):
            read.append(span)
        elif (span.stop or 0) > (last.stop or 0):
            read[-1] = last._replace(stop=span.stop)
        start = read[-1].start
        places[at] = len(read) - 1, span.start - start, None if span.stop is None else span.stop - start
    return read, places


def _joins(last: Span, span: Span) -> bool:
    if last.whole or span.whole or last.stop is None or span.stop is None or last.key != span.key:
        return False
    return span.start <= last.stop + GAP_BYTES and span.stop - last.start <= _MOST_BYTES


class RunReading(ChunkReading[Any]):
    """Samples of batches, cut from runs that are each read by one request and kept until their last sample is made."""

    def __init__(
        self,
        source: Source,
        runs: Runs,
        batches: Iterable[list[int]],
        workers: int,
        made: Made,
        iterations: Iterations | None,
    ) -> None:
        """Read ``batches`` of samples; ``made`` makes a sample of its index, span and bytes."""
        self._runs, self._made, self._root = runs, made, runs.catalog.root
        self._together = Together()
        self._texts: dict[int, tuple[str, str]] = {}  # see Contents.spans
        self._numbers: deque[int] = deque()  # runs of the scheduled samples, in order
        world, lanes = (1, 0) if iterations is None else (iterations.rank().world, iterations.epochs.latest().lanes)
        super().__init__(source, batches, workers, runs.bounds(world, lanes))

    def _uses(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        numbers = self._runs.of(samples)
        self._numbers.extend(numbers.tolist())
        return numbers[:, np.newaxis]

    def _size_of(self, chunk: int) -> int:
        span = self._runs.span(chunk)
        return (span.stop or 0) - span.start

    def _locate(self, chunk: int) -> Span | list[Span]:
        return self._runs.span(chunk)

    def _decode(self, chunk: int, read: ReadOperation | bytes | None) -> Any:  # noqa: ANN401, ARG002  see the base class
        operation = cast("ReadOperation", read)
        return operation.span.start, memoryview(operation.take())

    def _most(self) -> int:
        return min(self._together.count, self._reach())

    def _item(self, turn: Turn) -> Item:
        batch, slot, size, samples = turn
        numbers = [self._numbers.popleft() for _ in samples]
        name = partial(self._name, samples[0])
        return Item(batch, slot, size, name, partial(self._make, samples, numbers), len(samples))

    def _name(self, sample: int) -> str:
        return span_url(self._root, self._runs.catalog.span(sample))

    def _make(self, samples: list[int], numbers: list[int]) -> list[Any]:
        """Return the samples; a ``Failed`` for each that cannot be read or made."""
        try:
            spans = self._runs.catalog.spans(samples, self._texts)
            return self._together.make(self._cut, self._name, samples, numbers, spans)
        finally:
            self._release(Counter(numbers), len(samples))

    def _cut(self, sample: int, number: int, span: Span) -> Any:  # noqa: ANN401  the transform decides the type
        start, data = self._value(number)
        stop = len(data) if span.stop is None else span.stop - start
        return self._made(sample, span, data[span.start - start : stop])


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
        """Keep the last range of a unit for later units, if its version is known: otherwise versions could mix."""
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
        message = f"bytes {span.start} to {span.stop} are not valid in a {form.name} file: {error!r}"
        raise Damaged(message, url=f"{catalog.root}{span.key}") from error
