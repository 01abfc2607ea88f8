"""Which samples a batch holds, by the order alone: nothing is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import Unusable
from penstock.order.indices import batch_indices
from penstock.order.partition import Repeat
from penstock.values import Place, whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.order.sampling import Cursor, SamplingPlan

__all__ = ["PlannedSample", "planned"]


@dataclass(frozen=True, slots=True)
class PlannedSample:
    """A sample of a batch that need not have been read yet.

    Attributes:
        index: Its number in the dataset: ``dataset.catalog[index]``, or ``zarr_dataset.as_map()[index]``.
        url: Its object's, as in ``DataLoader.skipped``; of arrays the first array's, with the sample's place in it.
        repeat: Whether the epoch has this sample already, and here it only fills a batch up.

    """

    index: int
    url: str
    repeat: bool


def planned(
    plan: SamplingPlan, cursor: Cursor, rank: Place, batch: int, url_of: Callable[[int], str]
) -> tuple[PlannedSample, ...]:
    """Return the samples of a rank's batch number ``batch``, counted from ``cursor``, in the order of delivery.

    Takes as long for any batch and epoch: the positions of at most a few thousand samples are looked up.

    Raises:
        Unusable: There is no such batch, or the ranks cannot share the lanes that the order asks for.

    """
    place, number = Place(rank=rank.rank, world=rank.world), whole(batch, "a batch's number", 0)
    count = len(plan.batches(cursor, place))
    if number >= count:
        begins = f", from position {cursor.position} on," if cursor.position else ""
        raise Unusable(f"there is no batch {number}: epoch {cursor.epoch}{begins} has {count} for each rank, from 0")
    plan.check_lanes(cursor, place.world)
    indices = next(batch_indices(plan, plan.after(cursor, number, place.world), place))
    return tuple(PlannedSample(int(index), url_of(int(index)), isinstance(index, Repeat)) for index in indices)
