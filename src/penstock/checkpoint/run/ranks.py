"""Steps whose state is spread over several ranks: all save and restore together, through torch's checkpoints.

States are taken apart for torch and put together again. A tensor is an item, and so is each other value: whole
containers without a tensor keep their classes and keys that way. torch's own planners take apart only dicts and lists,
name their keys as text, and leave out empty containers.
"""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch import distributed
from torch.distributed.checkpoint._sharded_tensor_utils import _flatten_sharded_tensors
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import (
    DefaultLoadPlanner,
    DefaultSavePlanner,
    create_default_local_load_plan,
)
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner_helpers import _init_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.stateful import Stateful

from penstock.checkpoint.dcp.chunks import narrow_chunks
from penstock.checkpoint.dcp.reader import StorageReader, fetch_manifest
from penstock.checkpoint.dcp.writer import StorageWriter
from penstock.checkpoint.run.filling import Filling, cannot_fill
from penstock.checkpoint.torchfile.encoding import MARK, KeyedValue, decode_value, encode_value
from penstock.errors import PenstockError, Unusable, kind_of
from penstock.tree import tree_map

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.checkpoint.metadata import StorageMeta
    from torch.distributed.checkpoint.planner import LoadPlan, ReadItem

    from penstock.options import StoreOptions

T = TypeVar("T")


class Ranks:
    """Ranks of ``group``, or None for this process alone. All ranks must call each method except the properties."""

    def __init__(self, group: ProcessGroup | None) -> None:
        self._group = group

    @property
    def rank(self) -> int:
        return 0 if self._group is None else distributed.get_rank(self._group)

    @property
    def size(self) -> int:
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
        """Return a rank's parts, the state taken apart; takes a stateful object's ``state_dict``."""
        state = parts["state"]
        if not isinstance(state, dict) or OWN in state:
            raise Unusable(f"the state of several ranks must be a dict without the key {OWN!r}, got {kind_of(state)}")
        rest = {name: part for name, part in parts.items() if name != "state"}
        plain = {name: encode_value(part, name) for name, part in rest.items()} if weights_only else rest
        state = {key: each.state_dict() if isinstance(each, Stateful) else each for key, each in state.items()}
        return {**plain, "state": take_apart(state, weights_only=weights_only)}

    def save(
        self,
        url: str,
        parts: dict[str, Any],
        extra: Mapping[str, Any],
        *,
        overwrite: bool,
        store: StoreOptions | str | None,
    ) -> StorageWriter:
        """Save a rank's ``parts`` of a checkpoint below ``url``, with ``extra`` (JSON) in the manifest."""
        writer = StorageWriter(url, overwrite=overwrite, store=store)
        writer.extra = dict(extra)
        kept, mine, state = io.BytesIO(), str(self.rank), parts["state"]
        torch.save({name: part for name, part in parts.items() if name != "state"}, kept)
        name = f"{OWN}.{mine}"
        whole = TakenApart({**state.items, name: kept.getvalue()}, {**state.paths, name: (OWN, mine)})
        self._together(lambda: save({}, storage_writer=writer, planner=SavePlanner(whole), **self._how()))
        return writer

    def load(
        self, url: str, into: dict[str, Any], saved_by: int, *, weights_only: bool, store: StoreOptions | str | None
    ) -> dict[str, Any]:
        """Fill ``into``'s tensors in place, replace its other values, and return this rank's private data.

        Plain values that ``into`` lacks below its keys are added. Ranks beyond the number that saved get the first
        rank's data. If that cannot be read with weights only, the error is returned in its place.
        """
        reader = StorageReader(url, weights_only=weights_only, store=store)
        # Taken once: state_dict() may copy the state, or gather it from all ranks.
        stateful = {key: each for key, each in into.items() if isinstance(each, Stateful)}
        whole = self.everywhere(lambda: {key: each.state_dict() for key, each in stateful.items()})
        state = {**into, **whole}
        nodes = self.everywhere(lambda: Nodes(state))
        mine = str(self.rank if self.rank < saved_by else 0)
        planner = LoadPlanner(state, nodes, self._others(set(nodes.places)), mine)
        # The first rank reads it for all: with thousands of ranks, a store would limit requests for one key.
        reader.current = self.agreed(lambda: fetch_manifest(reader))
        # Torch would turn an error into an AssertionError.
        reader.known = self.everywhere(reader.read_metadata)
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


# The key beside the state's own keys: each rank's private data, by rank number.
OWN = "penstock"

Path = tuple[str | int, ...]


class TakenApart(NamedTuple):
    """State as items for torch's distributed checkpoints."""

    items: dict[str, Any]  # tensors and other values, by name
    paths: dict[str, Path]  # the keys and indices that lead to each item; keys are text


class _Item(NamedTuple):
    """Item, with its path as text for messages, and its key if that is not a str."""

    path: Path
    at: str
    value: Any
    key: tuple[Any, ...]


def take_apart(state: Mapping[Any, Any], *, weights_only: bool) -> TakenApart:
    """Return a state as items: plain dicts are always taken apart, other dicts and lists if they hold tensors."""
    result = TakenApart({}, {})
    try:
        items, _ = _items(state, (), "state", ())
    except RecursionError:
        raise Unusable("state is nested too deep to be saved") from None
    for item in items:
        name = _name(item.path)
        if name in result.items:
            raise Unusable(f"{item.at} cannot be saved: another value has the name {name!r} too; rename one of them")
        result.items[name] = _select_saved_value(item, weights_only=weights_only)
        result.paths[name] = item.path
    return result


def _items(value: Any, path: Path, at: str, key: tuple[Any, ...]) -> tuple[list[_Item], bool]:  # noqa: ANN401  parts of any state
    """Return the items of a value, and whether it was taken apart, or is a tensor."""
    if isinstance(value, torch.Tensor):
        return [_Item(path, at, value, ())], True
    parts: list[tuple[list[_Item], bool]] = []
    if isinstance(value, Mapping):
        parts = [
            _items(each, (*path, str(own)), f"{at}[{own!r:.80}]", () if type(own) is str else (own,))
            for own, each in value.items()
        ]
    elif type(value) is list:
        parts = [_items(each, (*path, number), f"{at}[{number}]", ()) for number, each in enumerate(value)]
    plain = type(value) is dict and value and all(type(own) is str for own in value)
    if not path or plain or any(opened for _, opened in parts):
        return [item for items, _ in parts for item in items], True
    return [_Item(path, at, value, key)], False


def _select_saved_value(item: _Item, *, weights_only: bool) -> Any:  # noqa: ANN401  parts of any state
    if isinstance(item.value, torch.Tensor):
        if item.value.is_nested:
            raise Unusable(f"{item.at} is nested, which ranks cannot save: save its parts in a list")
        return item.value
    tree_map(lambda tensor: _refuse_spread(tensor, item.at), item.value, torch.Tensor)
    value, key = item.value, item.key
    if weights_only:
        value = encode_value(value, item.at)
        key = tuple(encode_value(each, f"{item.at}, a key,") for each in key)
    return (MARK, "entry", *key, value) if key else value


def _refuse_spread(tensor: Any, at: str) -> None:  # noqa: ANN401  a DTensor has no type to name here
    if hasattr(tensor, "device_mesh") or hasattr(tensor, "local_shards"):
        raise Unusable(f"{at} holds a tensor that is sharded over ranks: put it in a dict or a list, not in a tuple")


def _name(path: Path) -> str:
    return ".".join(map(str, path))


class SavePlanner(DefaultSavePlanner):
    """Planner that saves the items of a ``TakenApart``."""

    def __init__(self, state: TakenApart) -> None:
        super().__init__()
        self._state = state

    def set_up_planner(
        self,
        state_dict: dict[str, Any],  # noqa: ARG002  torch's
        storage_meta: StorageMeta | None = None,
        is_coordinator: bool = False,  # noqa: FBT001, FBT002  torch's
    ) -> None:
        super().set_up_planner({}, storage_meta, is_coordinator)
        self.mappings = self._state.paths
        self.state_dict = {**self._state.items, **_flatten_sharded(self._state.items)}


def _flatten_sharded(items: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sharded tensors among the items as torch saves and loads them."""
    # torch takes its names apart at the dots, and the other items with them.
    names = {str(number): name for number, name in enumerate(items) if hasattr(items[name], "local_shards")}
    flat: dict[str, Any] = _flatten_sharded_tensors({number: items[name] for number, name in names.items()})
    return {names[number]: each for number, each in flat.items()}


class Nodes:
    """Places of a state: each container and each value below, by name, with the container that holds it."""

    def __init__(self, state: dict[Any, Any]) -> None:
        self.places: dict[str, tuple[Any, Any]] = {}
        for container, key, path in _places(state, ()):
            name = _name(path)
            if name in self.places:
                raise Unusable(f"into= has two values with the name {name!r}")
            self.places[name] = container, key

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401  parts of any state
        container, key = self.places[name]
        return container[key]


def _places(container: Any, path: Path) -> Iterator[tuple[Any, Any, Path]]:  # noqa: ANN401  parts of any state
    named = isinstance(container, Mapping)
    for key in list(container) if named else range(len(container)):
        own: Path = (*path, str(key) if named else key)
        yield container, key, own
        # A list without tensors is filled as a whole: its length may differ.
        if isinstance(each := container[key], Mapping) or (type(each) is list and _items(each, own, "", ())[1]):
            yield from _places(each, own)


class LoadPlanner(DefaultLoadPlanner):
    """Planner that loads all values of a checkpoint below the keys that a state has.

    torch loads the values that a state has places for, and leaves the others out in silence: for example, the moments
    of an optimizer that has not made a step, and the entries of a dict that is still empty.
    """

    def __init__(self, into: dict[Any, Any], nodes: Nodes, others: set[str], own: str) -> None:
        """Load ``into`` a state with ``nodes``; the places of ``others`` are filled on other ranks."""
        super().__init__()
        self.own = b""
        self._into = into
        self._nodes = nodes
        self._others = others
        self._own = f"{OWN}.{own}"
        self._values: dict[str, Any] = {}

    def set_up_planner(
        self,
        state_dict: dict[str, Any],  # noqa: ARG002  torch's
        metadata: Metadata | None = None,
        is_coordinator: bool = False,  # noqa: FBT001, FBT002  torch's
    ) -> None:
        """Choose the values to read; raise ``Unusable`` if the checkpoint and the state do not fit."""
        super().set_up_planner({}, metadata, is_coordinator)
        assert metadata is not None  # noqa: S101  torch has read it
        kinds = metadata.state_dict_metadata
        self._paths: dict[str, Path] = {
            name: path
            for name, path in (metadata.planner_data or {}).items()
            if name in kinds and path[0] != OWN and str(path[0]) in self._nodes.places
        }
        stored = {name for name in self._paths if isinstance(kinds[name], TensorStorageMetadata)}
        lacking = [name for name in self._paths if name in stored and self._lacks(name)]
        if lacking:
            raise Unusable(
                f"into= lacks {len(lacking)} of the checkpoint's tensors, such as {lacking[0]!r}, which would be lost: "
                "add tensors of their shapes. An optimizer has none before its first step: save and restore the state "
                "that torch.distributed.checkpoint.state_dict.get_state_dict returns, which has them"
            )
        self._check_tensors({name: kinds[name] for name in stored})
        self._tensors = {name: self._nodes[name] for name in self._paths if name in stored and self._has(name)}
        plain = dict.fromkeys([*self._plain(stored), self._own])
        self.state_dict = {**self._tensors, **_flatten_sharded(self._tensors), **plain}

    def _plain(self, stored: set[str]) -> list[str]:
        """Return the items that are not tensors, except for values where this state has a container."""
        filled = [path for name, path in self._paths.items() if self._has(name)]
        above = {_name(path[:end]) for path in filled for end in range(1, len(path))}
        return [
            name
            for name in self._paths
            if name not in stored and name not in above and (self._has(name) or name not in self._others)
        ]

    def _has(self, name: str) -> bool:
        return name in self._nodes.places

    def _lacks(self, name: str) -> bool:
        """Say whether a tensor of the checkpoint has no place on any rank, or another value in its place."""
        return not isinstance(self._nodes[name], torch.Tensor) if self._has(name) else name not in self._others

    def _check_tensors(self, kinds: dict[str, Any]) -> None:
        """Raise ``Unusable`` for tensors that cannot be filled; allocate missing memory."""
        for name, (container, key) in self._nodes.places.items():
            own = container[key]
            if not isinstance(own, torch.Tensor):
                continue
            if name not in kinds or name not in self._paths:
                raise Unusable(f"into= has a tensor {name!r}, but the checkpoint has no tensor of this name")
            stored = kinds[name]
            if own.is_meta:
                made = {"own": own}
                _init_state_dict(made)
                container[key] = own = made["own"]
            if own.is_nested or own.layout is not torch.strided or own.is_quantized:
                raise Unusable(f"into= has {name!r} of another form ({own.layout}, {own.dtype}) than the checkpoint")
            if tuple(own.size()) != tuple(stored.size):
                raise Unusable(
                    f"into= has {name!r} of the shape {tuple(own.size())}, and the checkpoint's is {tuple(stored.size)}"
                )
            local = getattr(own, "_local_tensor", own)
            if not hasattr(own, "local_shards") and (reason := cannot_fill(local, stored.properties.dtype)):
                raise Unusable(f"into= has {name!r}, which {reason}")

    def create_local_plan(self) -> LoadPlan:
        assert self.metadata is not None  # noqa: S101  set_up_planner has checked it
        kinds = self.metadata.state_dict_metadata
        needed = {name: narrow_chunks(kinds[name], value) for name, value in self.state_dict.items() if name in kinds}
        return create_default_local_load_plan(self.state_dict, Metadata(needed))

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        # The reader has checked that it runs no code, unless the caller trusts the checkpoint.
        self._values[read_item.dest_index.fqn] = torch.load(value, weights_only=False)

    def fill(self) -> None:
        """Put the values that were read into the state; its tensors are filled already."""
        self.own = self._values.pop(self._own)
        found: dict[Any, Any] = {}
        for name, path in self._paths.items():
            if name in self._tensors:
                self._insert(found, path, self._tensors[name])
            elif name in self._values:
                at = "state" + "".join(f"[{each!r:.80}]" for each in path)
                self._insert(found, path, decode_value(self._values[name], at))
            else:
                self._insert_containers(found, path)
        filling = Filling()
        for key, own in self._into.items():
            if key not in found:
                raise Unusable(f"the checkpoint has no {key!r}: it has {', '.join(map(repr, found))}")
            filling.set(self._into, key, filling.merge(own, found[key], f"into[{key!r:.80}]"))
        filling.apply()

    def _insert(self, found: Any, path: Path, value: Any) -> None:  # noqa: ANN401  parts of any state
        """Put a value in its place; missing containers are created."""
        for end in range(1, len(path)):
            found = _member(found, self._key(path[:end]), {} if type(path[end]) is str else [])
        key = self._key(path)
        if isinstance(value, KeyedValue):
            key, value = value.key if key is path[-1] else key, value.value
        _member(found, key, value)

    def _insert_containers(self, found: Any, path: Path) -> None:  # noqa: ANN401  parts of any state
        """Create the containers on the path to another rank's value, as in this state."""
        for end in range(1, len(path)):
            if not self._has(_name(path[:end])) or not isinstance(self._nodes[_name(path[:end])], Mapping):
                return
            found = _member(found, self._key(path[:end]), {})

    def _key(self, path: Path) -> Any:  # noqa: ANN401  a key of any kind
        """Return the last key of a path as the state has it; torch's names have keys as text."""
        place = self._nodes.places.get(_name(path))
        return path[-1] if place is None else place[1]


def _member(container: Any, key: Any, new: Any) -> Any:  # noqa: ANN401  parts of any state
    """Return the value in a dict or a list; if there is none, store ``new`` first."""
    if type(container) not in (dict, list):
        raise Unusable(f"cannot restore {key!r}: one rank saved {kind_of(container)}, another rank a container")
    if isinstance(container, list):
        container.extend([None] * (key + 1 - len(container)))
        if container[key] is None:
            container[key] = new
        return container[key]
    return container.setdefault(key, new)
