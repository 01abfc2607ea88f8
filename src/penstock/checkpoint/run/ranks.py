"""Steps whose state is spread over several ranks: all save and restore together, through torch's checkpoints."""

from __future__ import annotations

import io
import pickle
import warnings
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import distributed
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint._traverse import set_element
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.stateful import Stateful

from penstock.checkpoint.dcp.reader import StorageReader
from penstock.checkpoint.dcp.writer import StorageWriter
from penstock.checkpoint.torchfile.encoding import decoded, encoded
from penstock.errors import PenstockError, Unusable, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch.distributed import ProcessGroup
    from torch.distributed.checkpoint.metadata import Metadata

    from penstock.options import StoreOptions


__all__ = ["Ranks"]

T = TypeVar("T")

# The key beside the state's own keys: each rank's private data, by rank number.
_OWN = "penstock"


def _encoded(state: dict[Any, Any]) -> dict[Any, Any]:
    parts = {key: each.state_dict() if isinstance(each, Stateful) else each for key, each in state.items()}
    return {key: encoded(each, f"state[{key!r:.80}]", apart=True) for key, each in parts.items()}


class _Decoding:
    """A ``Stateful`` for torch to load into, which decodes the state that ``encoded`` made."""

    def __init__(self, of: Stateful, at: str) -> None:
        self._of = of
        self._at = at
        # Taken once: it may copy the state, or gather it from all ranks.
        self._state = of.state_dict()

    def state_dict(self) -> dict[str, Any]:
        return self._state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._of.load_state_dict(decoded(state, self._at))


def _stateful(into: Mapping[str, Any]) -> dict[str, _Decoding]:
    return {key: _Decoding(each, f"state[{key!r:.80}]") for key, each in into.items() if isinstance(each, Stateful)}


class _Planner(DefaultLoadPlanner):
    """A planner that loads all values of a checkpoint below the keys that a state has.

    torch loads the values that a state has places for, and leaves the others out in silence: for example, the moments
    of an optimizer that has not made a step, and the entries of a dict that is still empty.
    """

    def __init__(self, wanted: set[str]) -> None:
        """Keep the flattened names that any rank's state has."""
        super().__init__()
        self._wanted = wanted

    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        metadata: Metadata | None = None,
        is_coordinator: bool = False,  # noqa: FBT001, FBT002  torch's
    ) -> None:
        """Make places for plain values that no rank's state has; raise ``Unusable`` for tensors."""
        paths = dict(metadata.planner_data or {}) if metadata is not None else {}
        kinds = metadata.state_dict_metadata if metadata is not None else {}
        left = {name: path for name, path in paths.items() if self._lost(name, path, state_dict)}
        tensors = [name for name in left if isinstance(kinds.get(name), TensorStorageMetadata)]
        if tensors:
            raise Unusable(
                f"into= lacks {len(tensors)} of the checkpoint's tensors, such as {tensors[0]!r}, which would be lost: "
                "add tensors of their shapes. An optimizer has none before its first step: save and restore the state "
                "that torch.distributed.checkpoint.state_dict.get_state_dict returns, which has them"
            )
        for path in left.values():
            set_element(state_dict, path, None)
        super().set_up_planner(state_dict, metadata, is_coordinator)

    def _lost(self, name: str, path: tuple[str | int, ...], state: dict[str, Any]) -> bool:
        """Return whether a value of the checkpoint has no place, but the key that it is below has one."""
        above = (".".join(map(str, path[:end])) for end in range(1, len(path)))
        return name not in self._wanted and path[0] in state and path[0] != _OWN and self._wanted.isdisjoint(above)


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
        """Return a rank's parts, with ``weights_only`` as plain values; takes a stateful object's ``state_dict`` then.

        Raises:
            Unusable: The state is not a dict, or contains the reserved key; or a part contains more than weights.

        """
        state = parts["state"]
        if not isinstance(state, dict) or _OWN in state:
            raise Unusable(f"the state of several ranks must be a dict without the key {_OWN!r}, got {kind_of(state)}")
        if not weights_only:
            return parts
        plain = {name: encoded(part, name) for name, part in parts.items() if name != "state"}
        return {**plain, "state": _encoded(state)}

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

    def save(self, writer: StorageWriter, state: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        """Save ``state``, of which each rank has its part, and each rank's private data ``own``.

        Raises:
            PenstockError: An error on any rank is raised on all ranks.

        """
        kept = io.BytesIO()
        torch.save(dict(own), kept)
        everything = {**state, _OWN: {str(self.rank): kept.getvalue()}}
        self._together(lambda: save(everything, storage_writer=writer, **self._how()))

    def load(self, reader: StorageReader, into: dict[str, Any], saved_by: int, *, weights_only: bool) -> dict[str, Any]:
        """Fill ``into``'s tensors in place, replace its other values, and return this rank's private data.

        Plain values that ``into`` lacks below its keys are added.

        Ranks beyond the number that saved get the first rank's data. If that cannot be read with weights only, the
        error is returned in its place.
        """
        mine = str(self.rank if self.rank < saved_by else 0)
        whole = self.everywhere(lambda: _stateful(into))
        everything = {**into, **whole, _OWN: {mine: b""}}
        planner = _Planner(self._names({**into, **{key: each.state_dict() for key, each in whole.items()}}))
        self._together(lambda: load(everything, storage_reader=reader, planner=planner, **self._how()))
        kept = io.BytesIO(everything.pop(_OWN)[mine])
        into.update(decoded({key: each for key, each in everything.items() if key not in whole}))
        try:
            own: dict[str, Any] = decoded(torch.load(kept, weights_only=weights_only))
        # From before saves were checked; the state itself is complete.
        except pickle.UnpicklingError as error:
            return {"loader": error, "rng": error}
        return own

    def _names(self, state: dict[str, Any]) -> set[str]:
        """Return the flattened names of all ranks' states."""
        names = [self.everywhere(lambda: set(flatten_state_dict(state)[0]))]
        if self._group is not None:
            names *= self.size
            distributed.all_gather_object(names, names[0], group=self._group)
        return set().union(*names)

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
