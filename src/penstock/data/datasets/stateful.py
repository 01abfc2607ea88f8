"""Iterators with a state that torchdata's StatefulDataLoader and similar loaders save and load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from penstock.errors import Cancelled, StateMismatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.data.order.sampling import Cursor
    from penstock.values import Place

_INTERRUPTED = (
    "the iteration was interrupted: to go on after its last item, call load_state_dict(state_dict()) and iterate again"
)


class _Source(Protocol):
    """The methods that a ``StatefulIterator`` needs of its source, a ``Resumable``."""

    def coming(self) -> Cursor: ...
    def begin(self) -> tuple[Cursor, Place]: ...
    def restart(self, state: Mapping[str, Any]) -> tuple[Cursor, Place]: ...
    def state(self, cursor: Cursor, batches: int = 0) -> dict[str, Any]: ...


@dataclass(slots=True)
class Progress:
    """Progress of an iteration: first cursor, place, number of delivered items, and whether it has ended."""

    cursor: Cursor
    place: Place
    delivered: int = 0
    ended: bool = False

    @property
    def batches(self) -> int:
        """The number of batches between ``cursor`` and the batch that this process delivers next."""
        return self.place.worker + self.delivered * self.place.workers


class StatefulIterator(Iterator[Any]):
    """An iterator whose state can be taken after each item, and loaded before the first.

    The state is an ordinary state of the dataset: the position of the next item of this process. One of several workers
    takes every ``workers``-th item from there on, so its state is valid only for the same number of workers, each with
    its own state. ``elastic_state`` combines their states into one for any number of workers.
    """

    def __init__(self, source: _Source, items: Callable[[Cursor, Place], Iterator[Any]]) -> None:
        """Iterate over the iterator that ``items`` returns, from ``begin`` or the first ``next`` on."""
        self._source = source
        self._make = items
        self._items: Iterator[Any] | None = None
        self._failure: Exception | None = None
        self.progress: Progress | None = None  # before it has begun

    def begin(self) -> Progress:
        """Begin the source's next iteration immediately; reads begin with the first ``next``."""
        self.progress = Progress(*self._source.begin())
        return self.progress

    def __next__(self) -> Any:  # noqa: ANN401  a batch or a sample
        """Return the next item; after a failure or an interrupt each call raises, and the state does not change."""
        if self._failure is not None:
            # A generator that has failed would report the end of the iteration.
            raise self._failure
        progress = self.progress or self.begin()
        if self._items is None:
            self._items = self._make(progress.cursor, progress.place)
        try:
            item = next(self._items)
        except StopIteration:
            progress.ended = True
            raise
        except BaseException as error:
            # After Ctrl-C, too, the generator would report the end, and the state would be that of the next epoch.
            self._failure = error if isinstance(error, Exception) else Cancelled(_INTERRUPTED)
            raise
        progress.delivered += 1
        return item

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the items that this iterator has delivered; items read ahead do not count."""
        if self.progress is None:
            return self._source.state(self._source.coming())
        return self._source.state(self.progress.cursor, self.progress.batches)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume where ``state`` was taken; the source's next iteration is the epoch after it."""
        again = Progress(*self._source.restart(state))
        if self.progress is None:
            self.progress = again
        else:
            # Changed in place: the source refers to this object, too.
            self.progress.cursor, self.progress.place = again.cursor, again.place
            self.progress.delivered, self.progress.ended = 0, False
        self._items = self._failure = None


def elastic_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the state of a StatefulDataLoader over ``batched`` or a ``BatchSampler`` for any number of workers.

    Pure. torchdata's own state refuses a different number of workers.

    Args:
        state: The ``state_dict()`` of a ``torchdata.stateful_dataloader.StatefulDataLoader``.

    Returns:
        A state for ``load_state_dict`` of a ``BatchSampler``, a ``penstock.DataLoader`` or ``batched`` batches, with
        any number of workers and ranks.

    Raises:
        StateMismatch: ``state`` holds no such state, or one of batches that torch formed itself: those differ for any
            other number of workers.

    Example:
        >>> from torchdata.stateful_dataloader import StatefulDataLoader
        >>> batches = ps.IterableDataset.from_prefix("s3://bucket/train/3/").batched(8)
        >>> loader = StatefulDataLoader(batches, batch_size=None)
        >>> first = next(iter(loader))
        >>> ps.elastic_state(loader.state_dict())["position"]
        8
    """
    try:
        snapshot = state.get("_snapshot")
        main = state if snapshot is None else snapshot["_main_snapshot"]  # with worker processes
        ours, later = _merge_states(_states(main, snapshot)), state.get("_steps_since_snapshot", 0)
        epoch, *numbers = (ours[name] for name in ("epoch", "position", "samples", "global_batch"))
        position, samples, batch = numbers
        if any(type(number) is not int for number in (epoch, later, *numbers)):
            raise TypeError("epoch, position, samples and batches must be whole numbers")
        if not (0 <= position <= samples and batch > 0 <= later):
            raise ValueError("the position is outside the epoch")
        if state["_iterator_finished"]:
            return ours | {"epoch": epoch + 1, "position": 0}
        return ours | {"position": min(samples, position + later * batch)}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        message = f"not a state of a StatefulDataLoader over a penstock.BatchSampler or batched(…) ({error!r})"
        raise StateMismatch(message) from None


def _states(main: Mapping[str, Any], snapshot: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return Penstock's states within torchdata's: the state of the sampler, or that of each worker."""
    if main["_sampler_iter_state"] is not None:
        return [dict(main["_sampler_iter_state"])]
    holders = [{"fetcher_state": main["fetcher_state"]}] if snapshot is None else snapshot["_worker_snapshots"].values()
    return [dict(each["fetcher_state"]["dataset_iter_state"]) for each in holders]


def _merge_states(states: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the state from which all workers resume: that of the worker whose next batch comes first."""
    first = min(states, key=lambda state: state["position"])
    if "workers" in first:
        raise ValueError("torch formed its batches: only the same number of workers may resume from it; use batched(…)")
    for number, state in enumerate(sorted(states, key=lambda state: state["position"])):
        expected = min(first["samples"], first["position"] + number * first["global_batch"])
        if _drop_draws(state) != _drop_draws(first) | {"position": expected}:
            raise ValueError("the workers are at different positions")
    return first


def _drop_draws(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state without the draws of a mixture, which each worker counts at its own position."""
    if "mixture" not in state:
        return state
    return state | {"mixture": [state["mixture"]["weights"], state["mixture"]["start"]]}
