"""What reaches a loader: a batch, where its epoch began, which samples were left out; and how items are made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from penstock.errors import Bug, Cancelled, Damaged, DatasetChanged, NoSpace, Unusable, public_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.datasets.reading import Item, Reading
    from penstock.order.sampling import Cursor

__all__ = ["Delivery", "Failed", "OnError", "Skipped", "attempt", "in_lists", "remaining"]

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


class Failed(NamedTuple):
    """A sample that could not be made, among others of one item that could.

    Attributes:
        name: Its URL, for reports.
        error: What went wrong.

    """

    name: str
    error: Exception


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
    """Return what the dataset yields of an item; with "skip", a ``Skipped`` for an error that is the sample's own.

    Of an item of several samples it is a list; the first error that is not skipped is raised.
    """
    try:
        made = item.make()
    except Exception as error:
        if on_error == "raise" or isinstance(error, _OURS) or item.samples:  # not a single sample's
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


def in_lists(reading: Reading, on_error: OnError = "raise") -> Iterator[list[Any]]:
    """Yield each batch's samples as a list, made on this thread as ``attempt`` does; the first error ends it.

    Closes the reading.
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
