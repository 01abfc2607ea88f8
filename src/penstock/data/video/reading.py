"""Runs of neighbouring clips, which are read together in any order, and the reading that makes samples of them.

``ClipContents`` describes the samples of a dataset of clips, which may be of several files each, as those of several
cameras are. A run is some neighbouring samples of one block; its byte ranges may be of several files.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections import deque
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from penstock.data.datasets.windows import WindowRuns
from penstock.data.order.block_permutation import BlockShuffle
from penstock.data.order.lanes import Lanes, open_blocks
from penstock.data.order.orders import CatalogOrder, order_of
from penstock.data.order.sampling import Repeat
from penstock.data.reading.chunks import Bounds, ChunkReading
from penstock.data.reading.reading import Item
from penstock.data.video.packets import HeldBytes
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.data.catalog.columns.column import Column
    from penstock.data.order.protocol import Order
    from penstock.data.order.schedule import Turn
    from penstock.data.reading.iteration import Iterations
    from penstock.data.reading.sample import Sample
    from penstock.data.video.frames import Ints, Table, Videos
    from penstock.engine.contracts.fetching import ReadOperation
    from penstock.source import Source

    Held = dict[str, HeldBytes]  # by the key of each file
    _Made = TypeVar("_Made", bound=Sample)

_BLOCK_BYTES = 1 << 20  # of a run in catalog order
_MOST_BYTES = 8 << 20  # of a run, however large the blocks of an order are
_AHEAD_BYTES = 64 << 20
_MARGIN = 4096  # samples beyond a window whose runs are known
_PROBES = 16  # runs whose bytes are added up for the mean


class ClipContents(ABC):
    """The samples of a dataset of clips, by number: the ``Contents`` of its state.

    Attributes:
        source: Store of the files.
        base: The prefix of their keys that is not part of their names.
    """

    source: Source
    base: str
    _slice: tuple[int, int]  # the first sample, and the end, among those of the whole dataset

    def __len__(self) -> int:
        return self._slice[1] - self._slice[0]

    def part(self, first: int, stop: int) -> Self:
        """Return samples ``first`` to ``stop``."""
        found = copy(self)
        # Cached, as every state contains it.
        found.__dict__.pop("digest", None)
        found._slice = self._slice[0] + first, self._slice[0] + stop  # noqa: SLF001  itself
        return found

    @property
    def root(self) -> str:
        return self.source.root

    @property
    @abstractmethod
    def digest(self) -> str:
        """Digest of the files and of how samples are cut from them."""

    @property
    @abstractmethod
    def total_bytes(self) -> int:
        """Bytes of the frames of all samples, by the mean of the files: what a read of each exact frame would take."""

    @abstractmethod
    def block_sizes(self, block_bytes: int) -> Ints:
        """Return the samples of each block of about ``block_bytes``; no block crosses the border of two files."""

    @abstractmethod
    def spans_of(self, first: int, stop: int) -> list[Span]:
        """Return the byte ranges that some neighbouring samples of one block need."""

    @abstractmethod
    def url_of(self, sample: int) -> str:
        """Return the URL of the file of a sample."""


class FileWindows(ClipContents):
    """Samples that are windows of single files, by arithmetic: no table has an entry for each."""

    def __init__(self, videos: Videos, counts: Ints, labels: Column | None) -> None:
        """Take ``counts``, the samples of each file, and ``labels``, the label of each file."""
        self.videos, self.labels = videos, labels
        self.source, self.base = videos.source, videos.base
        self._firsts = np.append(0, np.cumsum(counts))
        self._slice = (0, int(self._firsts[-1]))

    @abstractmethod
    def _find_starts(self, table: Table, file: int, first: int, stop: int) -> Ints:
        """Return the number of the first packet that each of some neighbouring samples of a file needs."""

    def file_of(self, sample: int) -> int:
        return int(np.searchsorted(self._firsts, sample + self._slice[0], side="right")) - 1

    def numbers_in(self, file: int, first: int, stop: int) -> Ints:
        """Return the numbers, within their file, of samples ``first`` to ``stop``."""
        numbers: Ints = np.arange(first, stop) + self._slice[0] - self._firsts[file]
        return numbers

    def block_sizes(self, block_bytes: int) -> Ints:
        """Return the samples of each block: a block begins with a packet, and ends with its file."""
        begin, end = self._slice
        borders = [np.clip(self._firsts - begin, 0, end - begin)]
        for file in range(self.file_of(0), self.file_of(len(self) - 1) + 1 if len(self) else 0):
            first, stop = (int(each) for each in borders[0][file : file + 2])
            table = self.videos.table(file)
            places = table.places_of(0, len(table.sizes))[0][self._find_starts(table, file, first, stop)]
            borders.append(np.flatnonzero(np.diff((places - places[:1]) // block_bytes)) + 1 + first)
        return np.diff(np.unique(np.concatenate(borders)))

    def url_of(self, sample: int) -> str:
        return self.videos.url_of(self.file_of(sample))

    def _span(self, file: int, start: int = 0, stop: int | None = None) -> Span:
        return Span(self.videos.keys[file], start, stop, self.videos.etags[file])

    def _describe(self, made: _Made, sample: int, file: int) -> _Made:
        """Return a sample with its label, and whether it is a repeat."""
        made.repeat = type(sample) is Repeat
        if self.labels is not None:
            made.label = self.labels.numbers.view[file]
        return made

    def _hash(self, *values: Any) -> str:  # noqa: ANN401  JSON
        """Return the digest of the names and sizes of the files, and of JSON values."""
        names = [key[len(self.base) :] for key in self.videos.keys]
        numbers = self.videos.sizes, *values, self._slice
        return hashlib.sha256(json.dumps([1, names, *numbers]).encode()).hexdigest()[:32]


def fit_order(shuffle: object, contents: ClipContents) -> Order:
    """Return the order for ``shuffle=``, with blocks cut by the bytes of the files."""
    order = order_of(shuffle)
    return order.fitted(contents.block_sizes) if isinstance(order, (BlockShuffle, Lanes)) else order


class ClipRuns(WindowRuns):
    """The runs in which an order reads; an order without blocks reads each sample by itself."""

    def __init__(self, contents: ClipContents, order: Order) -> None:
        self.contents = contents
        self._lanes = (order.lanes or 0) if isinstance(order, Lanes) else None
        self._blocks, count = 1, len(contents)
        self._starts: Ints | None = None  # first sample of each run, and the end; None: each sample is one
        sizes: Any = 1
        if isinstance(order, CatalogOrder) or (isinstance(order, Lanes) and not order.shuffle):
            sizes = contents.block_sizes(_BLOCK_BYTES)
        elif isinstance(order, (BlockShuffle, Lanes)):
            sizes, self._blocks = order.block_samples, order.window_blocks or 1
        if not isinstance(sizes, int) or sizes > 1:
            borders = np.arange(0, count, sizes) if isinstance(sizes, int) else np.cumsum(np.asarray(sizes, np.int64))
            pieces = np.cumsum(contents.block_sizes(_MOST_BYTES))
            self._starts = np.unique(np.concatenate(([0], borders, pieces)))
        self._block = sizes if isinstance(sizes, int) else -(-count // max(len(sizes), 1))

    @property
    def single(self) -> bool:
        """Whether each sample is read by itself."""
        return self._starts is None

    def of(self, samples: Ints) -> Ints:
        return samples if self._starts is None else np.searchsorted(self._starts, samples, side="right") - 1

    def spans(self, run: int) -> list[Span]:
        first, stop = (run, run + 1) if self._starts is None else self._starts[run : run + 2].tolist()
        return self.contents.spans_of(first, stop)

    @property
    def count(self) -> int:
        return len(self.contents) if self._starts is None else len(self._starts) - 1

    def __iter__(self) -> Iterator[Span]:
        for run in range(self.count):
            yield from self.spans(run)

    def limits(self, world: int, lanes: int) -> Bounds:
        """Return how far to read ahead: two windows of blocks, one in use and one arriving.

        ``lanes`` are those of the state that the run resumed from; 0: unknown.
        """
        blocks = self._blocks
        if self._lanes is not None:
            blocks = open_blocks(blocks, lanes or self._lanes or world, world)
        probes = np.unique(np.linspace(0, self.count - 1, _PROBES).astype(np.int64)).tolist() if self.count else []
        size_bytes = sum(_size(self.spans(run)) for run in probes)
        sample_bytes = size_bytes * self.count // (max(len(probes), 1) * max(len(self.contents), 1))
        return Bounds(2 * blocks * self._block * sample_bytes + _AHEAD_BYTES, 2 * blocks * self._block + _MARGIN)


def _size(spans: list[Span]) -> int:
    return sum((span.stop or 0) - span.start for span in spans)


class ClipReading(ChunkReading["Held"]):
    """Samples of batches, made from the bytes of runs, which are kept until their last sample is made."""

    def __init__(
        self,
        runs: ClipRuns,
        batches: Iterable[list[int]],
        workers: int,
        made: Callable[[int, Held], Any],
        iterations: Iterations | None,
    ) -> None:
        """Read ``batches``; ``made`` makes a sample of its number, and the bytes of its run by the key of each file."""
        self._runs, self._made = runs, made
        self._numbers: deque[int] = deque()  # of the runs of scheduled samples
        self._known: dict[int, list[Span]] = {}  # of the runs that are held or come next
        world, lanes = (1, 0) if iterations is None else (iterations.rank().world, iterations.epochs.latest().lanes)
        super().__init__(runs.contents.source, batches, workers, runs.limits(world, lanes))

    def _uses(self, samples: Ints) -> Ints:
        numbers = self._runs.of(samples)
        self._numbers.extend(numbers.tolist())
        return numbers[:, np.newaxis]

    def _spans_of(self, run: int) -> list[Span]:
        found = self._known.get(run)
        if found is None:
            found = self._known[run] = self._runs.spans(run)
        return found

    def _size_of(self, chunk: int) -> int:
        return _size(self._spans_of(chunk))

    def _locate(self, chunk: int) -> Span | list[Span] | bytes:
        spans = self._spans_of(chunk)
        if len(spans) > 1:
            return spans
        # Frames without bytes, which no decoder takes, have none.
        return spans[0] if spans else b""

    def _decode(self, chunk: int, read: ReadOperation | bytes | None) -> Held:
        return {} if read is None or isinstance(read, bytes) else self._decode_parts(chunk, [read])

    def _decode_parts(self, chunk: int, reads: list[ReadOperation]) -> Held:
        return hold_bytes(self._spans_of(chunk), [read.take() for read in reads])

    def _item(self, turn: Turn) -> Item:
        batch, slot, size, [sample] = turn
        name = partial(self._runs.contents.url_of, sample)
        return Item(batch, slot, size, name, partial(self._make, sample, self._numbers.popleft()))

    def _make(self, sample: int, run: int) -> Any:  # noqa: ANN401  the transform decides the type
        try:
            return self._made(sample, self._value(run))
        finally:
            for number in self._release({run: 1}, 1):
                self._known.pop(number, None)


def hold_bytes(spans: Iterable[Span], bodies: Iterable[bytes | memoryview]) -> Held:
    """Return the bytes of some ranges by the key of each file; ranges of a file ascend."""
    found: Held = {}
    for span, body in zip(spans, bodies, strict=True):
        starts, parts = found.setdefault(span.key, HeldBytes([], []))
        starts.append(span.start)
        parts.append(memoryview(body))
    return found
