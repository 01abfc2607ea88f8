"""Datasets that read samples: items from which a loader makes them, in order; some items prepare values for others.

An error of a single sample is raised, or the sample is skipped, before its batch is delivered. Imports no torch: code
that only reads (tasks of Ray Data, reports) would wait seconds for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Self, TypeVar

from penstock.engine.waiting import Wakeup
from penstock.errors import Bug, Cancelled, Damaged, DatasetChanged, NoSpace, Unusable, public_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from penstock.data.order.sampling import Cursor
    from penstock.data.reading.iteration import Contents
    from penstock.engine.contracts.fetching import ReadCounts
    from penstock.source import Source
    from penstock.values import Span

    Reads = tuple[Source, Iterator[Span]]

OnError = Literal["raise", "skip"]

_OURS = (Bug, Cancelled, DatasetChanged, NoSpace, Unusable, MemoryError)  # errors that would affect every sample
_NAMED = 8
_TOGETHER, _ITEM_S = 64, 0.0005


class Skipped(NamedTuple):
    """A sample that was left out of its batch.

    Attributes:
        url: URL of the object, or another name of the sample.
        error: The error as text, because it has to cross process boundaries.
    """

    url: str
    error: str


class Failed(NamedTuple):
    """A sample that could not be made, in an item of several samples."""

    name: str  # URL of the sample, for reports
    error: Exception


class Delivery(NamedTuple):
    """A batch for the training loop."""

    batch: Any  # the collated batch
    cursor: Cursor  # cursor at which its iteration began
    skipped: tuple[Skipped, ...] = ()  # samples that were left out of the batch
    samples: int = 0  # number of samples in the batch


def attempt(item: Item, on_error: OnError) -> Any:  # noqa: ANN401  a transform decides the type
    """Return the yielded value of an item; with "skip", return a ``Skipped`` for an error of this sample alone.

    An item of several samples gives a list. The first error that is not skipped is raised.
    """
    try:
        made = item.make()
    except Exception as error:
        if on_error == "raise" or isinstance(error, _OURS) or item.samples:  # not one sample's error
            raise
        return _make_skipped(item.name, error)
    if item.samples and Failed in map(type, made):
        return [_settle_failure(each, on_error) if type(each) is Failed else each for each in made]
    return made


def _settle_failure(failed: Failed, on_error: OnError) -> Skipped:
    if on_error == "raise" or isinstance(failed.error, _OURS):
        raise failed.error
    return _make_skipped(*failed)


def _make_skipped(name: str, error: Exception) -> Skipped:
    return Skipped(name, f"{type(error).__name__}: {error}")


def remaining(made: list[Any]) -> tuple[list[Any], tuple[Skipped, ...]]:
    """Split a batch into its samples and the skipped ones; if none is left, raise: ranks would be out of step."""
    if made and Skipped not in map(type, made):
        return made, ()
    skipped = tuple(each for each in made if isinstance(each, Skipped))
    if len(skipped) < len(made):
        return [each for each in made if not isinstance(each, Skipped)], skipped
    named = "; ".join(f"{public_url(url)} ({error})" for url, error in skipped[:_NAMED])
    more = f" and {len(skipped) - _NAMED} more" if len(skipped) > _NAMED else ""
    raise Damaged(f"no sample of a batch could be read: {named}{more}")


def in_lists(reading: Reading, on_error: OnError = "raise") -> Iterator[list[Any]]:
    """Yield the samples of each batch as a list, made on this thread by ``attempt``; the first error ends it."""
    made: list[Any] = []
    left = 0
    with reading:
        for item in reading:
            if not item.size:
                item.make()
                continue
            if not left:
                made, left = [None] * item.size, item.size
            item.fill(made, attempt(item, on_error))
            left -= item.length
            if not left:
                yield made
                # The next batch's chunks are decoded before its list replaces this one.
                made = []


T = TypeVar("T")


class Item(NamedTuple):
    """A sample, or several of a batch, whose read has succeeded or failed; or, with ``size`` 0, a preparing item.

    A preparing item does work that later items wait for (such as decoding a chunk that holds many samples), and belongs
    to no batch. It comes before every sample that needs it, so the ``make`` of a sample may wait for a preparing item
    that another thread has begun. The ``make`` of a preparing item returns nothing and raises nothing: a ``Prepared``
    keeps an error for the samples that need the value.
    """

    batch: int  # number of the batch, from 0; any number for a preparing item
    slot: int  # position in the batch
    size: int  # number of samples in the batch; 0: a preparing item
    url: str | Callable[[], str]  # URL of the object, or a function that returns it, because most URLs are never needed
    # Returns the value that the dataset yields, or raises the error; any thread may call it, once.
    make: Callable[[], Any]
    # 0: the item is one sample. Otherwise the number of its samples: ``make`` then returns a list of them, with a
    # ``Failed`` for each sample that has failed by itself.
    samples: int = 0
    # The position of each of several samples in the batch; empty: they are neighbours, from ``slot`` on.
    slots: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        return self.samples or 1

    def fill(self, batch: list[Any], made: Any) -> None:  # noqa: ANN401  a sample, or a list of them
        if not self.samples:
            batch[self.slot] = made
        elif self.slots:
            for slot, sample in zip(self.slots, made, strict=True):
                batch[slot] = sample
        else:
            batch[self.slot : self.slot + self.samples] = made

    @property
    def name(self) -> str:
        return self.url if isinstance(self.url, str) else self.url()


class Together:
    """Number of samples per item: half a millisecond of work, so that threads share slow samples.

    Handing an item from thread to thread takes some 10 µs. Safe in any thread: a lost update does no harm.
    """

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 1  # samples of an item, from 1 to 64

    def one(self, made: Callable[..., Any], *row: Any) -> Any:  # noqa: ANN401  the transform decides the type
        """Return ``made(*row)``, and record its time."""
        began = perf_counter()
        found = made(*row)
        self._learn(perf_counter() - began)
        return found

    def make(self, made: Callable[..., Any], names: Callable[[int], str], *columns: Iterable[Any]) -> list[Any]:
        """Return ``made`` of each row of ``columns``; a ``Failed``, named by its first value, where that raises."""
        found: list[Any] = []
        began = perf_counter()
        for row in zip(*columns, strict=True):
            try:
                found.append(made(*row))
            except Exception as error:  # noqa: BLE001  the sample's own
                found.append(Failed(names(row[0]), error))
        self._learn((perf_counter() - began) / len(found))
        return found

    def _learn(self, sample_s: float) -> None:
        self.count = max(1, min(_TOGETHER, 2 * self.count, int(_ITEM_S / max(sample_s, 1e-9))))


class Reading(ABC):
    """The items of some batches in order, read ahead; an error of one sample does not end the iteration.

    The batches come one after the other, each with all its items. An empty batch among those to read means that the
    next one is not known yet; it is asked for again once items were taken. Every item is made once, in any order
    and on any thread. Only preparing items (see ``Item``) must be made, or at least begun, in the order in which
    they came. Only one thread at a time may call ``next``. Another thread may call ``close``, which wakes a waiting
    ``next``; a second ``close`` does nothing. Nothing is read before the first ``next``.
    """

    @property
    @abstractmethod
    def counts(self) -> ReadCounts:
        """The counts of the reads so far, of the items that were taken; always the same object."""

    @abstractmethod
    def __next__(self) -> Item:
        """Return the next item as soon as its bytes have arrived or its read has failed."""

    def begin(self) -> None:  # noqa: B027  reads may as well begin with ``next``
        """Send the first requests now, before the first ``next``."""

    def ahead(self) -> Item | None:
        """Return a preparing item that can be made now, before ``next`` would return it; None without such an item.

        For a caller that does not want a sample yet. Never waits; otherwise like ``next``.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Cancel reads in flight, end the iteration, and wake samples that wait for a value that was never prepared.

        A reading with preparing items calls ``Prepared.abandon`` for each value that a sample may wait for. The garbage
        collector may call this method on any thread, so it takes no lock.
        """

    def __iter__(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SampleDataset:
    """Base class of datasets that read samples by their indices, ahead and in any order."""

    # Function that turns a sample into the yielded value; None: the sample itself is yielded.
    transform: Callable[[Any], Any] | None = None

    @property
    def contents(self) -> Contents | None:
        """The identity of the data, which states and ranks compare; None: no comparison is possible."""
        return None

    @property
    def transforms(self) -> dict[str, Callable[[Any], Any] | None]:
        """The functions that worker processes need, by the name that errors give them."""
        return {"transform": self.transform}

    @property
    def decodes(self) -> bool:
        """Whether making a sample costs so much CPU time that several threads help."""
        return self.transform is not None

    @property
    def skips(self) -> bool:
        """Whether samples may be left out of their batches for any ``on_error`` of the loader."""
        return False

    def _repr_html_(self) -> str | None:
        shown = getattr(self.contents, "_repr_html_", None)
        return None if shown is None else shown()

    def reading(self, batches: Iterable[list[int]], workers: int) -> Reading:
        """Return a ``Reading`` of the samples of ``batches`` (lists of indices), one by one.

        ``workers`` is the number of processes that read in parallel and share the read-ahead budget. No read begins
        before the first ``next``.
        """
        raise NotImplementedError

    def samples(self, indices: Iterable[int], workers: int) -> Iterator[Any]:
        """Return an iterator over samples one by one, transformed on this thread; the first error ends it."""
        return (each for [each] in in_lists(self.reading(([index] for index in indices), workers)))

    def _transform_sample(self, sample: Any, index: int) -> Any:  # noqa: ANN401  the transform decides the type
        """Return the yielded value of sample ``index``; an error of the transform names the sample."""
        if self.transform is None:
            return sample
        try:
            return self.transform(sample)
        except StopIteration as error:
            name = f"sample {index} of {public_url(self.url_of(index))}"
            # A StopIteration would silently end the iteration over samples.
            raise RuntimeError(f"the transform of {name} raised StopIteration") from error
        except Exception as error:
            error.add_note(f"while transforming sample {index} of {public_url(self.url_of(index))}")
            raise

    def url_of(self, index: int) -> str:
        """Return the URL of sample ``index``, or another name for reports; reads nothing."""
        return f"sample {index} of {type(self).__name__}"

    def reads(self, batches: Callable[[], Iterable[list[int]]] | None = None) -> Iterator[Reads]:
        """Yield each store with the byte spans that the samples need of it, in order; reads nothing.

        ``batches`` returns the batches again for each store; None: all samples. A span that several samples need may
        come only once.
        """
        raise NotImplementedError

    def lists(self, batches: Iterable[list[int]], workers: int) -> tuple[Iterator[list[Any]], ReadCounts]:
        """Return the batches as lists of samples, made on the thread that iterates, and the counts of their reads."""
        reading = self.reading(batches, workers)
        return in_lists(reading), reading.counts


class Prepared(Generic[T]):
    """A value that a preparing item makes once, and that several samples wait for.

    Has no lock, and no condition or event, which contain one: the garbage collector may call ``abandon`` at any point
    of any thread.
    """

    __slots__ = ("_abandoned", "_done", "_failure", "_make", "_traceback", "_value", "_wakeup")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make: Callable[[], T] | None = make
        self._value: T | None = None
        self._failure: BaseException | None = None
        self._traceback: TracebackType | None = None
        self._done = self._abandoned = False
        # A thread that wakes up wakes the next one.
        self._wakeup = Wakeup()

    def prepare(self) -> None:
        """Make the value, or keep its error; used as ``Item.make``. A second call does nothing."""
        make, self._make = self._make, None
        if make is None:
            return
        try:
            self._value = make()
        except BaseException as error:  # noqa: BLE001  the samples raise it later
            self._failure, self._traceback = error, error.__traceback__
        finally:
            self._done = True
            self._wakeup.set()

    def get(self) -> T:
        """Wait until the value has been made, and return it; each call raises the same error if making it failed."""
        if not self._done:
            self._await()
        if self._failure is not None:
            # Reset to the first traceback: each raise would add frames, and keep alive the objects that they hold.
            raise self._failure.with_traceback(self._traceback)
        return self._value  # type: ignore[return-value]  # done, and without an error

    def _await(self) -> None:
        while not (self._done or self._abandoned):
            self._wakeup.wait()
        self._wakeup.set()
        if not self._done:
            raise Cancelled("the reading was closed")

    def abandon(self) -> None:
        """Wake the waiting threads and prevent a later ``prepare``; a value already made or being made stays valid."""
        self._make, self._abandoned = None, True
        self._wakeup.set()

    def forget(self) -> None:
        self._value = None
