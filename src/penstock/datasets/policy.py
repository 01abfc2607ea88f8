"""What reaches a loader: a batch, where its epoch began, and which samples were left out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from penstock.errors import Bug, Cancelled, Damaged, DatasetChanged, NoSpace, Unusable, public_url

if TYPE_CHECKING:
    from penstock.datasets.reading import Item
    from penstock.order.sampling import Cursor

__all__ = ["Delivery", "OnError", "Skipped", "attempt", "remaining"]

OnError = Literal["raise", "skip"]

_OURS = (Bug, Cancelled, DatasetChanged, NoSpace, Unusable, MemoryError)  # errors that would affect every sample
_NAMED = 8


class Skipped(NamedTuple):
    """A sample that was left out of its batch.

    Attributes:
        url: Which object.
        error: What went wrong, as text: it has to cross a process.

    """

    url: str
    error: str


class Delivery(NamedTuple):
    """A batch for the training loop.

    Attributes:
        batch: What the loader's ``collate_fn`` made of it.
        cursor: Where the iteration it belongs to began.
        skipped: What was left out of it.
        samples: How many samples it has.

    """

    batch: Any
    cursor: Cursor
    skipped: tuple[Skipped, ...] = ()
    samples: int = 0


def attempt(item: Item, on_error: OnError) -> Any:  # noqa: ANN401  whatever a transform returns
    """Return what the dataset yields of an item; with "skip", a ``Skipped`` for an error that is the sample's own."""
    try:
        return item.make()
    except Exception as error:
        if on_error == "raise" or isinstance(error, _OURS):
            raise
        return Skipped(item.name, f"{type(error).__name__}: {error}")


def remaining(made: list[Any]) -> tuple[list[Any], tuple[Skipped, ...]]:
    """Part a batch into its samples and what was skipped.

    Raises:
        Damaged: Nothing is left: going on without would put this rank out of step with the others.

    """
    skipped = tuple(each for each in made if isinstance(each, Skipped))
    if len(skipped) < len(made):
        return ([each for each in made if not isinstance(each, Skipped)] if skipped else made), skipped
    named = "; ".join(f"{public_url(url)} ({error})" for url, error in skipped[:_NAMED])
    more = f" and {len(skipped) - _NAMED} more" if len(skipped) > _NAMED else ""
    raise Damaged(f"no sample of a batch could be read: {named}{more}")
