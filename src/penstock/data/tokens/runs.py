"""Runs of token samples that are read together, by arithmetic, the order that fits them, and their reading.

A run is read in one request; in one of each file, if files are one stream and it crosses their borders.

A block of an order is cut to cells of at most 8 MiB, and a run is what a cell and a stretch have in common. The number
of a run is that of its cell plus that of its stretch: both only grow, so each pair has a unique sum.
"""

from __future__ import annotations

import operator
from collections import Counter, deque
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.data.datasets.windows import WindowRuns
from penstock.data.order.block_permutation import BlockShuffle
from penstock.data.order.lanes import Lanes, open_blocks
from penstock.data.order.orders import CatalogOrder, order_of
from penstock.data.reading.chunks import Bounds, ChunkReading
from penstock.data.reading.reading import Failed, Item
from penstock.data.tokens.rows import DecodedRows, PackedRows
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.data.order.protocol import Order
    from penstock.data.order.schedule import Turn
    from penstock.data.reading.iteration import Iterations
    from penstock.data.tokens.windows import TokenPiece, Windows
    from penstock.engine.contracts.fetching import ReadOperation
    from penstock.values import Span

    Made = Callable[[int, Any], Any]
    Places = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


_BLOCK_BYTES = 1 << 20  # of a run in catalog order
_MOST_BYTES = 8 << 20  # of a run, whatever the blocks of an order are
_AHEAD_BYTES = 64 << 20
_MARGIN = 4096  # samples beyond a window whose runs are known
_LEAST_BLOCKS = 2  # of packed rows in a window, however large they are
_AT_ONCE = 1 << 20  # units whose blocks are computed together


def fitted_order(shuffle: object, *windows: Windows | PackedRows) -> Order:
    """Return the order for ``shuffle=`` of all ``windows``, one after the other, with blocks cut by their bytes.

    Packed rows have blocks already: a window has as many of them as its bytes allow, at least two.
    """
    order = order_of(shuffle)
    if not isinstance(order, (BlockShuffle, Lanes)):
        return order
    rows = [each for each in windows if isinstance(each, PackedRows)]
    if not order.block_bytes:
        if rows and (isinstance(order, BlockShuffle) or order.shuffle):
            _check_blocks(order, windows)
        return order
    window_bytes = order.block_bytes * (order.window_blocks or 1)
    fitted = order.fitted(partial(_all_block_sizes, windows))
    if not rows:
        return fitted
    largest = max(len(each) * each.mean_bytes // max(len(each.starts) - 1, 1) for each in rows)
    fits = max(_LEAST_BLOCKS, window_bytes // max(largest, 1))
    return replace(fitted, window_blocks=min(fitted.window_blocks or 1, fits))


def _all_block_sizes(windows: Sequence[Windows | PackedRows], block_bytes: int) -> int | NDArray[np.int64]:
    found = []
    for each in windows:
        sizes, count = block_sizes(each, block_bytes), len(each)
        if isinstance(sizes, int) and len(windows) == 1:
            return sizes
        found.append(np.diff(np.arange(0, count, sizes), append=count) if isinstance(sizes, int) else sizes)
    return np.concatenate(found)


def _check_blocks(order: BlockShuffle | Lanes, windows: Sequence[Windows | PackedRows]) -> None:
    """Refuse blocks of an order whose borders lie within blocks of packed rows."""
    sizes, first = order.block_samples, 0
    total = sum(map(len, windows))
    borders = np.arange(0, total, sizes) if isinstance(sizes, int) else np.cumsum(np.asarray(sizes, np.int64))
    for each in windows:
        inner = borders[(borders >= first) & (borders < first + len(each))] - first
        if isinstance(each, PackedRows) and not np.isin(inner, each.starts).all():
            raise Unusable(
                "block_samples would cut blocks of packed rows apart, so that each part reads the whole block: leave "
                "it out, and the order takes these blocks"
            )
        first += len(each)


def block_sizes(windows: Windows | PackedRows, block_bytes: int) -> int | NDArray[np.int64]:
    """Return the number of samples of a block; of each block, if samples have different lengths, or are packed."""
    if isinstance(windows, PackedRows):
        return np.diff(windows.starts)
    if windows.shape.length:
        return max(1, block_bytes // windows.mean_bytes)
    return np.diff(_cuts(windows, block_bytes), append=len(windows))


def runs_of(windows: Windows | PackedRows, order: Order) -> TokenRuns:
    """Return the runs in which ``order`` reads; an order without blocks reads each sample by itself."""
    blocks = 1
    lanes = (order.lanes or 0) if isinstance(order, Lanes) else None
    if isinstance(order, CatalogOrder) or (isinstance(order, Lanes) and not order.shuffle):
        sizes = fitted_order(BlockShuffle(block_bytes=_BLOCK_BYTES), windows).block_samples  # type: ignore[attr-defined]
    elif isinstance(order, (BlockShuffle, Lanes)):
        sizes, blocks = order.block_samples, order.window_blocks or 1
    else:
        sizes = 1
    if not windows.joined:
        # Each window is a request, and a block as many.
        return TokenRuns(windows, 1, 1, blocks * _mean(sizes, windows), lanes)
    most = max(1, _MOST_BYTES // windows.mean_bytes)
    mean = _mean(sizes, windows)
    if isinstance(sizes, int) and sizes == 1:
        return TokenRuns(windows, 1, 1, blocks, lanes)
    if isinstance(windows, PackedRows):
        return TokenRuns(windows, windows.starts[:-1], 0, blocks * mean, lanes)
    if isinstance(sizes, int) and windows.shape.length:
        return TokenRuns(windows, sizes, min(sizes, most), blocks * sizes, lanes)
    if isinstance(sizes, int):
        borders = np.arange(0, len(windows), sizes)
    else:
        given = np.asarray(sizes, dtype=np.int64)
        borders = np.cumsum(given) - given
    if windows.shape.length:
        borders = _divide_runs(borders, len(windows), most)
    else:
        borders = np.concatenate((borders, _cuts(windows, _MOST_BYTES)))
    return TokenRuns(windows, np.unique(borders[borders < len(windows)]), 0, blocks * mean, lanes)


def _mean(sizes: object, windows: Windows | PackedRows) -> int:
    return sizes if isinstance(sizes, int) else -(-len(windows) // max(len(sizes), 1))  # type: ignore[arg-type]


def _cuts(windows: Windows, block_bytes: int) -> NDArray[np.int64]:
    """Return the first sample of each block of about ``block_bytes``; each unit is a sample."""
    found, last = [np.zeros(min(len(windows), 1), np.int64)], 0
    for first in range(0, len(windows), _AT_ONCE):
        numbers = windows.positions(first, min(first + _AT_ONCE, len(windows))) // block_bytes
        found.append(np.flatnonzero(np.diff(numbers, prepend=last)) + first)
        last = int(numbers[-1])
    return np.unique(np.concatenate(found))


def _divide_runs(borders: NDArray[np.int64], total: int, most: int) -> NDArray[np.int64]:
    """Return the borders, and further borders every ``most`` samples."""
    counts = -(-np.diff(borders, append=total) // most)
    steps = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    found: NDArray[np.int64] = np.repeat(borders, counts) + steps * most
    return found


class TokenRuns(WindowRuns):
    """The runs of an order over ``windows``."""

    def __init__(
        self, windows: Windows | PackedRows, block: int | NDArray[np.int64], piece: int, mixed: int, lanes: int | None
    ) -> None:
        """Compute the first run of each stretch.

        ``block`` is the samples of each block, cut to cells of ``piece`` samples; or the first sample of each cell.
        ``mixed`` counts samples of the blocks that are mixed in each lane.
        """
        self.windows = windows
        self._block, self._piece, self._mixed, self._lanes = block, piece, mixed, lanes
        stretches = windows.stretches.values
        self._firsts = self._cells(stretches) + np.arange(len(stretches))

    def of(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        stretches = np.searchsorted(self.windows.stretches.values, samples, side="right") - 1
        return self._cells(samples) + stretches

    def piece(self, run: int) -> TokenPiece:
        first, stop = self.bounds(run)
        return self.windows.piece(first, stop - 1)

    def spans(self, run: int) -> list[Span]:
        return self.piece(run).spans

    def bounds(self, run: int) -> tuple[int, int]:
        """Return the first sample of a run, and the one after its last."""
        stretches = self.windows.stretches.view
        stretch = int(np.searchsorted(self._firsts, run, side="right")) - 1
        cell = run - stretch
        end = stretches[stretch + 1] if stretch + 1 < len(stretches) else len(self.windows)
        return max(self._first(cell), stretches[stretch]), min(self._first(cell + 1), end)

    def __iter__(self) -> Iterator[Span]:
        sample = 0
        while sample < len(self.windows):
            run = int(self.of(np.array([sample]))[0])
            yield from self.spans(run)
            sample = self.bounds(run)[1]

    def limits(self, world: int, lanes: int) -> Bounds:
        """Return how far to read ahead: two windows of blocks: one in use, one arriving.

        ``lanes`` are those of the state that the run resumed from; 0: unknown.
        """
        mixed = self._mixed if self._lanes is None else open_blocks(self._mixed, lanes or self._lanes or world, world)
        return Bounds(2 * mixed * self.windows.mean_bytes + _AHEAD_BYTES, 2 * mixed + _MARGIN)

    def _cells(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        block, piece = self._block, self._piece
        found: NDArray[np.int64]
        if not isinstance(block, int):
            found = np.searchsorted(block, samples, side="right") - 1
        else:
            found = samples // block * -(-block // piece) + samples % block // piece
        return found

    def _first(self, cell: int) -> int:
        """Return the first sample of a cell; for the number after the last cell, the number of samples or more."""
        block, piece = self._block, self._piece
        if not isinstance(block, int):
            return int(block[cell]) if cell < len(block) else len(self.windows)
        number, part = divmod(cell, -(-block // piece))
        return number * block + part * piece


class TokenReading(ChunkReading["NDArray[Any] | DecodedRows"]):
    """Samples of batches, cut from runs, which are kept until their last sample is made."""

    def __init__(
        self,
        runs: TokenRuns,
        batches: Iterable[list[int]],
        workers: int,
        made: Made | None,
        together: int,
        iterations: Iterations | None,
    ) -> None:
        """Read ``batches`` of samples.

        ``made`` makes a sample of its number and its tokens, a view of a run, or its packed row; None: the sample is
        the view, as memory, or the row.
        ``together`` is the most samples that a thread makes before others take the next ones.
        """
        self._runs, self._made, self._together = runs, made, together
        self._places: deque[Places] = deque()  # of scheduled samples: run, first token in it, end
        self._next = 0  # of the first of these
        self._tokens: dict[int, memoryview | DecodedRows] = {}  # of the runs that are held
        self._known: dict[int, TokenPiece] = {}  # of the runs that are held or come next
        world, lanes = (1, 0) if iterations is None else (iterations.rank().world, iterations.epochs.latest().lanes)
        super().__init__(runs.windows.source, batches, workers, runs.limits(world, lanes))

    def _uses(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        numbers = self._runs.of(samples)
        found, places = np.unique(numbers, return_inverse=True)
        firsts = np.array([self._piece(number).start for number in found.tolist()], dtype=np.int64)[places]
        item = self._runs.windows.dtype.itemsize
        starts, stops = self._runs.windows.places(samples)
        self._places.append((numbers, (starts - firsts) // item, (stops - firsts) // item))
        return numbers[:, np.newaxis]

    def _piece(self, run: int) -> TokenPiece:
        piece = self._known.get(run)
        if piece is None:
            piece = self._known[run] = self._runs.piece(run)
        return piece

    def _size_of(self, chunk: int) -> int:
        return sum([(span.stop or 0) - span.start for span in self._piece(chunk).spans])

    def _locate(self, chunk: int) -> Span | list[Span] | bytes:
        spans = self._piece(chunk).spans
        if len(spans) > 1:
            return spans
        # A run of empty documents has none.
        return spans[0] if spans else b""

    def _decode(self, chunk: int, read: ReadOperation | bytes | None) -> NDArray[Any] | DecodedRows:
        if read is None:
            raise Unusable(f"the run {chunk} has not been read")
        return self._held(chunk, [read if isinstance(read, bytes) else read.take()])

    def _decode_parts(self, chunk: int, reads: list[ReadOperation]) -> NDArray[Any] | DecodedRows:
        return self._held(chunk, [read.take() for read in reads])

    def _held(self, chunk: int, parts: list[bytes]) -> NDArray[Any] | DecodedRows:
        found = self._runs.windows.decode(self._piece(chunk), parts)
        self._tokens[chunk] = found if isinstance(found, DecodedRows) else found.data
        return found

    def _most(self) -> int:
        return min(self._together, self._reach())

    def _item(self, turn: Turn) -> Item:
        batch, slot, size, samples = turn
        # Batches are drawn whole, so that the places of a turn are in one piece.
        first, stop = self._next, self._next + len(samples)
        places = [each[first:stop].tolist() for each in self._places[0]]
        self._next = stop
        if stop == len(self._places[0][0]):
            self._places.popleft()
            self._next = 0
        name = partial(self._runs.windows.url_of, samples[0])
        return Item(batch, slot, size, name, partial(self._make, samples, *places), len(samples))

    def _make(self, samples: list[int], numbers: list[int], starts: list[int], stops: list[int]) -> list[Any]:
        """Return the samples; a ``Failed`` for each that cannot be read or made."""
        uses = Counter(numbers)
        try:
            if self._made is None:
                with suppress(KeyError):  # the run has failed
                    found: Iterable[Any] = map(self._tokens.__getitem__, numbers)
                    return [*map(operator.getitem, found, map(slice, starts, stops))]
            return [*map(self._attempted, samples, numbers, starts, stops)]
        finally:
            for number in self._release(uses, len(samples)):
                self._tokens.pop(number, None)
                self._known.pop(number, None)

    def _attempted(self, sample: int, number: int, start: int, stop: int) -> Any:  # noqa: ANN401  a sample
        try:
            view = self._value(number)[start:stop]
            return view if self._made is None else self._made(sample, view)
        except Exception as error:  # noqa: BLE001  the sample's own
            return Failed(self._runs.windows.url_of(sample), error)
