"""Batches formed where the order is known: the same for any number of workers, ranks and stops."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch.utils.data import IterableDataset as TorchIterableDataset
from torch.utils.data import default_collate, get_worker_info

from penstock.datasets.planning.inspection import PlannedSample, planned
from penstock.datasets.policy import Delivery, OnError, in_lists, remaining
from penstock.datasets.positions.conflicts import check_batching
from penstock.datasets.positions.resumable import Resumable
from penstock.datasets.positions.stateful import Progress, StatefulIterator
from penstock.datasets.sample import Sample
from penstock.errors import Unusable
from penstock.order.indices import batch_indices
from penstock.order.sampling import Cursor
from penstock.values import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.datasets.positions.consistency import Contents
    from penstock.datasets.positions.iteration import Iterations
    from penstock.datasets.reading import Reading
    from penstock.order.partition import Tail
    from penstock.order.sampling import SamplingPlan
    from penstock.protocols.fetching import ReadCounts
    from penstock.source import Source
    from penstock.values import Place, Span

__all__ = ["BatchableDataset", "Batched"]


class BatchableDataset:
    """A dataset whose batches are formed here, and read ahead as the order says: what ``penstock.DataLoader`` takes.

    Attributes:
        transform: Makes of a sample what is yielded; None: the sample itself.

    """

    transform: Callable[[Any], Any] | None = None

    @property
    def contents(self) -> Contents | None:
        """What the samples are made of, for states and ranks to compare; None: they cannot."""
        return None

    @property
    def decodes(self) -> bool:
        """Whether making a sample takes time of a processor, so that several threads are worth it."""
        return self.transform is not None

    def reading(self, batches: Iterable[list[int]], workers: int) -> Reading:
        """Return the samples of ``batches``, which are lists of indices, one by one; see ``Reading``.

        ``workers`` is how many processes read in parallel, and share the budget. Nothing begins before the first
        ``next``.
        """
        raise NotImplementedError

    def url_of(self, index: int) -> str:
        """Return the URL of sample ``index``, or another name of it, for reports; nothing is read."""
        return f"sample {index} of {type(self).__name__}"

    def spans(self, batches: Iterable[list[int]] | None = None) -> tuple[Source, Iterator[Span]]:
        """Return what the samples of ``batches`` are read from: the store, and the bytes in order, none of them read.

        Without ``batches`` those of all samples. Bytes that several samples need may come once only.
        """
        raise NotImplementedError

    def lists(self, batches: Iterable[list[int]], workers: int) -> tuple[Iterator[list[Any]], ReadCounts]:
        """Return the samples of each batch as a list, made on the thread that iterates, and counts of their reads."""
        reading = self.reading(batches, workers)
        return in_lists(reading), reading.counts

    def batched(
        self, batch_size: int, collate_fn: Callable[[list[Any]], Any] | None = None, *, tail: Tail = "short"
    ) -> Batched:
        """Return this dataset's batches of ``batch_size`` per rank: see ``IterableDataset.batched``."""
        raise NotImplementedError


class Batched(Resumable, TorchIterableDataset[Any]):
    """A dataset's batches, for ``DataLoader(batch_size=None)``; what is yielded is collated.

    Attributes:
        dataset: Whose samples.
        collate_fn: Makes a batch of a list; default: torch's own, and the plain list of bare ``Sample``s.

    """

    def __init__(
        self,
        dataset: BatchableDataset,
        plan: SamplingPlan,
        iterations: Iterations,
        collate_fn: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        """Form the batches that ``plan`` says of ``dataset``'s samples."""
        super().__init__(plan, dataset.contents, iterations)
        if collate_fn is not None and not callable(collate_fn):
            raise Unusable(f"collate_fn is a function that makes a batch of a list, not {collate_fn!r}")
        self.dataset = dataset
        self.collate_fn = collate_fn or _collate
        self._latest: Progress | None = None

    @property
    def batch_size(self) -> int:
        """Samples per batch and rank."""
        return self.plan.batch

    def __iter__(self) -> StatefulIterator:
        """Begin the next epoch, here and now; reads begin with the first ``next``. See ``StatefulIterator``."""
        check_batching(self)
        batches = StatefulIterator(self, self._collated)
        self._latest = batches.begin()
        return batches

    def _collated(self, cursor: Cursor, place: Place) -> Iterator[Any]:
        whole, _ = self.dataset.lists(batch_indices(self.plan, cursor, place), place.workers)
        return (self.collate_fn(samples) for samples in whole)  # not map: a StopIteration in it would end the epoch

    def inspect(self, batch: int, *, epoch: int | None = None, rank: int | None = None) -> tuple[PlannedSample, ...]:
        """Return which samples batch ``batch`` (from 0) holds, in order, before or after it was delivered.

        No request is made, and no worker or other rank is asked. It takes as long for any batch of any epoch.

        Args:
            batch: Its number on its rank: of ``epoch``, counted from its start; without ``epoch`` of the latest
                iteration, counted from where that began (after ``load_state_dict``: from where it will resume).
            epoch: Which one.
            rank: Whose batch, of as many ranks as there are now; default: this process's.

        Raises:
            Unusable: There is no such batch, epoch or rank.

        """
        latest, place = self._iterations.epochs.latest(), self._iterations.rank()
        cursor = latest if epoch is None else Cursor(whole(epoch, "an epoch", 0), lanes=latest.lanes)
        if rank is not None:
            number = whole(rank, "a rank", 0)
            if number >= place.world:
                raise Unusable(f"there is no rank {number}: there are {place.world}, from 0")
            place = replace(place, rank=number)
        return planned(self.plan, cursor, place, batch, self.dataset.url_of)

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the batches that the latest iteration of these batches has delivered.

        ``load_state_dict`` takes it. Another iteration over the dataset that began meanwhile in this process (a look at
        its first sample, say) changes nothing.

        After the last batch it is the next epoch's start. Under torch's loader with workers this object does not know
        how many batches were received: ``state_at(received)`` is for that. In a worker it is the worker's own, as its
        iterator's.

        Raises:
            Unusable: The latest iteration began in another process.

        """
        begun, coming, latest = self._iterations.epochs.latest(), self.coming(), self._latest
        ours = latest is not None and begun in (latest.cursor, self._iterations.begun)  # the latter: of the dataset
        here = latest is not None and (ours or get_worker_info() is not None)
        if latest is not None and here and begun != coming and not latest.ended:
            return self.state(latest.cursor, latest.batches)
        if here or begun == coming:
            return self.state(coming)
        raise Unusable(
            "this iteration runs elsewhere (in a loader's workers, say), which does not tell how many batches the "
            "training loop has received: count them, and ask for state_at(received)"
        )

    def deliveries(
        self, on_error: OnError, collate: Callable[[list[Any]], Any] | None = None
    ) -> tuple[Iterator[Delivery], ReadCounts]:
        """Begin the next epoch, here and now: return its batches for a loader, and counts of their reads so far.

        ``collate`` makes batches instead of ``collate_fn``.
        """
        collate = collate or self.collate_fn
        cursor, place = self.begin()
        batches = batch_indices(self.plan, cursor, place)
        if on_error == "raise":
            whole, counts = self.dataset.lists(batches, place.workers)
            return (Delivery(collate(samples), cursor, (), len(samples)) for samples in whole), counts
        reading = self.dataset.reading(batches, place.workers)
        return _skipping(reading, cursor, collate), reading.counts

    def reading(self) -> tuple[Cursor, Reading]:
        """Begin the next epoch: return where, and this process's samples as they arrive."""
        cursor, place = self.begin()
        return cursor, self.dataset.reading(batch_indices(self.plan, cursor, place), place.workers)

    def spans(self) -> tuple[Source, Iterator[Span]]:
        """Return what this rank reads in the next epoch: see ``BatchableDataset.spans``. The epoch does not begin."""
        return self.dataset.spans(batch_indices(self.plan, self.coming(), self._iterations.rank()))


def _collate(samples: list[Any]) -> Any:  # noqa: ANN401  whatever torch makes of it
    if isinstance(samples[0], Sample):
        return samples
    try:
        return default_collate(samples)
    except (RuntimeError, TypeError) as error:
        error.add_note("torch collates batches: let transform return tensors of one shape, or pass collate_fn=list")
        raise


def _skipping(reading: Reading, cursor: Cursor, collate: Callable[[list[Any]], Any]) -> Iterator[Delivery]:
    for made in in_lists(reading, "skip"):
        samples, skipped = remaining(made)
        yield Delivery(collate(samples), cursor, skipped, len(samples))
