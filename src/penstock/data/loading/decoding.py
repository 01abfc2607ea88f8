"""Threads that transform samples as they arrive and collate batches, in order, ahead of the training loop.

``mover`` copies batches to a device one batch ahead, through page-locked memory.
"""

from __future__ import annotations

import os
import threading
import weakref
from dataclasses import dataclass, field
from functools import partial, reduce
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

import torch

from penstock.data.loading.stats import GilProbe, demanded_s
from penstock.data.reading.reading import Delivery, OnError, attempt, remaining
from penstock.engine.waiting import LOOK_S, Wakeup, may_wait
from penstock.errors import Unusable
from penstock.tree import tree_map

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.data.order.sampling import Cursor
    from penstock.data.reading.reading import Item, Reading

# Interval between checks for samples that have arrived, while all batches ahead wait to be taken.
_AHEAD_S = 0.05
# How long closing waits for running transforms before it abandons them.
_CLOSE_S = 30.0


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """Options of a decode pool."""

    threads: int  # threads that transform in parallel
    ahead: int  # most batches that are begun and not yet taken
    on_error: OnError  # whether a sample that fails ends the iteration or is left out
    finish: Callable[[list[Any]], Any]  # function from a list of samples to a batch, called on a thread of the pool
    # Function that adds to an error of ``finish`` which sample of the batch has it; None: nothing is added.
    explain: Callable[[BaseException, list[Any], Cursor, int], None] | None = None
    after: Callable[[Any], Any] | None = None  # function of the batch, called on the same thread
    gil: GilProbe = field(default_factory=GilProbe)  # used by the threads, between their items


@dataclass(slots=True)
class _FillingBatch:
    """A batch being filled: its samples (or their failures) by slot, and at the end its outcome."""

    made: list[Any]
    left: int
    outcome: Delivery | BaseException | None = None


@dataclass(slots=True)
class _Failure:
    error: BaseException


class DecodePool:
    """An iterator over the batches of ``reading``'s samples; dropping or closing it ends its threads.

    Each thread takes the next sample as its bytes arrive, and transforms it. The thread that completes a batch collates
    it. An error is raised in place of its batch, after all batches before it.
    """

    def __init__(self, reading: Reading, cursor: Cursor, options: DecodeOptions) -> None:
        self._shared = _Shared(reading, cursor, options)
        self._stop = weakref.finalize(self, self._shared.stop)
        try:
            self._shared.start()
        except BaseException:  # see __next__
            self.close()
            raise

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delivery:
        """Return the next batch; Ctrl-C interrupts the wait."""
        if self._shared.pid != os.getpid():
            raise Unusable("an iteration cannot continue after a fork: start it in the new process")
        try:
            outcome = self._shared.take()
        except BaseException:
            # On Ctrl-C the traceback would keep this pool alive.
            self.close()
            raise
        if isinstance(outcome, Delivery):
            return outcome
        self.close()
        if outcome is None:
            raise StopIteration
        if isinstance(outcome, StopIteration):
            # From collate_fn: raised unchanged, it would end the epoch silently.
            raise RuntimeError("collate_fn raised StopIteration") from outcome  # noqa: TRY004  no type is wrong here
        raise outcome

    @property
    def working_s(self) -> float:
        """Seconds spent in transforms and collation so far, over all threads."""
        return sum(self._shared.working_s)

    @property
    def demanded_s(self) -> float:
        """Seconds that the threads used a processor, or were ready and waited for one; updated once a second."""
        return sum(self._shared.demanded_s)

    def close(self) -> None:
        """Cancel reads in flight and wait for running transforms; a second call does nothing."""
        self._stop()


@dataclass(slots=True)
class _Shared:
    """State that the threads share; it has no reference to the ``DecodePool``, which can be dropped while they run."""

    reading: Reading
    cursor: Cursor
    options: DecodeOptions
    pid: int = field(default_factory=os.getpid)
    working_s: list[float] = field(default_factory=list)  # of each thread, its only writer
    demanded_s: list[float] = field(default_factory=list)  # the same
    _drawing: threading.Lock = field(default_factory=threading.Lock)  # samples are drawn one at a time, in order
    # Guards all fields below. Reentrant: the garbage collector may run ``stop`` on any thread, even one that holds it.
    _lock: threading.RLock = field(default_factory=threading.RLock)
    # Wake-ups instead of conditions: an interrupt inside a condition would leave its lock locked for ever.
    _filled: Wakeup = field(default_factory=Wakeup)  # the next batch may be ready
    _room: Wakeup = field(default_factory=Wakeup)  # there may be room for another batch
    _batches: dict[int, _FillingBatch] = field(default_factory=dict)
    _taken: int = 0  # batches that the training loop has taken
    _begun: int = 0  # number of the next sample's batch
    _drawn: int = 0  # samples of that batch that were drawn
    _ended: bool = False  # no more samples are drawn
    _stopped: bool = False  # no more batches are taken
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
        """Wait for the next batch; return its outcome, or None at the end."""
        while not self._is_decided():
            self._filled.wait(LOOK_S)
        with self._lock:
            batch = None if self._stopped else self._batches.pop(self._taken, None)
            self._taken += 1
        self._room.set()
        return batch.outcome if batch is not None else None

    def _is_decided(self) -> bool:
        with self._lock:
            if self._stopped:
                return True
            batch = self._batches.get(self._taken)
            return batch.outcome is not None if batch is not None else self._ended

    def stop(self) -> None:
        if self.pid != os.getpid():
            # A copy in a forked process: the threads are the parent's, and none here can release their locks.
            return
        with self._lock:
            self._ended = self._stopped = True
        self._room.set()
        self._filled.set()
        self.reading.close()  # wakes threads that wait for bytes
        until = monotonic() + _CLOSE_S
        waits = may_wait() and threading.current_thread() not in self._threads
        for thread in self._threads if waits else ():
            while thread.is_alive() and (left_s := until - monotonic()) > 0:
                thread.join(min(LOOK_S, left_s))
        self.reading.close()  # cancels requests sent meanwhile

    def _run(self, number: int) -> None:
        look_s = monotonic()
        try:
            while (item := self._draw()) is not None:
                began_s = monotonic()
                if began_s > look_s:
                    look_s, self.demanded_s[number] = began_s + LOOK_S, demanded_s()
                self._make(item)
                self.working_s[number] += monotonic() - began_s
                self.options.gil.probe()
        finally:
            self.demanded_s[number] = demanded_s()

    def _make(self, item: Item) -> None:
        """Make an item; only its batch keeps the result, since samples may be views of memory that must become free."""
        try:
            made = attempt(item, self.options.on_error) if item.size else item.make()
        except BaseException as error:  # noqa: BLE001  raised in the training loop, in its turn
            made = _Failure(error)
        if item.size:
            self._put(item, made)
        elif isinstance(made, _Failure):
            # The item should have kept this error for the samples that need it.
            self._break(made.error)

    def _draw(self) -> Item | None:
        with self._drawing:
            try:
                while not self._ended and self._begun >= self._taken + self.options.ahead:
                    if (item := self.reading.ahead()) is not None:
                        return item
                    self._room.wait(_AHEAD_S)
                if self._ended:
                    return None
                item = next(self.reading, None)
            except BaseException as error:  # noqa: BLE001  see _make
                self._end(error)
                return None
            if item is None:
                self._end(None)
                return None
            self._begin(item)
            return item

    def _begin(self, item: Item) -> None:
        if not item.size:
            # The item prepares, and belongs to no batch.
            return
        first, self._drawn = not self._drawn, self._drawn + item.length
        ends = self._drawn == item.size
        if not (first or ends):
            return
        with self._lock:
            if first:
                # Keep an entry that is there: an error has ended the iteration at this batch meanwhile.
                self._batches.setdefault(item.batch, _FillingBatch([None] * item.size, item.size))
            self._begun = item.batch + ends
        if ends:
            self._drawn = 0

    def _end(self, error: BaseException | None) -> None:
        """Stop drawing samples; an error becomes the outcome of the batch that was being drawn."""
        with self._lock:
            self._ended = True
            if error is not None:
                self._batches[self._begun] = _FillingBatch([], 0, error)
        self._room.set()
        self._filled.set()

    def _break(self, error: BaseException) -> None:
        """End with the error of a preparing item: every batch that is not made yet may depend on that item."""
        with self._lock:
            unmade = [number for number, batch in self._batches.items() if batch.outcome is None]
            self._batches.update((number, _FillingBatch([], 0, error)) for number in unmade)
        self._end(error)

    def _put(self, item: Item, made: object) -> None:
        batch = self._batches.get(item.batch)
        if batch is None or not batch.made:
            # The batch has failed already, or is not needed any more.
            return
        with self._lock:
            if isinstance(made, _Failure):
                made = [made] * item.length if item.samples else made
            item.fill(batch.made, made)
            batch.left -= item.length
            if batch.left:
                return
        outcome = self._finished(batch.made, item.batch)
        with self._lock:
            # Drop the samples: they may be views of memory that must become free.
            batch.outcome, batch.made = outcome, []
        self._filled.set()

    def _finished(self, made: list[Any], number: int) -> Delivery | BaseException:
        if _Failure in map(type, made):
            return next(each for each in made if isinstance(each, _Failure)).error
        try:
            samples, skipped = remaining(made)
            try:
                batch = self.options.finish(samples)
            except Exception as error:
                if self.options.explain is not None:
                    self.options.explain(error, made, self.cursor, number)
                raise
            if self.options.after is not None:
                batch = self.options.after(batch)
            return Delivery(batch, self.cursor, skipped, len(samples))
        except BaseException as error:  # noqa: BLE001  see _make
            return error


def pin_batch(batch: Any) -> Any:  # noqa: ANN401  any tree of tensors
    """Copy a batch's tensors into page-locked memory, from which copies to the device are asynchronous."""
    return tree_map(torch.Tensor.pin_memory, batch, torch.Tensor)


def mover(device: torch.device | None) -> Callable[[Any], Any]:
    """Return a function that moves a batch's tensors to ``device``; for None, they stay where they are.

    Copies from pinned memory are asynchronous. Copies from other memory are not: that memory may be reused as soon as
    the batch is dropped, since torch keeps only pinned memory until it is copied.
    """
    if device is None:
        return lambda batch: batch
    return partial(tree_map, lambda tensor: tensor.to(device, non_blocking=tensor.is_pinned()), kind=torch.Tensor)


def chained(*functions: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """Return a function that calls the given ones in turn; None stands for no function."""
    given = [each for each in functions if each is not None]
    return given[0] if len(given) == 1 else lambda batch: reduce(lambda made, function: function(made), given, batch)


def place_transform(
    transform: Callable[[Any], Any] | None, device: torch.device | None
) -> tuple[Callable[[Any], Any] | None, Callable[[Any], Any] | None]:
    """Return ``device_transform`` as called where a batch is made, and as called where it is moved; one is None.

    Raises ``Unusable`` if it cannot be called.
    """
    if transform is None:
        return None, None
    if not callable(transform):
        raise Unusable(f"device_transform must be a function of a batch, got {transform!r}")
    called = partial(_transform_batch, transform)
    return (called, None) if device is None or device.type == "cpu" else (None, called)


def _transform_batch(transform: Callable[[Any], Any], batch: Any) -> Any:  # noqa: ANN401  any tree of tensors
    try:
        return transform(batch)
    except StopIteration as error:
        # A StopIteration would silently end the epoch.
        raise RuntimeError("device_transform raised StopIteration") from error
    except Exception as error:
        error.add_note("while device_transform had a whole batch")
        raise


def to_device(
    deliveries: Iterable[Delivery], device: torch.device, move: Callable[[Any], Any] | None = None
) -> Iterator[Delivery]:
    """Yield deliveries with their tensors on ``device``; ``move`` moves a batch, by default as ``mover`` does.

    For a CUDA device, each batch is copied while the training loop still works on the one before: on a separate stream,
    asynchronously from pinned memory. An error is raised in place of its batch.
    """
    move = move or mover(device)
    if device.type != "cuda":
        for delivery in deliveries:
            yield delivery._replace(batch=move(delivery.batch))
        return
    stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    under_way: tuple[Delivery, torch.cuda.Event] | None = None
    for outcome in _late(deliveries):
        before, under_way = under_way, None
        if isinstance(outcome, Delivery):
            with torch.cuda.stream(stream):
                under_way = outcome._replace(batch=move(outcome.batch)), stream.record_event()
        if before is not None:
            yield _await_copy(*before, device)
        if isinstance(outcome, Exception):
            raise outcome


def _late(deliveries: Iterable[Delivery]) -> Iterator[Delivery | Exception | None]:
    """Yield deliveries, then the error that ended them, or None if none did."""
    try:
        yield from deliveries
    except Exception as error:  # noqa: BLE001  raised by the caller, after the batch before it
        yield error
    else:
        yield None


def _await_copy(delivery: Delivery, copied: torch.cuda.Event, device: torch.device) -> Delivery:
    """Make the training loop's stream wait for the copy, and keep the copy's memory until that stream has used it."""
    current = torch.cuda.current_stream(device)
    current.wait_event(copied)

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        tensor.record_stream(current)
        return tensor

    tree_map(keep, delivery.batch, torch.Tensor)
    return delivery
