"""Steps whose state lies on several ranks: all of them save and restore together, through torch's own checkpoints."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import distributed
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from penstock.checkpoint.dcp import StorageReader, StorageWriter
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch.distributed import ProcessGroup

    from penstock.options import StoreOptions

__all__ = ["Ranks"]

T = TypeVar("T")

_OWN = "penstock"  # beside the state's keys: what each rank keeps for itself, by its number


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
        """Have the first rank ask, and return to all what it was told; what it raises, all raise."""
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
        told: T = answer[0]
        return told

    def writer(
        self, url: str, said: Mapping[str, Any], *, overwrite: bool, store: StoreOptions | None
    ) -> StorageWriter:
        """Return what writes a checkpoint below ``url`` whose manifest holds ``said`` besides, which is JSON."""
        writer = StorageWriter(url, overwrite=overwrite, store=store)
        writer.said = dict(said)
        return writer

    def reader(self, url: str, *, weights_only: bool, store: StoreOptions | None) -> StorageReader:
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

    def load(self, reader: StorageReader, into: dict[str, Any], saved_by: int) -> dict[str, Any]:
        """Fill ``into``'s tensors in place, replace its other values, and return what this rank kept for itself.

        Where there were fewer ranks when it was saved, the others are given what the first one kept.
        """
        mine = str(self.rank if self.rank < saved_by else 0)
        everything = {**into, _OWN: {mine: b""}}
        self._together(lambda: load(everything, storage_reader=reader, **self._how()))
        own: dict[str, Any] = torch.load(io.BytesIO(everything.pop(_OWN)[mine]), weights_only=True)
        into.update(everything)
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
