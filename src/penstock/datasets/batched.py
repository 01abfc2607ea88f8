"""Batches formed where the order is known: the same for any number of workers, ranks and stops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils.data import IterableDataset as TorchIterableDataset
from torch.utils.data import default_collate

from penstock.datasets.delivery import Delivery, OnError, attempt, remaining
from penstock.datasets.reading import Reading, lists
from penstock.datasets.resumable import Resumable
from penstock.datasets.sample import Sample
from penstock.datasets.walk import walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.datasets.opening import Opening
    from penstock.datasets.standing import Standing
    from penstock.order.course import Course, Cursor

__all__ = ["Batched"]


class Batched(Resumable, TorchIterableDataset[Any]):
    """A data set's batches, for ``DataLoader(batch_size=None)``; what is yielded is collated.

    Attributes:
        dataset: Whose samples.
        collate_fn: Makes a batch of a list; default: torch's own, and the plain list of bare ``Sample``s.

    """

    def __init__(
        self,
        dataset: Opening,
        course: Course,
        standing: Standing,
        collate_fn: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        """Form the batches that ``course`` says of ``dataset``'s samples."""
        super().__init__(course, dataset.catalog, standing)
        self.dataset = dataset
        self.collate_fn = collate_fn or _collate

    @property
    def batch_size(self) -> int:
        """Samples per batch and rank."""
        return self.course.batch

    def __iter__(self) -> Iterator[Any]:
        """Begin the next epoch, here and now; reads begin with the first ``next``."""
        _, batches, workers = self.begin()
        return (self.collate_fn(samples) for samples in lists(self.dataset, batches, workers))

    def deliveries(self, on_error: OnError) -> Iterator[Delivery]:
        """Begin the next epoch, here and now, and return its batches with what a loader wants to know of them."""
        cursor, batches, workers = self.begin()
        if on_error == "raise":
            whole = lists(self.dataset, batches, workers)
            return (Delivery(self.collate_fn(samples), cursor) for samples in whole)
        return self._skipping(Reading(self.dataset, batches, workers), cursor)

    def begin(self) -> tuple[Cursor, Iterator[list[int]], int]:
        """Begin the next epoch: return where, this process's batches as indices, and how many workers share them."""
        self._agree()
        cursor, place = self._standing.begin()
        return cursor, walk(self.course, cursor, place), place.workers

    def _skipping(self, reading: Reading, cursor: Cursor) -> Iterator[Delivery]:
        made: list[Any] = []
        with reading:
            for item in reading:
                made.append(attempt(item, "skip"))
                if item.slot + 1 == item.size:
                    samples, skipped = remaining(made)
                    made = []
                    yield Delivery(self.collate_fn(samples), cursor, skipped)


def _collate(samples: list[Any]) -> Any:  # noqa: ANN401  whatever torch makes of it
    return samples if isinstance(samples[0], Sample) else default_collate(samples)
