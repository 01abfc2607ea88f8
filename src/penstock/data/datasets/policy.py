"""Deliveries of batches to a loader, and the policy for errors of single samples: raise or skip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from penstock.errors import Bug, Cancelled, Damaged, DatasetChanged, NoSpace, Unusable, public_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.data.datasets.reading import Item, Reading
    from penstock.data.order.sampling import Cursor

__all__ = ["Delivery", "Failed", "OnError", "Skipped", "attempt", "in_lists", "remaining"]

OnError = Literal["raise", "skip"]

_OURS = (Bug, Cancelled, DatasetChanged, NoSpace, Unusable, MemoryError)  # errors that would affect every sample
_NAMED = 8


class Skipped(NamedTuple):
    """A sample that was left out of its batch.

    Attributes:
        url: URL of the object, or another name of the sample.
        error: The error as text, because it has to cross process boundaries.

    """

    url: str
    error: str


class Failed(NamedTuple):
    """A sample that could not be made, in an item of several samples.

    Attributes:
        name: URL of the sample, for reports.
        error: The error.

    """

    name: str
    error: Exception


class Delivery(NamedTuple):
    """A batch for the training loop.

    Attributes:
        batch: The collated batch.
        cursor: Cursor at which its iteration began.
        skipped: Samples that were left out of the batch.
        samples: Number of samples in the batch.

    """

    batch: Any
    cursor: Cursor
    skipped: tuple[Skipped, ...] = ()
    samples: int = 0


def attempt(item: Item, on_error: OnError) -> Any:  # noqa: ANN401  a transform decides the type
    """Return the yielded value of an item; with "skip", return a ``Skipped`` for an error of this sample alone.

    An item of several samples gives a list. The first error that is not skipped is raised.
    """
    try:
        made = item.make()
    except Exception as error:
        if on_error == "raise" or isinstance(error, _OURS) or item.samples:  # not one sample's error
            raise
        return _skipped(item.name, error)
    if item.samples and Failed in map(type, made):
        return [_settled(each, on_error) if type(each) is Failed else each for each in made]
    return made


def _settled(failed: Failed, on_error: OnError) -> Skipped:
    if on_error == "raise" or isinstance(failed.error, _OURS):
        raise failed.error
    return _skipped(*failed)


def _skipped(name: str, error: Exception) -> Skipped:
    return Skipped(name, f"{type(error).__name__}: {error}")


def remaining(made: list[Any]) -> tuple[list[Any], tuple[Skipped, ...]]:
    """Split a batch into its samples and the skipped ones.

    Raises:
        Damaged: No sample is left. Without this batch, this rank would be out of step with the others.

    """
    skipped = tuple(each for each in made if isinstance(each, Skipped))
    if len(skipped) < len(made):
        return ([each for each in made if not isinstance(each, Skipped)] if skipped else made), skipped
    named = "; ".join(f"{public_url(url)} ({error})" for url, error in skipped[:_NAMED])
    more = f" and {len(skipped) - _NAMED} more" if len(skipped) > _NAMED else ""
    raise Damaged(f"no sample of a batch could be read: {named}{more}")


def in_lists(reading: Reading, on_error: OnError = "raise") -> Iterator[list[Any]]:
    """Yield the samples of each batch as a list, made on this thread by ``attempt``.

    The first error ends the iteration. Closes the reading.
    """
    made: list[Any] = []
    with reading:
        for item in reading:
            if not item.size:
                item.make()
                continue
            made += attempt(item, on_error) if item.samples else [attempt(item, on_error)]
            if item.stop == item.size:
                yield made
                made = []
