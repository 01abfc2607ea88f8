"""The batch sampler: a map-style data set's batches as indices, for torch's own DataLoader and torchdata's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from torch.utils.data import Sampler

from penstock.datasets.resumable import Resumable
from penstock.datasets.standing import Standing
from penstock.datasets.walk import walk
from penstock.errors import StateMismatch
from penstock.order.course import Course, Cursor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sized

    from torch.distributed.device_mesh import DeviceMesh

    from penstock.order.partition import Tail
    from penstock.values import Place

__all__ = ["BatchSampler", "elastic_state"]


class BatchSampler(Resumable, Sampler[list[int]]):
    """Yields each batch of this rank as a list of indices; goes where torch's DataLoader takes a ``batch_sampler``.

    The order and the global batches are those of ``penstock.DataLoader``. Indices that fill up a last batch are
    ``Repeat``. Under torch's DataLoader, which draws batches ahead, the state is ``state_at(batches received)``. Under
    torchdata's StatefulDataLoader its own state resumes with as many workers; ``elastic_state`` makes of that one a
    state that any layout loads. Forms batches in the parent, whatever the number of workers.

    Attributes:
        batch_size: Samples per batch and rank. (There is no ``drop_last``: a sampler with both Lightning would take for
            torch's own, and make anew by its signature.)

    """

    def __init__(
        self,
        data_source: Sized,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        tail: Tail = "short",
        place: Place | DeviceMesh | None = None,
    ) -> None:
        """Order ``data_source``, any data set with a length; one of ours also lends its catalog's digest to the state.

        ``tail`` and ``place`` as in ``IterableDataset``.
        """
        course = Course(total=len(data_source), batch=batch_size, shuffle=shuffle, seed=seed, tail=tail)
        super().__init__(course, getattr(data_source, "catalog", None), Standing(place))
        self.batch_size = batch_size

    @property
    def sampler(self) -> Self:
        """Itself: what has ``set_epoch``, where Lightning and others look for it."""
        return self

    def __iter__(self) -> Iterator[list[int]]:
        """Return the next epoch's batches; it begins with the first of them, for DataLoader asks for two iterators."""
        return _Batches(self)

    def begin(self) -> tuple[Cursor, Iterator[list[int]]]:
        """Begin the next epoch: return where, and this rank's batches."""
        self._agree()
        cursor = self._standing.rounds.begin()
        return cursor, walk(self.course, cursor, self._standing.rank())


class _Batches:
    """An iteration over batches that StatefulDataLoader can save (with each batch it draws) and restore."""

    def __init__(self, sampler: BatchSampler) -> None:
        self._sampler = sampler
        self._under_way: tuple[Cursor, Iterator[list[int]]] | None = None
        self._drawn = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> list[int]:
        if self._under_way is None:
            self._under_way = self._sampler.begin()
        batch = next(self._under_way[1])
        self._drawn += 1
        return batch

    def state_dict(self) -> dict[str, Any]:
        cursor = self._sampler.coming() if self._under_way is None else self._under_way[0]
        return self._sampler.state(cursor, self._drawn)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._sampler.load_state_dict(state)
        self._under_way, self._drawn = self._sampler.begin(), 0


def elastic_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Make of a StatefulDataLoader's state, whose data came in a ``BatchSampler``'s order, one that any layout loads.

    Pure. torchdata's own refuses another number of workers; what this returns goes to ``load_state_dict`` of a
    ``BatchSampler``, a ``penstock.DataLoader`` or ``batched`` batches, with any number of workers and ranks.

    Raises:
        StateMismatch: It holds no state of a ``BatchSampler``.

    """
    try:
        snapshot = state.get("_snapshot")
        main = state if snapshot is None else snapshot["_main_snapshot"]  # with worker processes
        ours, later = dict(main["_sampler_iter_state"]), state.get("_steps_since_snapshot", 0)
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
        message = f"this is no state of a StatefulDataLoader over a penstock.BatchSampler ({error!r})"
        raise StateMismatch(message) from None
