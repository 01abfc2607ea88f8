"""Steps whose state lies on several ranks: all of them save and restore together, through torch's own checkpoints."""

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

from penstock.checkpoint.distributed.reader import StorageReader
from penstock.checkpoint.distributed.writer import StorageWriter
from penstock.checkpoint.torchfile.decoding import decoded
from penstock.checkpoint.torchfile.encoding import encoded
from penstock.errors import PenstockError, Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch.distributed import ProcessGroup

    from penstock.options import StoreOptions

__all__ = ["Ranks"]

T = TypeVar("T")

_OWN = "penstock"  # beside the state's keys: what each rank keeps for itself, by its number


def _encoded(state: object) -> object:
    if not isinstance(state, dict):
        return state
    parts = {key: each.state_dict() if isinstance(each, Stateful) else each for key, each in state.items()}
    return {key: encoded(each, f"state[{key!r:.80}]", apart=True) for key, each in parts.items()}


class _Decoding:
    """What has a state of its own, as torch fills it: with what was given to ``encoded``."""

    def __init__(self, of: Stateful, at: str) -> None:
        self._of = of
        self._at = at

    def state_dict(self) -> dict[str, Any]:
        return self._of.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._of.load_state_dict(decoded(state, self._at))


class Ranks:
    """The ranks of ``group``; None: this process alone. Every method but the properties is for all of them at once."""

    def __init__(self, group: ProcessGroup | None) -> None:
        """Speak through ``group``, of any backend that carries objects."""
        self._group = group

    @property
    def rank(self) -> int:
        """This process's number."""
        return 0 if self._group is None else distributed.get_rank(self._group)

    @property
    def size(self) -> int:
        """How many there are."""
        return 1 if self._group is None else distributed.get_world_size(self._group)

    def agreed(self, ask: Callable[[], T]) -> T:
        """Have the first rank ask, and return to all the answer; what it raises, all raise."""
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
        """Say whether something happened on any rank."""
        if self._group is None:
            return happened
        found = [False] * self.size
        distributed.all_gather_object(found, happened, group=self._group)
        return True in found

    def gathered(self, parts: dict[str, Any], *, weights_only: bool) -> dict[str, Any]:
        """Return this rank's parts as plain values; what is more than weights on one rank, all raise: ``Unusable``.

        What has a state of its own (``state_dict``) is asked for that here, as torch would ask.
        """
        error: Exception | None = None
        plain = dict(parts)
        try:
            if weights_only:
                plain = {name: encoded(part, name) for name, part in parts.items() if name != "state"}
                plain["state"] = _encoded(parts["state"])
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
            failure.add_note(f"on rank {failed[0]}, of what all {self.size} were to save")
            raise failure
        return plain

    def writer(
        self, url: str, extra: Mapping[str, Any], *, overwrite: bool, store: StoreOptions | str | None
    ) -> StorageWriter:
        """Return what writes a checkpoint below ``url`` whose manifest holds ``extra`` besides, which is JSON."""
        writer = StorageWriter(url, overwrite=overwrite, store=store)
        writer.extra = dict(extra)
        return writer

    def reader(self, url: str, *, weights_only: bool, store: StoreOptions | str | None) -> StorageReader:
        """Return what reads a checkpoint below ``url``."""
        return StorageReader(url, weights_only=weights_only, store=store)

    def save(self, writer: StorageWriter, state: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        """Save ``state``, of which each rank has its part, and what each keeps for itself.

        Raises:
            Unusable: The state is no dict, or has a key that is taken.
            PenstockError: What went wrong on any rank, on all.

        """
        if not isinstance(state, dict) or _OWN in state:
            raise Unusable(f"the state of several ranks is a dict, and has no key {_OWN!r}")
        kept = io.BytesIO()
        torch.save(dict(own), kept)
        everything = {**state, _OWN: {str(self.rank): kept.getvalue()}}
        self._together(lambda: save(everything, storage_writer=writer, **self._how()))

    def load(self, reader: StorageReader, into: dict[str, Any], saved_by: int, *, weights_only: bool) -> dict[str, Any]:
        """Fill ``into``'s tensors in place, replace its other values, and return what this rank kept for itself.

        Where there were fewer ranks when it was saved, the others are given what the first one kept. Of what cannot be
        read with weights only, the error is returned.
        """
        mine = str(self.rank if self.rank < saved_by else 0)
        whole = {
            key: _Decoding(each, f"state[{key!r:.80}]") for key, each in into.items() if isinstance(each, Stateful)
        }
        everything = {**into, **whole, _OWN: {mine: b""}}
        self._together(lambda: load(everything, storage_reader=reader, **self._how()))
        kept = io.BytesIO(everything.pop(_OWN)[mine])
        into.update(decoded({key: each for key, each in everything.items() if key not in whole}))
        try:
            own: dict[str, Any] = decoded(torch.load(kept, weights_only=weights_only))
        except pickle.UnpicklingError as error:  # as before what was saved was checked; the state is whole all the same
            return {"loader": error, "rng": error}
        return own

    def _how(self) -> dict[str, Any]:
        return {"process_group": self._group, "no_dist": self._group is None}

    def _together(self, act: Callable[[], object]) -> None:
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "torch.distributed is (disabled|unavailable|uninitialized)")
                act()
        except CheckpointException as failed:  # a BaseException, that no handler of errors would see
            rank, (error, _) = next(iter(failed.failures.items()))
            error.add_note(f"on rank {rank}, while all {self.size} saved or loaded a checkpoint")
            raise error from None
