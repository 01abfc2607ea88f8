"""The items that a loader makes samples of: one at a time, in order, some of which prepare what others need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from penstock.errors import Cancelled
from penstock.waiting import Wakeup

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from penstock.protocols.fetching import ReadCounts

__all__ = ["Item", "Prepared", "Reading"]

T = TypeVar("T")


class Item(NamedTuple):
    """A sample whose read has ended, well or not, or some of a batch; with ``size`` 0, work that later ones wait for.

    An item that prepares (say, decodes a chunk that many samples are cut from) belongs to no batch. It comes before
    every sample that needs it, so the ``make`` of a sample may wait for one that another thread has begun. Its own
    ``make`` returns nothing, and raises nothing: a ``Prepared`` keeps an error for the samples that need the value.

    Attributes:
        batch: Its batch, counted from 0; of an item that prepares, any number.
        slot: Its place in it.
        size: How many samples that batch has; 0: the item prepares.
        url: Its object's, or what returns it: most are never asked for.
        make: Returns what the dataset yields of it, or raises what went wrong; any thread may call it, once.
        samples: 0: it is one sample. Else it is so many of its batch, from ``slot`` on, and ``make`` returns a list of
            them, with a ``Failed`` for each that has an error of its own.

    """

    batch: int
    slot: int
    size: int
    url: str | Callable[[], str]
    make: Callable[[], Any]
    samples: int = 0

    @property
    def stop(self) -> int:
        """The place in the batch after its last sample."""
        return self.slot + (self.samples or 1)

    @property
    def name(self) -> str:
        """The URL, for reports."""
        return self.url if isinstance(self.url, str) else self.url()


class Reading(ABC):
    """The items of some batches in order, read ahead; an error of a sample is the sample's own and ends nothing.

    The items of a batch come in the order of their slots, one batch after the other. Every item is made once, in any
    order and on any thread, but for what ``Item`` says of those that prepare: they are made in the order in which they
    came, or begun at least. ``next`` is for one thread at a time; ``close`` may be called from another, wakes one that
    waits, and does nothing the second time. Nothing is read before the first ``next``.
    """

    @property
    @abstractmethod
    def counts(self) -> ReadCounts:
        """The reads so far of what was taken; always the same object."""

    @abstractmethod
    def __next__(self) -> Item:
        """Return the next item as soon as its bytes, or an error, are there."""

    def ahead(self) -> Item | None:
        """Return an item that prepares and could be made now, before ``next`` would return it; None: there is none.

        For a caller that wants no sample yet. It waits for nothing; otherwise it is like ``next``.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Cancel reads in flight; the iteration ends, and samples that wait for what was never prepared wake.

        A reading whose items prepare has ``Prepared.abandon`` called for each value that some sample may wait for. The
        garbage collector may run it on any thread: it takes no lock.
        """

    def __iter__(self) -> Self:
        """Return itself."""
        return self

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


class Prepared(Generic[T]):
    """A value that is made once, by an item that prepares, and that several samples wait for.

    It has no lock, and no condition or event that has one: ``abandon`` may be run by the garbage collector, in the
    middle of whatever its thread is at.
    """

    __slots__ = ("_abandoned", "_done", "_failure", "_make", "_traceback", "_value", "_wakeup")

    def __init__(self, make: Callable[[], T]) -> None:
        """Make nothing yet."""
        self._make: Callable[[], T] | None = make
        self._value: T | None = None
        self._failure: BaseException | None = None
        self._traceback: TracebackType | None = None
        self._done = self._abandoned = False
        self._wakeup = Wakeup()  # one that wakes wakes the next

    def prepare(self) -> None:
        """Make the value, or keep the error of it; for ``Item.make``. The second time does nothing."""
        make, self._make = self._make, None
        if make is None:
            return
        try:
            self._value = make()
        except BaseException as error:  # noqa: BLE001  the samples' to raise, in their turn
            self._failure, self._traceback = error, error.__traceback__
        finally:
            self._done = True
            self._wakeup.set()

    def get(self) -> T:
        """Return the value, once it is there.

        Raises:
            BaseException: What making it raised; each sample that asks raises it.
            Cancelled: It was abandoned before it was made.

        """
        if not self._done:
            self._await()
        if self._failure is not None:
            # With the first traceback: each raise would lengthen it by frames, and keep what they hold.
            raise self._failure.with_traceback(self._traceback)
        return self._value  # type: ignore[return-value]  # done, and without an error

    def _await(self) -> None:
        while not (self._done or self._abandoned):
            self._wakeup.wait()
        self._wakeup.set()
        if not self._done:
            raise Cancelled("the reading was closed")

    def abandon(self) -> None:
        """Wake those who wait, and begin to make nothing; a value that is made, or is being made, stays one."""
        self._make, self._abandoned = None, True
        self._wakeup.set()

    def forget(self) -> None:
        """Let go of the value, after the last sample that needs it."""
        self._value = None
