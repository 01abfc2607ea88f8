"""A loader's counters: one row for each worker, in memory that the loader's process and its workers share.

The rows hold timings of calls, the processor time of threads, and the requests: by host, the slowest, limited rates.
"""

from __future__ import annotations

import json
import os
import threading
from array import array
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import astuple, dataclass
from math import isfinite
from pathlib import Path
from time import monotonic, process_time, sleep, thread_time
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import torch

from penstock.data.region import Region, Slot
from penstock.engine.node.member import NodeRate, node_status
from penstock.errors import Unusable
from penstock.events import (
    CONTEXT_BYTES,
    HOST_WORDS,
    HostTimings,
    Slowest,
    SlowRequest,
    context,
    counted,
    enter,
    measured,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from penstock.data.reading.reading import Delivery
    from penstock.engine.contracts.fetching import ReadCounts

KEPT: Final = 10  # slowest requests
_HOSTS: Final = 4  # of a worker; further hosts are left out
_NAME_BYTES: Final = 256
_TEXT_BYTES: Final = 16 << 10  # for the slowest requests and the rates
_HOST_BYTES: Final = _NAME_BYTES + 8 * HOST_WORDS
_BYTES: Final = 16 + _HOSTS * _HOST_BYTES + _TEXT_BYTES  # the owner, the text's length, hosts, the text
_EVERY_S: Final = 0.5


class Requests:
    """Timings of the requests of ``workers`` worker processes; with 0, of this process.

    The latter include requests of other loaders, checkpoints and files of the same process.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._region: Region | None = None
        self._before = {} if workers else counted()
        self._slowest = None if workers else Slowest(KEPT)
        if workers:
            with suppress(Unusable, OSError):
                # If no descriptor is left, a loader works without the region.
                self._region = Region(workers * _BYTES)

    def claim(self, worker: int) -> WorkerRequests:
        """Return the row in which this process, worker number ``worker``, records its requests from now on."""
        if self._region is None:
            return WorkerRequests(memoryview(bytearray(_BYTES)))
        return WorkerRequests(self._region.view[worker * _BYTES : (worker + 1) * _BYTES])

    def hosts(self) -> dict[str, HostTimings]:
        """Return the timings of requests so far, by host; any thread may call it."""
        if self._slowest is not None:
            return measured(self._before)
        found: dict[str, HostTimings] = {}
        for name, words in (each for row in self._rows() for each in _hosts(row)):
            found[name] = found.get(name, HostTimings()) + HostTimings(words)
        return found

    def slowest(self) -> list[SlowRequest]:
        """Return the slowest reads so far, the slowest first."""
        if self._slowest is not None:
            return self._slowest.found()
        return sorted((each for row in self._rows() for each in _texts(row)[0]), reverse=True)[:KEPT]

    def rates(self) -> tuple[NodeRate, ...]:
        """Return the rates that limit these requests, or did recently; shares are those of all these processes."""
        if self._slowest is not None:
            return _list_rate_limits()
        found: dict[str, NodeRate] = {}
        for each in (each for row in self._rows() for each in _texts(row)[1]):
            held = found.get(each.requests, NodeRate(each.requests, 0.0, 0.0))
            # The rate of the node, which the workers learned at different times.
            per_s = max(held.per_s, each.per_s)
            found[each.requests] = NodeRate(each.requests, per_s, min(per_s, held.share_per_s + each.share_per_s))
        return (*found.values(),)

    def _rows(self) -> list[memoryview]:
        view = self._region.view if self._region is not None else memoryview(b"")
        return [view[at : at + _BYTES] for at in range(0, len(view), _BYTES)]

    def __getstate__(self) -> tuple[int, Region | None]:
        return self.workers, self._region

    def __setstate__(self, state: tuple[int, Region | None]) -> None:
        self.workers, self._region = state
        self._before, self._slowest = {}, None


class WorkerRequests:
    """Timings of one worker process's requests, continued from those of an earlier worker with the same number."""

    def __init__(self, row: memoryview) -> None:
        """Take over the row; if another live process already writes it, write to private memory."""
        owner = row[:8].cast("q")
        if owner[0] != os.getpid() and lives(owner[0]):
            row = memoryview(bytearray(_BYTES))
        row[:8].cast("q")[0] = os.getpid()
        self._row = row
        self._left = {name: HostTimings(words).copy() for name, words in _hosts(row)}
        self._slow_before = _texts(row)[0]
        self._before = counted()
        self._slowest = Slowest(KEPT)
        self._write_s = 0.0

    def followed(self, deliveries: Iterable[Delivery]) -> Generator[Delivery]:
        """Yield deliveries; write the timings before a delivery, at most twice a second, and at the end."""
        try:
            for delivery in deliveries:
                if monotonic() >= self._write_s:
                    self.write()
                    self._write_s = monotonic() + _EVERY_S
                yield delivery
        finally:
            self.write()
            self._row[:8].cast("q")[0] = 0

    def write(self) -> None:
        costs = dict(self._left)
        for name, since in measured(self._before).items():
            costs[name] = since + costs.get(name, HostTimings())
        for at, (name, cost) in enumerate([*costs.items()][:_HOSTS]):
            start = 16 + at * _HOST_BYTES
            label = name.encode()[: _NAME_BYTES - 1]
            self._row[start + _NAME_BYTES : start + _HOST_BYTES].cast("q")[:] = array("q", cost.words)
            self._row[start : start + _NAME_BYTES] = label.ljust(_NAME_BYTES, b"\0")
        self._write_texts()

    def _write_texts(self) -> None:
        found = sorted([*self._slow_before, *self._slowest.found()], reverse=True)[:KEPT]
        rates = [[each.requests, each.per_s, each.share_per_s] for each in _list_rate_limits()]
        text = json.dumps([found, rates]).encode()
        while len(text) > _TEXT_BYTES:
            (found or rates).pop()
            text = json.dumps([found, rates]).encode()
        length, start = self._row[8:16].cast("q"), _BYTES - _TEXT_BYTES
        length[0] = 0  # readers see no text meanwhile
        self._row[start : start + len(text)] = text
        length[0] = len(text)


def _hosts(row: memoryview) -> list[tuple[str, Any]]:
    found = []
    for at in range(_HOSTS):
        start = 16 + at * _HOST_BYTES
        name = bytes(row[start : start + _NAME_BYTES]).rstrip(b"\0").decode("utf-8", "replace")
        if name:
            found.append((name, row[start + _NAME_BYTES : start + _HOST_BYTES].cast("q")))
    return found


def _list_rate_limits() -> tuple[NodeRate, ...]:
    return tuple(each for each in node_status().rates if isfinite(each.per_s) and isfinite(each.share_per_s))


def _texts(row: memoryview) -> tuple[list[SlowRequest], list[NodeRate]]:
    start, length = _BYTES - _TEXT_BYTES, row[8:16].cast("q")[0]
    with suppress(ValueError, TypeError):  # it was being written
        slowest, rates = json.loads(bytes(row[start : start + length]) or b"[[], []]")
        return [SlowRequest(*each) for each in slowest], [NodeRate(*each) for each in rates]
    return [], []


def lives(pid: int) -> bool:
    """Return whether the process ``pid`` exists; False for 0."""
    if pid == 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


_WORDS: Final = 24  # of 8 bytes: three cache lines, which no other worker writes to
_OWNER, _FIRST = 1, 2  # word 0: the worker's number, from 1
_COUNTS: Final = 9  # words with counts; seconds follow
_STOP: Final = _FIRST + _COUNTS + 9  # end of the seconds
# Iterations over one loader that may be open at once; further ones are not counted.
_GENERATIONS: Final = 8
_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ReaderStats:
    """Counts of a worker process, or of the decoding threads together, since the loader was made.

    They include batches that were made ahead and not received yet. Reads by a subclass's own ``__getitem__`` or
    ``__getitems__`` are not in ``requests``, ``retries``, ``errors`` and ``size_bytes``.

    Attributes:
        batches: Batches made.
        samples: Samples in them.
        skipped: Samples that were left out (``on_error="skip"``).
        requests: Requests for the objects, retries included.
        retries: Number of these that were retries.
        errors: Reads that failed in the end.
        size_bytes: Bytes of the objects, or of the parts of them that were taken.
        cached: Reads that needed no request, because a cache or another worker process had them.
        read_bytes: Bytes that came by requests.
        waiting_s: Seconds spent only on waiting for bytes.
        working_s: Seconds spent in transforms and ``collate_fn``, and in passing samples on; for threads, their sum.
        starved_s: Seconds of ``waiting_s`` in which the budget (``ReadOptions.ahead_bytes``, ``ahead_items``) held
            reads back.
        collating_s: Seconds of ``working_s`` spent in ``collate_fn``.
        pinning_s: Seconds of ``working_s`` in which threads copied batches into page-locked memory.
        demanded_s: Seconds that the threads of transforms used a processor or waited for one, in sum. In the rest of
            ``working_s`` they waited for Python's lock (the GIL), or inside a transform.
        elapsed_s: Seconds that iterations were open, in sum.
        opening_s: Seconds before the first requests of each iteration were sent: a process imports modules, looks for
            credentials and starts its thread for requests. Not part of ``waiting_s`` and ``working_s``.
        used_s: Processor seconds of the whole process while iterations were open.
    """

    batches: int = 0
    samples: int = 0
    skipped: int = 0
    requests: int = 0
    retries: int = 0
    errors: int = 0
    size_bytes: int = 0
    cached: int = 0
    read_bytes: int = 0
    waiting_s: float = 0.0
    working_s: float = 0.0
    starved_s: float = 0.0
    collating_s: float = 0.0
    pinning_s: float = 0.0
    demanded_s: float = 0.0
    elapsed_s: float = 0.0
    opening_s: float = 0.0
    used_s: float = 0.0


@dataclass(slots=True)
class WorkTime:
    """Seconds that a worker's transforms took so far: see ``ReaderStats``."""

    working_s: float = 0.0
    collating_s: float = 0.0
    pinning_s: float = 0.0
    demanded_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LoaderStats:
    """Counts of a loader since it was made, over all epochs: see ``DataLoader.stats``.

    Attributes:
        batches: Batches that the training loop received.
        samples: Samples in them.
        waiting_s: Seconds that the training loop waited for batches.
        computing_s: Seconds between receiving a batch and asking for the next one.
        workers: Counts of each worker process; with ``num_workers=0``, one item for the decoding threads.
        moving_s: Seconds of ``waiting_s`` in which the training loop's own thread moved batches to ``device``.
        gil_held: Share of samples, at most 20 a second, in which a decoding thread waited over 2 ms for Python's lock
            (the GIL); 0.0 with worker processes, and with one thread, which has the lock to itself.
    """

    batches: int
    samples: int
    waiting_s: float
    computing_s: float
    workers: tuple[ReaderStats, ...]
    moving_s: float = 0.0
    gil_held: float = 0.0

    @property
    def utilisation(self) -> float:
        """Share of time that the training loop computed, 0 to 1; 0.0 before the second batch was asked for."""
        seconds = self.waiting_s + self.computing_s
        return self.computing_s / seconds if seconds else 0.0

    @property
    def total(self) -> ReaderStats:
        return _sum(self.workers)


class CounterRow:
    """The counters of one iteration in one worker: one thread writes them without a lock, any process reads them."""

    def __init__(self, words: memoryview) -> None:
        self._words = words
        self._before: list[int] = words[_FIRST:_STOP].tolist()
        self._made = [0, 0, 0]
        self._began_s, self._used_s = monotonic(), process_time()

    def add(self, delivery: Delivery) -> None:
        """Count a batch; ``write`` publishes the count."""
        made = self._made
        made[0] += 1
        made[1] += delivery.samples
        made[2] += len(delivery.skipped)

    def write(self, counts: ReadCounts, work: WorkTime) -> None:
        reads = counts.requests, counts.retries, counts.errors, counts.size_bytes, counts.cached, counts.read_bytes
        elapsed_s = monotonic() - self._began_s
        worked = work.working_s, counts.starved_s, work.collating_s, work.pinning_s, work.demanded_s
        whole = elapsed_s, counts.opening_s, process_time() - self._used_s
        seconds = [int(each * _NS) for each in (counts.waiting_s, *worked, *whole)]
        for at, (before, now) in enumerate(zip(self._before, (*self._made, *reads, *seconds), strict=True), _FIRST):
            self._words[at] = before + now

    def counted(
        self, deliveries: Iterable[Delivery], counts: ReadCounts, collate: Stopwatch[list[Any], Any]
    ) -> Generator[Delivery]:
        """Yield a worker's batches, each counted before it is yielded; at the end, release the row."""
        work, before_s = WorkTime(), demanded_s()
        iterator = iter(deliveries)
        try:
            while True:
                began_s, apart_s = monotonic(), counts.waiting_s + counts.opening_s
                try:
                    delivery = next(iterator, None)
                finally:
                    work.working_s += monotonic() - began_s - (counts.waiting_s + counts.opening_s - apart_s)
                    work.collating_s, work.demanded_s = collate.seconds, demanded_s() - before_s
                if delivery is None:
                    return
                self.add(delivery)
                self.write(counts, work)
                yield delivery
        finally:
            self.write(counts, work)
            self.leave()

    def leave(self) -> None:
        self._words[_OWNER] = 0


class Counters:
    """Rows of counters for ``workers`` workers; with 0, for threads of this process.

    A worker of a later epoch continues in the row of a worker that has ended or died. The memory is shared with workers
    of every start method; a copy that is pickled for any other use counts separately.
    """

    def __init__(self, workers: int) -> None:
        self.workers = max(1, workers)
        size = self.workers * _GENERATIONS * _WORDS * 8
        self._adopt(Slot(size) if workers else None, bytearray(size))

    def _adopt(self, slot: Slot | None, private: bytearray) -> None:
        self._slot = slot
        self._words = (memoryview(private) if slot is None else slot.view).cast("q")
        self._lock = threading.Lock()

    def claim(self, worker: int) -> CounterRow:
        """Return a row for an iteration that begins in ``worker``."""
        with self._exclusive():
            for words in self._rows():
                number, owner = words[0], words[_OWNER]
                if number == 0 or (number == worker + 1 and not lives(owner)):
                    words[0], words[_OWNER] = worker + 1, os.getpid()
                    return CounterRow(words)
        return CounterRow(memoryview(bytearray(_WORDS * 8)).cast("q"))

    def read(self) -> tuple[ReaderStats, ...]:
        """Return the sums for each worker; any thread of any process may call it."""
        found: list[list[ReaderStats]] = [[] for _ in range(self.workers)]
        for words in self._rows():
            if words[0]:
                numbers = words[_FIRST:_STOP].tolist()
                seconds = [each / _NS for each in numbers[_COUNTS:]]
                found[words[0] - 1].append(ReaderStats(*numbers[:_COUNTS], *seconds))
        return tuple(map(_sum, found))

    def _rows(self) -> Iterator[memoryview]:
        for at in range(0, len(self._words), _WORDS):
            yield self._words[at : at + _WORDS]

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        lock: AbstractContextManager[object] = self._lock if self._slot is None else self._slot.locked()
        with lock:
            yield

    def __getstate__(self) -> tuple[int, Slot | None]:
        return self.workers, self._slot

    def __setstate__(self, state: tuple[int, Slot | None]) -> None:
        self.workers, slot = state
        self._adopt(slot, bytearray(self.workers * _GENERATIONS * _WORDS * 8))


class Meter:
    """Counters of a loader in its own process: those of the training loop, and the rows of its workers."""

    def __init__(self, workers: int, move: Callable[[Any], Any]) -> None:
        self.counters = Counters(workers)
        self.moving = Stopwatch(move)  # moves a batch to the loader's device
        self._batches = self._samples = 0
        self._waiting_s = self._computing_s = 0.0
        self.requests = Requests(workers)
        self.gil = GilProbe()

    def metered(self, deliveries: Iterable[Delivery]) -> Generator[Delivery]:
        """Yield deliveries to the training loop; time before each counts as waiting, time after it as computing."""
        iterator = iter(deliveries)
        while True:
            asked_s = monotonic()
            try:
                delivery = next(iterator, None)
            finally:
                self._waiting_s += monotonic() - asked_s
            if delivery is None:
                return
            self._batches += 1
            self._samples += delivery.samples
            given_s = monotonic()
            yield delivery
            self._computing_s += monotonic() - given_s

    def stats(self) -> LoaderStats:
        seconds = self._waiting_s, self._computing_s
        workers, moving_s = self.counters.read(), self.moving.seconds
        return LoaderStats(self._batches, self._samples, *seconds, workers, moving_s, self.gil.share)


def _sum(each: Iterable[ReaderStats]) -> ReaderStats:
    columns = zip(*map(astuple, each), strict=True)
    return ReaderStats(*map(sum, columns))


T = TypeVar("T")
R = TypeVar("R")

_SCHEDSTAT: Final = Path("/proc/thread-self/schedstat")  # Linux: ns running, ns waiting for a processor, slices


class Stopwatch(Generic[T, R]):
    """A function whose calls are timed; several threads may call it at once."""

    __slots__ = ("_function", "seconds")

    def __init__(self, function: Callable[[T], R]) -> None:
        self._function = function
        self.seconds = 0.0  # of all calls so far, also of those that raised

    def __call__(self, value: T) -> R:
        began_s = monotonic()
        try:
            return self._function(value)
        finally:
            took_s = monotonic() - began_s
            self.seconds += took_s


def demanded_s() -> float:
    """Return the seconds that this thread ran, or was ready and waited for a processor, since its start.

    In the rest of its time, the thread waited for locks (Python's GIL among them), files or the network. If the kernel
    does not report how long the thread was ready, only the seconds that it ran are returned.
    """
    return sum(_processor_s())


def _processor_s() -> tuple[float, float]:
    """Return the seconds that this thread ran, and those that it was ready and waited for a processor, if known."""
    with suppress(OSError, ValueError):
        ran, waited, *_ = _SCHEDSTAT.read_bytes().split()
        return int(ran) / _NS, int(waited) / _NS
    return thread_time(), 0.0


_PROBE_S: Final = 0.0001
_PROBES_S: Final = 0.05  # interval of probes
_HELD_S: Final = 0.002  # a thread that waits for the GIL asks for it after 5 ms; most calls of C keep it for less


class GilProbe:
    """Samples of whether Python's lock (the GIL) is held, taken by the decoding threads between their items.

    A thread sleeps for a tenth of a millisecond. If it continues over 2 ms late, and did not wait for a processor,
    another thread held the lock. A lost update does no harm.
    """

    __slots__ = ("_next_s", "held", "probes")

    def __init__(self) -> None:
        self._next_s = 0.0
        self.probes = self.held = 0

    @property
    def share(self) -> float:
        return self.held / self.probes if self.probes else 0.0

    def probe(self) -> None:
        """Take a sample, at most 20 a second for all threads together."""
        if monotonic() < self._next_s:
            return
        self._next_s = monotonic() + _PROBES_S
        (_, before_s), began_s = _processor_s(), monotonic()
        sleep(_PROBE_S)
        late_s = monotonic() - began_s - _PROBE_S
        self.probes += 1
        self.held += late_s - (_processor_s()[1] - before_s) > _HELD_S


WAIT_RANGE = "penstock.DataLoader.__next__"


def profile_waits(items: Iterable[T]) -> Generator[T]:
    """Yield items; while torch's profiler runs, the wait for each item is a range, as in torch's own loader."""
    iterator = iter(items)
    missing = object()
    while True:
        # The check of torch's own modules: a range costs microseconds even without a profiler.
        if torch.autograd._profiler_enabled():  # type: ignore[attr-defined]  # noqa: SLF001
            with torch.profiler.record_function(WAIT_RANGE):
                item = next(iterator, missing)
        else:
            item = next(iterator, missing)
        if item is missing:
            return
        yield item  # type: ignore[misc]  # never ``missing``


class TraceSlot:
    """The trace context of the latest iteration, in shared memory, so that persistent workers see it, too."""

    def __init__(self) -> None:
        self._slot = Slot(CONTEXT_BYTES)
        self._pid = os.getpid()

    def write(self) -> None:
        """Store the context of this thread when an iteration begins."""
        if self._pid != os.getpid():
            # In a forked rank, the parent still uses the old memory.
            self._slot, self._pid = Slot(CONTEXT_BYTES), os.getpid()
        self._slot.view[:] = context().ljust(CONTEXT_BYTES, b"\0")

    def enter(self) -> None:
        """Enter the stored context in a worker when its part of the iteration begins."""
        enter(bytes(self._slot.view).rstrip(b"\0"))
