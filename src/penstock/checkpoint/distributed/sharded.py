"""A sharded model, its optimizers and the rest of a trainer's state in one distributed checkpoint."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.fsdp import FullyShardedDataParallel, OptimStateKeyType

from penstock.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.checkpoint.distributed.reader import StorageReader
    from penstock.checkpoint.distributed.writer import StorageWriter

__all__ = ["Loading", "save_shards"]

_MODEL, _REST = "state_dict", "rest"


def save_shards(
    writer: StorageWriter, model: dict[str, Any], optimizers: Sequence[dict[str, Any]], rest: dict[str, Any] | None
) -> None:
    """Save, on all ranks together, the sharded states of a model and its optimizers, and the ``rest`` of one rank."""
    state: dict[str, Any] = {_MODEL: model}
    state |= {_optimizer(number): each for number, each in enumerate(optimizers)}
    if rest is not None:
        file = BytesIO()
        torch.save(rest, file)
        state[_REST] = torch.frombuffer(file.getbuffer(), dtype=torch.uint8)
    save(state, storage_writer=writer)


class Loading:
    """Loading of a checkpoint into a sharded model and its optimizers, on all ranks together.

    The optimizers may be new. Unless ``strict``, the model may have more or fewer tensors than the checkpoint.
    """

    def __init__(self, model: Any, optimizers: Sequence[Any], *, strict: bool) -> None:  # noqa: ANN401  a trainer may yet have none
        """Keep the model and the optimizers; reads nothing."""
        self._model = model
        self._optimizers = optimizers
        self._strict = strict

    def shards(self, reader: StorageReader, *, weights_only: bool) -> dict[str, Any]:
        """Load this rank's part of a checkpoint of ``save_shards``; return its ``rest``.

        Raises:
            CheckpointError: The checkpoint has no ``rest``: ``save_shards`` did not save it.

        """
        found = reader.read_metadata().state_dict_metadata.get(_REST)
        if found is None:
            raise CheckpointError("no trainer saved this checkpoint", url=reader.checkpoint_id)
        rest = torch.empty(found.size, dtype=torch.uint8)  # type: ignore[union-attr]  # a tensor's
        state: dict[str, Any] = {_MODEL: get_model_state_dict(self._model), _REST: rest}
        for number, optimizer in enumerate(self._optimizers):
            state[_optimizer(number)] = get_optimizer_state_dict(self._model, optimizer)
        load(state, storage_reader=reader, planner=DefaultLoadPlanner(allow_partial_load=not self._strict))
        self._set(state[_MODEL], [state[_optimizer(number)] for number in range(len(self._optimizers))])
        return dict(torch.load(BytesIO(rest.numpy().data), map_location="cpu", weights_only=weights_only))

    def whole(self, checkpoint: dict[str, Any]) -> dict[str, Any]:
        """Load this rank's part of a Lightning checkpoint that is one object; return the rest of the checkpoint."""
        named = OptimStateKeyType.PARAM_NAME
        states = checkpoint.get("optimizer_states", []) if self._optimizers else []
        states = [FullyShardedDataParallel.rekey_optim_state_dict(each, named, self._model) for each in states]
        self._set(checkpoint.pop("state_dict"), states, whole=True)
        return checkpoint

    def _set(self, model: dict[str, Any], optimizers: list[dict[str, Any]], *, whole: bool = False) -> None:
        options = StateDictOptions(full_state_dict=whole, strict=self._strict)
        set_model_state_dict(self._model, model, options=options)
        for optimizer, state in zip(self._optimizers, optimizers, strict=True):
            set_optimizer_state_dict(self._model, optimizer, state, options=options)


def _optimizer(number: int) -> str:
    return f"optimizer_{number}"
