"""Planned samples of a batch, computed from the order alone, without a read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.data.order.indices import batch_indices
from penstock.data.order.partition import Repeat
from penstock.errors import Unusable
from penstock.values import Place, whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.data.order.sampling import Cursor, SamplingPlan

__all__ = ["PlannedSample", "planned"]


@dataclass(frozen=True, slots=True)
class PlannedSample:
    """A sample of a batch, which may not have been read yet.

    Attributes:
        index: Number of the sample in the dataset: ``dataset.catalog[index]``, or ``zarr_dataset.as_map()[index]``.
        url: URL of its object, as in ``DataLoader.skipped``; for arrays, URL of the first array with the sample's
            position in it.
        repeat: Whether the sample is a repeat within this epoch that only fills up a batch.

    """

    index: int
    url: str
    repeat: bool


def planned(
    plan: SamplingPlan, cursor: Cursor, rank: Place, batch: int, url_of: Callable[[int], str]
) -> tuple[PlannedSample, ...]:
    """Return the samples of a rank's batch number ``batch``, counted from ``cursor``, in the order of delivery.

    The cost is the same for any batch and epoch: the positions of at most a few thousand samples are looked up.

    Raises:
        Unusable: The batch does not exist, or the ranks cannot share the lanes that the order needs.

    """
    place, number = Place(rank=rank.rank, world=rank.world), whole(batch, "a batch's number", 0)
    count = len(plan.batches(cursor, place))
    if number >= count:
        begins = f", from position {cursor.position} on," if cursor.position else ""
        raise Unusable(f"there is no batch {number}: epoch {cursor.epoch}{begins} has {count} for each rank, from 0")
    plan.check_lanes(cursor, place.world)
    indices = next(batch_indices(plan, plan.after(cursor, number, place.world), place))
    return tuple(PlannedSample(int(index), url_of(int(index)), isinstance(index, Repeat)) for index in indices)
