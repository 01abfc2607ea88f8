"""``TokenReading``: samples of tokens are cut from runs that are each read by one request, or by one of each file."""

from __future__ import annotations

import operator
from collections import Counter, deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.data.reading.chunks import ChunkReading
from penstock.data.reading.reading import Failed, Item
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from penstock.data.order.schedule import Turn
    from penstock.data.reading.iteration import Iterations
    from penstock.data.tokens.runs import TokenRuns
    from penstock.data.tokens.windows import TokenPiece
    from penstock.engine.contracts.fetching import ReadOperation
    from penstock.values import Span

    Made = Callable[[int, NDArray[Any]], Any]
    Places = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


class TokenReading(ChunkReading["NDArray[Any]"]):
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

        ``made`` makes a sample of its number and its tokens, a view of a run; None: the sample is a view, as memory.
        ``together`` is the most samples that a thread makes before others take the next ones.
        """
        self._runs, self._made, self._together = runs, made, together
        self._places: deque[Places] = deque()  # of scheduled samples: run, first token in it, end
        self._next = 0  # of the first of these
        self._tokens: dict[int, memoryview] = {}  # of the runs that are held
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

    def _decode(self, chunk: int, read: ReadOperation | bytes | None) -> NDArray[Any]:
        if read is None:
            raise Unusable(f"the run {chunk} was not read")
        return self._held(chunk, read if isinstance(read, bytes) else read.take())

    def _decode_parts(self, chunk: int, reads: list[ReadOperation]) -> NDArray[Any]:
        return self._held(chunk, b"".join([read.take() for read in reads]))

    def _held(self, chunk: int, data: bytes) -> NDArray[Any]:
        tokens = np.frombuffer(data, self._runs.windows.dtype)
        self._tokens[chunk] = tokens.data
        return tokens

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
        name = partial(self._name, samples[0])
        return Item(batch, slot, size, name, partial(self._make, samples, *places), len(samples))

    def _name(self, sample: int) -> str:
        windows = self._runs.windows
        return windows.root + windows.key_of(sample)

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
            return Failed(self._name(sample), error)
