"""Arrays in a store of zarr's of which Penstock knows no URL (Icechunk's, say): read through that store."""

from __future__ import annotations

import os
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from penstock.datasets.zarr.objects.locations import OwnObjects
from penstock.errors import Cancelled, NotFound, PenstockError, Transient, Truncated, Unusable
from penstock.formats.zarr.objects import reader_of
from penstock.source import open_source

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.buffer import Buffer
    from penstock.protocols.fetching import Fetching, PendingRead, ReadOwner
    from penstock.values import Span

__all__ = ["ForeignObjects", "foreign_objects"]

_THREADS = 32  # each waits for one read: zarr's event loop carries them all out
_FORKABLE = ("zarr.storage._memory",)  # modules of stores without threads, locks and descriptors


@dataclass(frozen=True, slots=True)
class ForeignObjects(OwnObjects):
    """The array's objects are those of a store of zarr's.

    Attributes:
        name: The store's, for errors.

    """

    name: str = ""

    def url(self, key: str) -> str:
        """Return the store's name and the key."""
        return f"{self.name}:{key}"


def foreign_objects(store: Any) -> ForeignObjects:  # noqa: ANN401  a store of zarr's
    """Return objects that are read through ``store``, up to 32 at once. It is not asked for anything yet.

    In a forked process reads are refused: most stores have threads, which a forked process lacks, and would hang.
    """
    kind = type(store).__name__
    layer = _Layer(store, kind)
    source, _ = open_source(f"memory://zarr-{uuid4().hex}/")  # its reads, all of them, go to the layer
    return ForeignObjects(source.through(layer), name=kind)


class _Layer:
    """Makes what fetches from a store, once for each process."""

    def __init__(self, store: Any, kind: str) -> None:  # noqa: ANN401  a store of zarr's
        self._store, self._kind = store, kind
        self._pid = os.getpid()

    def __call__(self, _beneath: Fetching) -> Fetching:
        """Return it; the store of the source that it stands before is never asked."""
        if self._pid != os.getpid() and type(self._store).__module__ not in _FORKABLE:
            raise Unusable(
                f"the {self._kind} was opened before a fork and cannot be read after it: use num_workers=0, which "
                'reads and decodes in threads, or multiprocessing_context="forkserver"'
            )
        return _StoreReads(self._store, self._kind)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the store: where it arrives, it was not opened before a fork."""
        return _Layer, (self._store, self._kind)


class _Read:
    """A read on its way: see ``PendingRead``."""

    __slots__ = ("_buffer", "_data", "_owner", "attempts", "cancelled", "complete", "error", "retries", "span")

    def __init__(self, span: Span, buffer: Buffer | None, owner: ReadOwner) -> None:
        self.span = span
        self.error: PenstockError | None = None
        self.attempts = self.retries = 0
        self.complete = self.cancelled = False
        self._buffer, self._owner = buffer, owner
        self._data = b""

    @property
    def size_bytes(self) -> int:
        """Return how many bytes it holds."""
        return len(self._data)

    def look(self) -> None:
        """Say nothing: the store tries again by itself."""

    def check(self) -> None:
        """Raise what went wrong."""
        if self.error is not None:
            raise self.error

    def take(self) -> bytes:
        """Return the bytes."""
        self.check()
        return self._data

    def fill(self, data: bytes) -> None:
        """Hold what came."""
        self._data = data
        if self._buffer is not None:
            self._buffer.view()[:] = data

    def end(self, error: PenstockError | None) -> None:
        """Be complete."""
        self.error = error
        self.complete = True
        self._owner.finished(self)


class _StoreReads:
    """A ``Fetching`` over a store of zarr's, whose threads end when nothing is left to do."""

    def __init__(self, store: Any, kind: str) -> None:  # noqa: ANN401  a store of zarr's
        self._read, self._kind = reader_of(store), kind
        self._todo: SimpleQueue[_Read] = SimpleQueue()
        self._lock = Lock()
        self._under_way = self._threads = 0

    def prepare_reads(self, wanted: Iterable[tuple[Span, Buffer | None]], owner: ReadOwner) -> list[PendingRead]:
        """Return a read of each span, in order."""
        return [_Read(span, buffer, owner) for span, buffer in wanted]

    def send_reads(self, reads: Iterable[PendingRead]) -> None:
        """Have them read by threads, as many as there are reads under way."""
        for read in reads:
            with self._lock:
                self._under_way += 1
                more = self._threads < min(_THREADS, self._under_way)
                self._threads += more
            self._todo.put(cast("_Read", read))
            if more:
                Thread(target=self._work, name="penstock-zarr", daemon=True).start()

    def cancel_reads(self, reads: Iterable[PendingRead]) -> None:
        """Call reads off: those that have not begun are not begun, and the others fill no buffer."""
        with self._lock:
            for read in reads:
                cast("_Read", read).cancelled = True

    stop_reads = cancel_reads

    def concurrency(self) -> int:
        """Return the number of threads."""
        return _THREADS

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._threads > self._under_way:  # else there is one in the queue for each thread without a read
                    self._threads -= 1
                    return
            self._carry_out(self._todo.get())
            with self._lock:
                self._under_way -= 1

    def _carry_out(self, read: _Read) -> None:
        where = f"{self._kind}:{read.span.key}"
        error: PenstockError | None = None
        try:
            if read.cancelled:
                raise Cancelled("called off", url=where)
            read.attempts = 1
            data = self._taken(read.span, where)
            with self._lock:
                if read.cancelled:
                    raise Cancelled("called off", url=where)
                read.fill(data)
        except PenstockError as failure:
            error = failure
        except Exception as failure:  # noqa: BLE001  stores raise what they like
            error = Transient(f"the store failed with {type(failure).__name__}", url=where)
            error.__cause__ = failure
        read.end(error)

    def _taken(self, span: Span, where: str) -> bytes:
        data = self._read(span.key, span.start, span.stop)
        if data is None:
            raise NotFound("there is no such object", url=where)
        if span.stop is not None and len(data) != span.stop - span.start:
            raise Truncated(f"{len(data)} bytes came instead of {span.stop - span.start}", url=where)
        return data
