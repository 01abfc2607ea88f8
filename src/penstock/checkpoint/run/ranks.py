"""Steps whose state is spread over several ranks: all save and restore together, through torch's checkpoints."""

from __future__ import annotations

import io
import pickle
import warnings
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import distributed
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.stateful import Stateful

from penstock.checkpoint.dcp.reader import StorageReader
from penstock.checkpoint.dcp.writer import StorageWriter
from penstock.checkpoint.run.apart import OWN, LoadPlanner, Nodes, SavePlanner, TakenApart, take_apart
from penstock.checkpoint.torchfile.encoding import decode_value, encode_value
from penstock.errors import PenstockError, Unusable, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch.distributed import ProcessGroup

    from penstock.options import StoreOptions

T = TypeVar("T")


class Ranks:
    """The ranks of ``group``, or None for this process alone. All ranks must call each method except the properties."""

    def __init__(self, group: ProcessGroup | None) -> None:
        """Communicate through ``group``, of any backend that can send objects."""
        self._group = group

    @property
    def rank(self) -> int:
        """This process's rank."""
        return 0 if self._group is None else distributed.get_rank(self._group)

    @property
    def size(self) -> int:
        """The number of ranks."""
        return 1 if self._group is None else distributed.get_world_size(self._group)

    def agreed(self, ask: Callable[[], T]) -> T:
        """Call ``ask`` on the first rank, and return its result, or raise its error, on all ranks."""
        if self._group is None:
            return ask()
        answer: list[Any] = [None, None]
        if self.rank == 0:
            try:
                answer[0] = ask()
            except Exception as error:  # noqa: BLE001  raised below, on every rank
                answer[1] = error
        distributed.broadcast_object_list(answer, group=self._group, group_src=0)
        if answer[1] is not None:
            raise answer[1]
        result: T = answer[0]
        return result

    def any(self, happened: bool) -> bool:  # noqa: FBT001  what is asked
        """Return whether something happened on any rank."""
        if self._group is None:
            return happened
        found = [False] * self.size
        distributed.all_gather_object(found, happened, group=self._group)
        return True in found

    def everywhere(self, act: Callable[[], T]) -> T:
        """Call ``act``, which must not communicate, on each rank, and return its result; if one raises, all raise."""
        error: Exception | None = None
        try:
            result = act()
        except Exception as raised:  # noqa: BLE001  raised below, on every rank
            error = raised
        failures: list[Any] = [error]
        if self._group is not None:
            failures *= self.size
            shown = error if error is None or isinstance(error, PenstockError) else Unusable(f"{error!r:.500}")
            distributed.all_gather_object(failures, shown, group=self._group)
        failed = [rank for rank, failure in enumerate(failures) if failure is not None]
        if failed:
            failure: Exception = error or failures[failed[0]]
            failure.add_note(f"on rank {failed[0]}, while all {self.size} saved or loaded a checkpoint")
            raise failure
        return result

    def plain(self, parts: dict[str, Any], *, weights_only: bool) -> dict[str, Any]:
        """Return a rank's parts, the state taken apart; takes a stateful object's ``state_dict``.

        Raises:
            Unusable: The state is not a dict, or contains the reserved key; or a part contains more than weights, and
                ``weights_only`` is True.

        """
        state = parts["state"]
        if not isinstance(state, dict) or OWN in state:
            raise Unusable(f"the state of several ranks must be a dict without the key {OWN!r}, got {kind_of(state)}")
        rest = {name: part for name, part in parts.items() if name != "state"}
        plain = {name: encode_value(part, name) for name, part in rest.items()} if weights_only else rest
        state = {key: each.state_dict() if isinstance(each, Stateful) else each for key, each in state.items()}
        return {**plain, "state": take_apart(state, weights_only=weights_only)}

    def writer(
        self, url: str, extra: Mapping[str, Any], *, overwrite: bool, store: StoreOptions | str | None
    ) -> StorageWriter:
        """Return a writer of a checkpoint below ``url`` that adds ``extra`` (JSON) to the manifest."""
        writer = StorageWriter(url, overwrite=overwrite, store=store)
        writer.extra = dict(extra)
        return writer

    def reader(self, url: str, *, weights_only: bool, store: StoreOptions | str | None) -> StorageReader:
        """Return a reader of a checkpoint below ``url``."""
        return StorageReader(url, weights_only=weights_only, store=store)

    def save(self, writer: StorageWriter, state: TakenApart, own: Mapping[str, Any]) -> None:
        """Save ``state``, of which each rank has its part, and each rank's private data ``own``.

        Raises:
            PenstockError: An error on any rank is raised on all ranks.

        """
        kept, mine = io.BytesIO(), str(self.rank)
        torch.save(dict(own), kept)
        name = f"{OWN}.{mine}"
        whole = TakenApart({**state.items, name: kept.getvalue()}, {**state.paths, name: (OWN, mine)})
        self._together(lambda: save({}, storage_writer=writer, planner=SavePlanner(whole), **self._how()))

    def load(self, reader: StorageReader, into: dict[str, Any], saved_by: int, *, weights_only: bool) -> dict[str, Any]:
        """Fill ``into``'s tensors in place, replace its other values, and return this rank's private data.

        Plain values that ``into`` lacks below its keys are added.

        Ranks beyond the number that saved get the first rank's data. If that cannot be read with weights only, the
        error is returned in its place.
        """
        # Taken once: state_dict() may copy the state, or gather it from all ranks.
        stateful = {key: each for key, each in into.items() if isinstance(each, Stateful)}
        whole = self.everywhere(lambda: {key: each.state_dict() for key, each in stateful.items()})
        state = {**into, **whole}
        nodes = self.everywhere(lambda: Nodes(state))
        mine = str(self.rank if self.rank < saved_by else 0)
        planner = LoadPlanner(state, nodes, self._others(set(nodes.places)), mine)
        self._together(lambda: load({}, storage_reader=reader, planner=planner, **self._how()))
        self.everywhere(planner.fill)
        for key, each in state.items():
            if key in stateful:
                stateful[key].load_state_dict(each)
            else:
                into[key] = each
        try:
            own: dict[str, Any] = decode_value(torch.load(io.BytesIO(planner.own), weights_only=weights_only))
        # From before saves were checked; the state itself is complete.
        except pickle.UnpicklingError as error:
            return {"loader": error, "rng": error}
        return own

    def _others(self, names: set[str]) -> set[str]:
        """Return the names that the other ranks' states have."""
        if self._group is None:
            return set()
        every: list[Any] = [None] * self.size
        distributed.all_gather_object(every, names, group=self._group)
        return set().union(*(each for rank, each in enumerate(every) if rank != self.rank))

    def _how(self) -> dict[str, Any]:
        return {"process_group": self._group, "no_dist": self._group is None}

    def _together(self, act: Callable[[], object]) -> None:
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "torch.distributed is (disabled|unavailable|uninitialized)")
                act()
        # CheckpointException is a BaseException, which no handler of Exception catches.
        except CheckpointException as failed:
            rank, (error, _) = next(iter(failed.failures.items()))
            error.add_note(f"on rank {rank}, while all {self.size} saved or loaded a checkpoint")
            raise error from None
