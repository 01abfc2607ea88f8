"""Iterators with a state of their own, which torchdata's StatefulDataLoader and its like save and load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from penstock.errors import StateMismatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.order.sampling import Cursor
    from penstock.values import Place

__all__ = ["Progress", "StatefulIterator", "elastic_state"]


class _Source(Protocol):
    """What a ``StatefulIterator`` needs of its source: ``Resumable``."""

    def coming(self) -> Cursor: ...
    def begin(self) -> tuple[Cursor, Place]: ...
    def restart(self, state: Mapping[str, Any]) -> tuple[Cursor, Place]: ...
    def state(self, cursor: Cursor, batches: int = 0) -> dict[str, Any]: ...


@dataclass(slots=True)
class Progress:
    """How far an iteration has come: its first cursor, its place, how many items it has delivered, and whether all."""

    cursor: Cursor
    place: Place
    delivered: int = 0
    ended: bool = False

    @property
    def batches(self) -> int:
        """How many batches lie between ``cursor`` and the one that this process delivers next."""
        return self.place.worker + self.delivered * self.place.workers


class StatefulIterator(Iterator[Any]):
    """An iteration whose state can be taken after each item, and loaded before the first.

    The state is an ordinary one of the dataset: where the next item of this process comes from. One of several workers
    takes every ``workers``-th item from there on, so its state is good for as many workers only, each with its own;
    ``elastic_state`` makes one for any number of all of them together.

    Attributes:
        progress: How far it has come; None before it has begun.

    """

    def __init__(self, source: _Source, items: Callable[[Cursor, Place], Iterator[Any]]) -> None:
        """Iterate over what ``items`` returns; nothing begins before ``begin``, or the first ``next``."""
        self._source = source
        self._make = items
        self._items: Iterator[Any] | None = None
        self._failure: Exception | None = None
        self.progress: Progress | None = None

    def begin(self) -> Progress:
        """Begin the source's next iteration, here and now; reads begin with the first ``next``."""
        self.progress = Progress(*self._source.begin())
        return self.progress

    def __next__(self) -> Any:  # noqa: ANN401  a batch or a sample
        """Return the next item.

        Raises:
            Exception: What making it raised; from then on that error again, and the state stays where it was.

        """
        if self._failure is not None:  # a generator that has failed would say that it is complete
            raise self._failure
        progress = self.progress or self.begin()
        if self._items is None:
            self._items = self._make(progress.cursor, progress.place)
        try:
            item = next(self._items)
        except StopIteration:
            progress.ended = True
            raise
        except Exception as error:
            self._failure = error
            raise
        progress.delivered += 1
        return item

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the items that this iterator has delivered; what was read ahead does not count."""
        if self.progress is None:
            return self._source.state(self._source.coming())
        return self._source.state(self.progress.cursor, self.progress.batches)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume where ``state`` was taken; the source's next iteration is the epoch after it.

        Raises:
            StateMismatch: The state is of another catalog, order, or global batch, or is none.

        """
        again = Progress(*self._source.restart(state))
        if self.progress is None:
            self.progress = again
        else:  # the source knows it, too
            self.progress.cursor, self.progress.place = again.cursor, again.place
            self.progress.delivered, self.progress.ended = 0, False
        self._items = self._failure = None


def elastic_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Make of a StatefulDataLoader's state, over ``batched`` or a ``BatchSampler``, one that any layout loads.

    Pure. torchdata's own refuses another number of workers; what this returns goes to ``load_state_dict`` of a
    ``BatchSampler``, a ``penstock.DataLoader`` or ``batched`` batches, with any number of workers and ranks.

    Raises:
        StateMismatch: It holds no such state; or one of batches that torch formed itself, which are other batches for
            any other number of workers.

    """
    try:
        snapshot = state.get("_snapshot")
        main = state if snapshot is None else snapshot["_main_snapshot"]  # with worker processes
        ours, later = _joined(_states(main, snapshot)), state.get("_steps_since_snapshot", 0)
        epoch, *numbers = (ours[name] for name in ("epoch", "position", "samples", "global_batch"))
        position, samples, batch = numbers
        if any(type(number) is not int for number in (epoch, later, *numbers)):
            raise TypeError("what should be whole numbers are none")
        if not (0 <= position <= samples and batch > 0 <= later):
            raise ValueError("no such position")
        if state["_iterator_finished"]:
            return ours | {"epoch": epoch + 1, "position": 0}
        return ours | {"position": min(samples, position + later * batch)}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        message = f"this is no state of a StatefulDataLoader over a penstock.BatchSampler or batched(…) ({error!r})"
        raise StateMismatch(message) from None


def _states(main: Mapping[str, Any], snapshot: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return the states of ours in torchdata's: the sampler's, or each worker's."""
    if main["_sampler_iter_state"] is not None:
        return [dict(main["_sampler_iter_state"])]
    holders = [{"fetcher_state": main["fetcher_state"]}] if snapshot is None else snapshot["_worker_snapshots"].values()
    return [dict(each["fetcher_state"]["dataset_iter_state"]) for each in holders]


def _joined(states: list[dict[str, Any]]) -> dict[str, Any]:
    """Return where all workers together resume: at the first of the batches that come next, one from each worker."""
    first = min(states, key=lambda state: state["position"])
    if "workers" in first:
        raise ValueError("torch formed its batches: only the same number of workers may resume from it; use batched(…)")
    for number, state in enumerate(sorted(states, key=lambda state: state["position"])):
        expected = min(first["samples"], first["position"] + number * first["global_batch"])
        if state != first | {"position": expected}:
            raise ValueError("its workers are not at the same place")
    return first
