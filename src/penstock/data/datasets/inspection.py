"""Samples of batches without reading them: of any batch of an epoch, and of all batches that a run has received."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, SupportsIndex

import numpy as np

from penstock.data.order.sampling import BatchLookup, Cursor, Repeat, batch_indices
from penstock.display import counted
from penstock.errors import StateMismatch, Unusable
from penstock.values import Place, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from penstock.data.order.sampling import SamplingPlan


@dataclass(frozen=True, slots=True)
class PlannedSample:
    """A sample of a batch, which may not have been read yet.

    Attributes:
        index: Number of the sample in the dataset: ``dataset.catalog[index]``, or ``zarr_dataset.as_map()[index]``.
        url: URL of its object, as in ``DataLoader.skipped``; for arrays, URL of the first array with the sample's
            position in it.
        repeat: Whether the sample is a repeat within this epoch that only fills up a batch.
        source: Name of its source in a ``ps.Mix``, in whose dataset it has the number ``index``; empty otherwise.
    """

    index: int
    url: str
    repeat: bool
    source: str = ""


def plan_batch(plan: SamplingPlan, cursor: Cursor, rank: Place, batch: int) -> list[tuple[int, bool]]:
    """Return index and repeat of each sample of a rank's batch number ``batch`` from ``cursor`` on, in order."""
    place, number = Place(rank=rank.rank, world=rank.world), whole(batch, "a batch's number", 0)
    count = len(plan.batches(cursor, place))
    if number >= count:
        begins = f", from position {cursor.position} on," if cursor.position else ""
        raise Unusable(f"batch {number} does not exist: epoch {cursor.epoch}{begins} has {count} for each rank, from 0")
    plan.check_lanes(cursor, place.world)
    indices = next(batch_indices(plan, plan.after(cursor, number, place.world), place))
    return [(int(index), isinstance(index, Repeat)) for index in indices]


class SeenBatches(Sequence["NDArray[np.int64]"]):
    """The global batches that a run received between two states: those of all its ranks, in order.

    ``seen[k]`` has the numbers of the samples of global batch ``k``, from 0: int64, one for each sample, those included
    that fill up an incomplete batch. Iteration yields these arrays, some thousand samples looked up at a time. A number
    means what ``DataLoader.inspect`` has as ``index``; in a ``ps.Mix`` those of the sources follow one another, and
    ``inspect`` names source and sample. Everything is computed from the order: nothing is read, and any batch costs the
    same.

    Attributes:
        notes: Reasons why the training may have received other batches than these; empty: these are exact.

    Example:
        >>> dataset = ps.MapDataset.from_prefix("s3://bucket/train/3/")
        >>> loader = ps.DataLoader(dataset, batch_size=8, shuffle=True)
        >>> batches = iter(loader)
        >>> received = [next(batches) for _ in range(5)]
        >>> seen = loader.seen(loader.state_dict())
        >>> len(seen), seen.samples, [each.key for each in received[4]] == [dataset.catalog[i].key for i in seen[4]]
        (5, 40, True)
    """

    def __init__(
        self,
        plan: SamplingPlan,
        interval: tuple[Cursor, Cursor],
        ranks: int,
        describe: Callable[[int, bool], PlannedSample],
        notes: tuple[str, ...] = (),
    ) -> None:
        """Show the batches of ``plan``, whose batches are those of all ``ranks`` together, in an interval."""
        self._plan, self._describe, self.notes = plan, describe, notes
        self._ranks, self._parts = ranks, replace(plan, batch=plan.batch // ranks)
        self._since, until = interval
        # Lanes of a later epoch are those that the run went on with.
        self._later = until._replace(position=0)
        self._first, self._whole, last = self._count(self._since), self._count(self._later), until.position
        if until.epoch == self._since.epoch:
            self._first, self._length = self._steps(self._since.position, last), 0
        else:
            self._length = (until.epoch - self._since.epoch - 1) * self._whole + self._steps(0, last)
        self._length += self._first
        self._latest: tuple[Cursor, BatchLookup] | None = None

    def _count(self, cursor: Cursor) -> int:
        return len(self._parts.batches(cursor, Place(world=self._ranks)))

    def _steps(self, start: int, stop: int) -> int:
        """Return the number of global batches from one position to another of an epoch."""
        steps, rest = divmod(stop - start, self._plan.batch)
        if rest and stop < self._plan.total:
            raise StateMismatch(
                f"positions {start} and {stop} are {stop - start} samples apart, and global batches have "
                f"{self._plan.batch}: the global batch changed between these states; pass one from there as since="
            )
        return steps + bool(rest)

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        notes = "".join(f"; {note}" for note in self.notes)
        return f"<SeenBatches: {counted(self.samples, 'sample')} in batches of {self._plan.batch:,}{notes}>"

    @property
    def samples(self) -> int:
        """Number of samples of all batches, repeats included."""
        total = self._length * self._plan.batch
        # Only the last batch of an epoch may be incomplete.
        if self._first == self._count(self._since):
            total -= self._lacking(self._since)
        return total - (self._length - self._first) // max(1, self._whole) * self._lacking(self._later)

    def _lacking(self, cursor: Cursor) -> int:
        """Return how many samples the last batch of an epoch has less than the others."""
        count = self._count(cursor)
        return self._plan.batch - int(self._sizes(cursor, count - 1, count)[1][0]) if count else 0

    def _sizes(self, cursor: Cursor, start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return first positions and sizes of the global batches from ``start`` to ``stop`` after ``cursor``."""
        firsts = cursor.position + np.arange(start, stop) * self._plan.batch
        sizes = np.full_like(firsts, self._plan.batch)
        sizes[-1] = self._parts.batches(cursor, Place(world=self._ranks)).size(int(firsts[-1]))
        return firsts, sizes

    def _find(self, start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], int]:
        """Return the result of ``BatchLookup.find`` for some batches, and the number of them: those of one epoch."""
        cursor, count = self._since, self._first
        if start >= count:
            turns = (start - count) // self._whole
            cursor = self._later._replace(epoch=self._since.epoch + 1 + turns)
            start, stop, count = (each - self._first - turns * self._whole for each in (start, stop, self._length))
            count = min(count, self._whole)
        stop = min(stop, count)
        if self._latest is None or self._latest[0] != cursor:
            batches = self._parts.batches(cursor, Place(world=self._ranks))
            self._latest = cursor, BatchLookup(self._plan, cursor, 1, batches)
        found, ends, past = self._latest[1].find(*self._sizes(cursor, start, stop))
        return found.astype(np.int64), ends, past, stop - start

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        number = 0
        while number < self._length:
            found, ends, _, count = self._find(number, number + max(1, self._plan.at_once // self._plan.batch))
            yield from np.split(found, ends[:-1])
            number += count

    def __getitem__(self, number: SupportsIndex) -> NDArray[np.int64]:  # type: ignore[override]
        """Return the numbers of the samples of one global batch: int64, shape (samples,)."""
        return self._find(*self._one(number))[0]

    def _one(self, number: SupportsIndex) -> tuple[int, int]:
        index = operator.index(number)
        if not -self._length <= index < self._length:
            raise IndexError(f"batch {index} does not exist: the run received {self._length} between these states")
        index %= self._length
        return index, index + 1

    def inspect(self, batch: int, *, rank: int | None = None) -> tuple[PlannedSample, ...]:
        """Return the samples of one global batch with their URLs, in order.

        Args:
            batch: Number of the global batch, from 0; negative numbers count from the end.
            rank: Number of the rank whose samples are returned; default: all ranks, one after the other.

        Raises:
            Unusable: There is no such rank.
        """
        found, _, past, _ = self._find(*self._one(batch))
        repeats, samples = {*past.tolist()}, range(len(found))
        if rank is not None:
            if whole(rank, "a rank", 0) >= self._ranks:
                raise Unusable(f"rank must be 0 to {self._ranks - 1}, got {rank}; pass ranks= to seen")
            samples = samples[len(found) * rank // self._ranks : len(found) * (rank + 1) // self._ranks]
        return tuple(self._describe(int(found[at]), at in repeats) for at in samples)
