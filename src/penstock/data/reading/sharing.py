"""Reads that the worker processes of a loader share: one of them sends the request, and the others take its bytes.

Workers take batches in turn, and each batch has samples of all blocks of a window. So all workers need the same blocks
at about the same time. The first to need a block claims it on the loader's ``BlockBoard``, reads it, and puts its bytes
there; the others wait for them. A worker that dies, or an error, costs the others a request each and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import deque
from contextlib import contextmanager
from multiprocessing import context
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from penstock.data.region import Region
from penstock.errors import Bug, Cancelled, PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.engine.buffer import Buffer
    from penstock.engine.contracts.fetching import Fetching, Owner, ReadOperation
    from penstock.source import Source
    from penstock.values import Span

# Bytes of blocks that a board keeps, the latest; the kernel gives memory only for what was put there.
RING_BYTES = 256 << 20
_ROWS = 1 << 13
_LARGEST = 4  # a block takes at most this part of the ring
# A claim is void this long after its process last confirmed it: it died, or was stopped.
_VOID_NS = 2_000_000_000
_CONFIRM_S, _LOOK_S = 0.2, 0.001
# Columns of a row: two numbers of the name; when the claim was confirmed, or 0 if the bytes are there, or -1 if
# nothing is; where they begin, counted over all rounds of the ring; their number; and the process that claimed them.
_NAME, _STATE, _PLACE, _SIZE, _OWNER = slice(0, 2), 2, 3, 4, 5
_FREE, _THERE = -1, 0
_HEADS, _COLUMNS = 3, 6


class _Claimed(NamedTuple):
    """The answer of a board to a process that needs a block."""

    data: bytes | None  # its bytes, if they are there
    mine: bool  # whether this process is to read it


class BlockBoard:
    """Blocks that the workers of a loader have read lately, in memory that they share, and those being read.

    Any process may die at any moment, also while it holds the lock. Pickled for anything but a process that is being
    spawned, a board is None: it would be of no use elsewhere.
    """

    def __init__(self, ring_bytes: int = RING_BYTES) -> None:
        head = 8 * (_HEADS + _ROWS * _COLUMNS)
        self._adopt(Region(head + ring_bytes), ring_bytes)
        self._rows[:, _STATE] = _FREE

    def _adopt(self, region: Region, ring_bytes: int) -> None:
        self._region, self._ring_bytes = region, ring_bytes
        words = np.frombuffer(region.view, np.int64, _HEADS + _ROWS * _COLUMNS)
        # Bytes put on the ring so far, the row that is used next, and changes.
        self._heads, self._rows = words[:_HEADS], words[_HEADS:].reshape(_ROWS, _COLUMNS)
        self._ring = region.view[words.nbytes :]
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Callable[..., BlockBoard | None], tuple[object, ...]]:
        if context.get_spawning_popen() is None:
            return _no_board, ()
        return _board_of, (self._region, self._ring_bytes)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock, self._region.locked(0, 8):
            yield

    @property
    def changes(self) -> int:
        """A number that differs whenever a block came or was given up."""
        return int(self._heads[2])

    def take(self, name: Sequence[int]) -> _Claimed:
        """Return a block's bytes if they are there; else claim it, unless another process reads it."""
        with self._locked():
            row = self._find(name)
            if row is None or self._is_gone(row):
                self._claim(name, row)
                return _Claimed(None, mine=True)
            state, place, size, _ = (int(each) for each in row[2:])
            if state != _THERE:
                return _Claimed(None, mine=False)
        start = place % self._ring_bytes
        data = bytes(self._ring[start : start + size])
        with self._locked():
            # Whatever overwrote them was announced before.
            if self._heads[0] - place <= self._ring_bytes:
                return _Claimed(data, mine=False)
        return self.take(name)

    def put(self, name: Sequence[int], data: bytes | memoryview) -> None:
        """Put a block there that this process has claimed; a large one is not kept."""
        size = len(data)
        with self._locked():
            row = self._own(name)
            if row is None:
                return
            self._heads[2] += 1
            if size * _LARGEST > self._ring_bytes:
                row[_STATE] = _FREE
                return
            place = int(self._heads[0])
            left = self._ring_bytes - place % self._ring_bytes
            place += left if left < size else 0
            self._heads[0] = place + size
            start = place % self._ring_bytes
            self._ring[start : start + size] = data
            row[_PLACE], row[_SIZE] = place, size
            row[_STATE] = _THERE

    def confirm(self, names: Iterable[Sequence[int]]) -> None:
        """Confirm that this process still reads these blocks."""
        with self._locked():
            for name in names:
                row = self._own(name)
                if row is not None:
                    row[_STATE] = monotonic_ns()

    def drop(self, name: Sequence[int]) -> None:
        """Give up a claim."""
        with self._locked():
            row = self._own(name)
            if row is not None:
                row[_STATE] = _FREE
                self._heads[2] += 1

    def _find(self, name: Sequence[int]) -> Any:  # noqa: ANN401  a row, or None
        rows = self._rows
        found = np.flatnonzero((rows[:, 0] == name[0]) & (rows[:, 1] == name[1]) & (rows[:, _STATE] != _FREE))
        return rows[found[0]] if found.size else None

    def _own(self, name: Sequence[int]) -> Any:  # noqa: ANN401  see _find
        """Return the row of a claim of this process; None if another process has taken it over."""
        row = self._find(name)
        return None if row is None or row[_STATE] == _THERE or row[_OWNER] != os.getpid() else row

    def _is_gone(self, row: Any) -> bool:  # noqa: ANN401  see _find
        """Return whether the bytes were overwritten, or the process that reads them has not confirmed it for long."""
        if row[_STATE] == _THERE:
            return bool(self._heads[0] - row[_PLACE] > self._ring_bytes)
        return bool(monotonic_ns() - row[_STATE] > _VOID_NS) or not _is_alive(int(row[_OWNER]))

    def _claim(self, name: Sequence[int], row: Any) -> None:  # noqa: ANN401  see _find
        if row is None:
            number = int(self._heads[1])
            self._heads[1] = (number + 1) % _ROWS
            row = self._rows[number]
            row[_STATE] = _FREE
            row[_NAME] = name
        row[_OWNER] = os.getpid()
        row[_STATE] = monotonic_ns()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _no_board() -> None:
    return None


def _board_of(region: Region, ring_bytes: int) -> BlockBoard:
    board = BlockBoard.__new__(BlockBoard)
    board._adopt(region, ring_bytes)  # noqa: SLF001  the other half of BlockBoard.__reduce__
    return board


# The board of the loader that this process works for.
_desk: list[_Desk] = []


def enter_board(board: BlockBoard | None) -> None:
    """Share the reads of chunks of this worker process, from here on, with the other workers of its loader."""
    if not _desk or _desk[0].board is not board or _desk[0].pid != os.getpid():
        _desk[:] = [] if board is None else [_Desk(board)]


def layer_of(source: Source) -> Callable[[Fetching], Fetching] | None:
    """Return the layer through which chunks of ``source`` are read in a worker; None in any other process."""
    if not _desk or _desk[0].pid != os.getpid():
        return None
    desk = _desk[0]
    return lambda fetching: SharedReads(fetching, desk, repr(source.address("")))


class SharedReads:
    """A ``Fetching`` whose reads the workers of a loader share; only known versions and sizes are shared."""

    def __init__(self, below: Fetching, desk: _Desk, store: str) -> None:
        """Share reads of ``store``, a text that differs from those of all other stores."""
        self.below, self._desk, self._store = below, desk, store
        self._leading: dict[int, SharedRead] = {}  # by the identity of the read below

    def prepare_reads(self, wanted: Iterable[tuple[Span, Buffer | None]], owner: Owner) -> list[ReadOperation]:
        found: list[ReadOperation] = []
        for span, buffer in wanted:
            if buffer is not None or span.stop is None or not span.etag:
                found += self.below.prepare_reads(((span, buffer),), owner)
                continue
            read = SharedRead(self, span, owner, self._name(span))
            answer = self._desk.board.take(read.name)
            if answer.mine:
                self.lead(read)
            elif answer.data is not None:
                read.data, read.complete = answer.data, True
            found.append(cast("ReadOperation", read))
        return found

    def lead(self, read: SharedRead) -> None:
        """Have this process read a block that it has claimed."""
        try:
            (below,) = self.below.prepare_reads(((read.span, None),), self)
        except BaseException:
            self._desk.board.drop(read.name)
            raise
        read.below = below
        if below.complete:
            # From a cache, which the other workers have, too; or an error.
            self._desk.board.drop(read.name)
            read.error, read.complete = below.error, True
        else:
            self._leading[id(below)] = read

    def finished(self, below: ReadOperation) -> None:
        """Have the bytes put on the board; runs on the transport's thread."""
        read = self._leading.pop(id(below), None)
        if read is not None:
            self._desk.finished(read)

    def send_reads(self, reads: Iterable[ReadOperation]) -> None:
        below: list[ReadOperation] = []
        for read in cast("Iterable[object]", reads):
            if not isinstance(read, SharedRead):
                below.append(cast("ReadOperation", read))
            elif read.complete:
                continue
            elif read.below is None:
                self._desk.watch(read)
            else:
                # Claims are confirmed from here on: a read that is sent also ends.
                self._desk.claim(read)
                below.append(read.below)
        self.below.send_reads(below)

    def cancel_reads(self, reads: Iterable[ReadOperation]) -> None:
        self.below.cancel_reads(self._called_off(reads))

    def stop_reads(self, reads: Iterable[ReadOperation]) -> None:
        self.below.stop_reads(self._called_off(reads))

    def concurrency(self) -> int:
        return self.below.concurrency()

    def _called_off(self, reads: Iterable[ReadOperation]) -> list[ReadOperation]:
        below: list[ReadOperation] = []
        for read in cast("Iterable[object]", reads):
            if not isinstance(read, SharedRead):
                below.append(cast("ReadOperation", read))
            elif not read.complete:
                self._desk.give_up(read)
                if read.below is None:
                    read.end(Cancelled("cancelled"))
                else:
                    below.append(read.below)
        return below

    def _name(self, span: Span) -> tuple[int, int]:
        text = f"{self._store}\0{span.key}\0{span.start}\0{span.stop}\0{span.etag}"
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        return int.from_bytes(digest[:8], "little", signed=True), int.from_bytes(digest[8:], "little", signed=True)


class SharedRead:
    """A read whose bytes this process or another one requests (see ``contracts.fetching.ReadOperation``)."""

    __slots__ = ("_owner", "below", "complete", "data", "error", "layer", "name", "span")

    def __init__(self, layer: SharedReads, span: Span, owner: Owner, name: tuple[int, int]) -> None:
        self.layer, self.span, self._owner, self.name = layer, span, owner, name
        self.below: ReadOperation | None = None  # if this process requests them
        self.data: bytes | memoryview | None = None
        self.error: PenstockError | None = None
        self.complete = False

    @property
    def version(self) -> str:
        return self.span.etag

    @property
    def attempts(self) -> int:
        return 0 if self.below is None else self.below.attempts

    @property
    def retries(self) -> int:
        return 0 if self.below is None else self.below.retries

    @property
    def size_bytes(self) -> int:
        return (self.span.stop or 0) - self.span.start

    def end(self, error: PenstockError | None = None) -> None:
        self.error = error
        self.complete = True
        self._owner.finished(cast("ReadOperation", self))

    def look(self) -> None:
        if self.below is not None:
            self.below.look()

    def check(self) -> None:
        if self.error is not None:
            raise self.error
        if self.data is None and self.below is not None:
            self.below.check()

    def take(self) -> Any:  # noqa: ANN401  bytes, as the store's engine returns them
        self.check()
        if self.data is None and self.below is not None:
            return self.below.take()
        data, self.data = self.data, None
        return data


class _Desk:
    """The part of a process at a board, with a thread that puts blocks there and waits for those of others."""

    def __init__(self, board: BlockBoard) -> None:
        self.board, self.pid = board, os.getpid()
        self._claimed: dict[SharedRead, None] = {}
        self._waiting: dict[SharedRead, None] = {}
        self._ended: deque[SharedRead] = deque()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def claim(self, read: SharedRead) -> None:
        self._claimed[read] = None
        self._call()

    def watch(self, read: SharedRead) -> None:
        self._waiting[read] = None
        self._call()

    def finished(self, read: SharedRead) -> None:
        self._ended.append(read)
        self._call()

    def give_up(self, read: SharedRead) -> None:
        self._waiting.pop(read, None)
        self._claimed.pop(read, None)
        if read.below is not None:
            self.board.drop(read.name)

    def _call(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="penstock-share", daemon=True)
            self._thread.start()
        self._wake.set()

    def _run(self) -> None:
        changes, looked_s, confirmed_s = -1, 0.0, 0.0
        while True:
            self._wake.wait(_LOOK_S if self._waiting else _CONFIRM_S if self._claimed else None)
            self._wake.clear()
            while self._ended:
                self._run_for(self._publish, self._ended.popleft())
            now_s = monotonic()
            if changes != self.board.changes or now_s - looked_s > _CONFIRM_S:
                changes, looked_s = self.board.changes, now_s
                for read in [*self._waiting]:
                    self._run_for(self._look, read)
            if self._claimed and now_s - confirmed_s > _CONFIRM_S:
                confirmed_s = now_s
                self.board.confirm([read.name for read in [*self._claimed]])

    def _run_for(self, work: Callable[[SharedRead], None], read: SharedRead) -> None:
        """Do some work for a read, which an error ends: otherwise its consumer would wait for ever."""
        try:
            work(read)
        except PenstockError as error:
            self.give_up(read)
            read.end(error)
        except Exception as error:  # noqa: BLE001  goes to the consumer
            read.end(Bug(f"cannot share a block between workers: {error!r}"))

    def _publish(self, read: SharedRead) -> None:
        """Put the bytes of a read of this process on the board, and end it."""
        read.data = cast("ReadOperation", read.below).take()
        if self._claimed.pop(read, read) is None:
            self.board.put(read.name, read.data)
        read.end()

    def _look(self, read: SharedRead) -> None:
        """End a read whose bytes have come; request them here if the other process gave up or died."""
        answer = self.board.take(read.name)
        if answer.data is None and not answer.mine:
            return
        if self._waiting.pop(read, read) is read:
            # It was cancelled meanwhile.
            if answer.mine:
                self.board.drop(read.name)
            return
        if answer.data is not None:
            read.data = answer.data
            read.end()
            return
        read.layer.lead(read)
        if read.complete:
            read.end(read.error)
        else:
            read.layer.send_reads([cast("ReadOperation", read)])
