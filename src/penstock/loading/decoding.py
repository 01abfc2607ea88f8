"""Threads that transform samples as they arrive and collate batches, in order, ahead of the training loop."""

from __future__ import annotations

import os
import threading
import weakref
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from penstock.datasets.policy import Delivery, OnError, attempt, remaining
from penstock.errors import Unusable
from penstock.loading.stopwatch import demanded_s
from penstock.waiting import LOOK_S, Wakeup, may_wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.datasets.reading import Item, Reading
    from penstock.order.sampling import Cursor

__all__ = ["DecodeOptions", "DecodePool"]

_CLOSE_S = 30.0  # how long closing waits for transforms that are under way; they are abandoned after that


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """How a pool decodes.

    Attributes:
        threads: How many transform in parallel.
        ahead: How many batches at most are begun and not yet taken.
        on_error: Whether a sample that fails ends the iteration or is left out.
        finish: Makes a batch of a list of samples, on a thread of the pool.

    """

    threads: int
    ahead: int
    on_error: OnError
    finish: Callable[[list[Any]], Any]


@dataclass(slots=True)
class _Batch:
    """A batch being filled: its samples (or what went wrong with them) by place, and in the end what came of it."""

    made: list[Any]
    left: int
    outcome: Delivery | BaseException | None = None


@dataclass(slots=True)
class _Failure:
    error: BaseException


class DecodePool:
    """An iterator over batches that ``reading``'s samples make; dropped or closed, it leaves no thread behind.

    Each thread takes the next sample as its bytes arrive, transforms it, and the one that completes a batch collates
    it. An error is raised where its batch would have come, after all batches before it.
    """

    def __init__(self, reading: Reading, cursor: Cursor, options: DecodeOptions) -> None:
        """Begin: threads start here and now."""
        self._shared = _Shared(reading, cursor, options)
        self._stop = weakref.finalize(self, self._shared.stop)
        try:
            self._shared.start()
        except BaseException:  # see __next__
            self.close()
            raise

    def __iter__(self) -> Self:
        """Return itself."""
        return self

    def __next__(self) -> Delivery:
        """Return the next batch; Ctrl-C interrupts the wait."""
        if self._shared.pid != os.getpid():
            raise Unusable("an iteration was begun before a fork and continued after it")
        try:
            outcome = self._shared.take()
        except BaseException:  # Ctrl-C; its traceback keeps this alive, too
            self.close()
            raise
        if isinstance(outcome, Delivery):
            return outcome
        self.close()
        if outcome is None:
            raise StopIteration
        if isinstance(outcome, StopIteration):  # a collate_fn's: as it is, it would end the epoch in silence
            raise RuntimeError("collate_fn raised StopIteration") from outcome  # noqa: TRY004  no type is wrong here
        raise outcome

    @property
    def working_s(self) -> float:
        """Seconds spent in transforms and collation so far, over all threads."""
        return sum(self._shared.working_s)

    @property
    def demanded_s(self) -> float:
        """Seconds that the threads used a processor, or were ready to and waited for one; known to a second."""
        return sum(self._shared.demanded_s)

    def close(self) -> None:
        """Cancel reads in flight and wait for transforms that run; twice does nothing."""
        self._stop()


@dataclass(slots=True)
class _Shared:
    """What the threads share; it does not know the ``DecodePool``, so that one can be dropped while they run."""

    reading: Reading
    cursor: Cursor
    options: DecodeOptions
    pid: int = field(default_factory=os.getpid)
    working_s: list[float] = field(default_factory=list)  # of each thread, which alone writes it
    demanded_s: list[float] = field(default_factory=list)  # the same
    _drawing: threading.Lock = field(default_factory=threading.Lock)  # samples are drawn one at a time, in order
    # Of all below. Reentrant, for the collector may run ``stop`` on whatever thread it likes, one that holds it too.
    _lock: threading.RLock = field(default_factory=threading.RLock)
    # Wake-ups and no conditions: an interrupt in the middle of one would leave its lock to the training loop for ever.
    _filled: Wakeup = field(default_factory=Wakeup)  # look again whether the next batch is there
    _room: Wakeup = field(default_factory=Wakeup)  # look again whether there is room for another
    _batches: dict[int, _Batch] = field(default_factory=dict)
    _taken: int = 0  # batches the training loop has
    _begun: int = 0  # the batch the next sample belongs to
    _ended: bool = False  # nothing more is to be drawn
    _stopped: bool = False  # nor to be taken
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        self.working_s, self.demanded_s = [0.0] * self.options.threads, [0.0] * self.options.threads
        self._threads = [
            threading.Thread(target=self._run, args=(number,), name=f"penstock-decode-{number}", daemon=True)
            for number in range(self.options.threads)
        ]
        for thread in self._threads:
            thread.start()

    def take(self) -> Delivery | BaseException | None:
        """Wait for the next batch: what came of it, or None at the end."""
        self._await(self._filled, self._decided)
        with self._lock:
            batch = None if self._stopped else self._batches.pop(self._taken, None)
            self._taken += 1
        self._room.set()
        return batch.outcome if batch is not None else None

    def _await(self, wakeup: Wakeup, condition: Callable[[], bool]) -> None:
        """Block until ``condition`` holds: it is looked at whenever ``wakeup`` is set, and once a second."""
        while True:
            with self._lock:
                if condition():
                    return
            wakeup.wait(LOOK_S)

    def _decided(self) -> bool:
        if self._stopped:
            return True
        batch = self._batches.get(self._taken)
        return batch.outcome is not None if batch is not None else self._ended

    def stop(self) -> None:
        if self.pid != os.getpid():
            return  # a fork's copy: its threads are the parent's, and who holds its locks is not here to let go
        with self._lock:
            self._ended = self._stopped = True
        self._room.set()
        self._filled.set()
        self.reading.close()  # threads that wait for bytes wake
        until = monotonic() + _CLOSE_S
        waits = may_wait() and threading.current_thread() not in self._threads
        for thread in self._threads if waits else ():
            while thread.is_alive() and (left_s := until - monotonic()) > 0:
                thread.join(min(LOOK_S, left_s))
        self.reading.close()  # what was sent while it closed

    def _run(self, number: int) -> None:
        try:
            self._make_all(number)
        finally:
            self.demanded_s[number] = demanded_s()

    def _make_all(self, number: int) -> None:
        look_s = monotonic()
        while (item := self._draw()) is not None:
            began_s = monotonic()
            if began_s > look_s:
                look_s, self.demanded_s[number] = began_s + LOOK_S, demanded_s()
            self._make(item)
            self.working_s[number] += monotonic() - began_s

    def _make(self, item: Item) -> None:
        """Make an item; what came of it is its batch's alone, for samples may be views of memory that is to be free."""
        try:
            made = attempt(item, self.options.on_error) if item.size else item.make()
        except BaseException as error:  # noqa: BLE001  the training loop's to hear, in its turn
            made = _Failure(error)
        if item.size:
            self._put(item, made)
        elif isinstance(made, _Failure):  # which the item ought to have kept for the samples that need it
            self._break(made.error)

    def _draw(self) -> Item | None:
        with self._drawing:
            try:
                if not self._has_room():
                    if (item := self.reading.ahead()) is not None:
                        return item
                    self._await(self._room, self._has_room)
                if self._ended:
                    return None
                item = next(self.reading, None)
            except BaseException as error:  # noqa: BLE001  see _run
                self._end(error)
                return None
            if item is None:
                self._end(None)
                return None
            self._begin(item)
            return item

    def _has_room(self) -> bool:
        return self._ended or self._begun < self._taken + self.options.ahead

    def _begin(self, item: Item) -> None:
        ends = item.size and item.stop == item.size
        if not item.size or (item.slot and not ends):
            return  # it prepares, and belongs to no batch; or its batch has begun and is not yet drawn
        with self._lock:
            if item.slot == 0:  # unless this batch is where an error has ended it meanwhile
                self._batches.setdefault(item.batch, _Batch([None] * item.size, item.size))
            self._begun = item.batch + ends

    def _end(self, error: BaseException | None) -> None:
        """Draw no more; an error is the outcome of the batch that was being drawn."""
        with self._lock:
            self._ended = True
            if error is not None:
                self._batches[self._begun] = _Batch([], 0, error)
        self._room.set()
        self._filled.set()

    def _break(self, error: BaseException) -> None:
        """End with the error of an item that prepares: any batch that is not made yet may wait for what it did not."""
        with self._lock:
            unmade = [number for number, batch in self._batches.items() if batch.outcome is None]
            self._batches.update((number, _Batch([], 0, error)) for number in unmade)
        self._end(error)

    def _put(self, item: Item, made: object) -> None:
        batch = self._batches.get(item.batch)
        if batch is None or not batch.made:
            return  # the batch has failed already, or is not wanted any more
        with self._lock:
            batch.made[item.slot : item.stop] = (
                made if item.samples and isinstance(made, list) else [made] * (item.stop - item.slot)
            )
            batch.left -= item.stop - item.slot
            if batch.left:
                return
        outcome = self._finished(batch.made)
        with self._lock:
            batch.outcome, batch.made = outcome, []  # samples may be views of memory that is to be free
        self._filled.set()

    def _finished(self, made: list[Any]) -> Delivery | BaseException:
        failure = next((each for each in made if isinstance(each, _Failure)), None)
        if failure is not None:
            return failure.error
        try:
            samples, skipped = remaining(made)
            return Delivery(self.options.finish(samples), self.cursor, skipped, len(samples))
        except BaseException as error:  # noqa: BLE001  see _run
            return error
