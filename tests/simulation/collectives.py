"""Ranks of the simulation: torch's exchange of objects between processes that take turns, and that may be killed."""

from __future__ import annotations

import pickle
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import distributed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulation.processes import Process
    from tests.simulation.world import World

# torch's own limit of a collective call.
_LIMIT_S = 1800.0


class Group:
    """A process group of the processes that joined; the loss of one ends every call, as with gloo."""

    def __init__(self, world: World, size: int) -> None:
        self._world, self.size = world, size
        self._members: dict[Process, int] = {}
        self._posted: list[dict[int, bytes]] = []
        self._calls = [0] * size

    def join(self, rank: int) -> None:
        """Be a rank of the group from now on."""
        self._members[self._world.process] = rank

    def rank(self) -> int:
        return self._members[self._world.process]

    def exchange(self, value: Any) -> list[Any]:
        """Return the values of all ranks, once each has come to this call."""
        rank, crowd = self.rank(), self._world.crowd
        number = self._calls[rank]
        self._calls[rank] += 1
        while len(self._posted) <= number:
            self._posted.append({})
        posted = self._posted[number]
        posted[rank] = pickle.dumps(value)

        def is_decided() -> bool:
            return len(posted) == self.size or not all(each.alive for each in self._members)

        assert crowd is not None
        if not is_decided():
            crowd.wait(is_decided, self._world.clock.now + _LIMIT_S)
        if len(posted) < self.size:
            raise RuntimeError("Connection closed by peer")
        return [pickle.loads(posted[each]) for each in range(self.size)]


def _broadcast(
    object_list: list[Any], src: int = 0, group: Any = None, device: Any = None, group_src: int | None = None
) -> None:
    del device
    object_list[:] = group.exchange(object_list)[src if group_src is None else group_src]


def _all_gather(object_list: list[Any], obj: Any, group: Any = None) -> None:
    object_list[:] = group.exchange(obj)


def _gather(obj: Any, object_gather_list: list[Any] | None = None, dst: int = 0, group: Any = None) -> None:
    values = group.exchange(obj)
    if group.rank() == dst and object_gather_list is not None:
        object_gather_list[:] = values


def _scatter(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int = 0,
    group: Any = None,
) -> None:
    values = group.exchange(scatter_object_input_list)[src]
    scatter_object_output_list[0] = values[group.rank()]


_OURS: dict[str, Callable[..., Any]] = {
    "get_rank": lambda group=None: group.rank() if group is not None else 0,
    "get_world_size": lambda group=None: group.size if group is not None else 1,
    "get_backend": lambda _group=None: "gloo",
    "get_global_rank": lambda _group, rank: rank,
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "broadcast_object_list": _broadcast,
    "all_gather_object": _all_gather,
    "gather_object": _gather,
    "scatter_object_list": _scatter,
}


@contextmanager
def simulated() -> Iterator[None]:
    """Let torch's calls with a ``Group`` exchange objects through it."""
    before = {name: getattr(distributed, name) for name in _OURS}
    try:
        for name, ours in _OURS.items():
            setattr(distributed, name, ours)
        yield
    finally:
        for name, real in before.items():
            setattr(distributed, name, real)
