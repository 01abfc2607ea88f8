"""A dataloader of torchtitan over ``ps.DataLoader``: finite epochs, and one state that any number of ranks resumes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import torch
from torchtitan.components.dataloader import BaseDataLoader

import penstock as ps


class PenstockLoader(BaseDataLoader):
    """Windows of tokens at ``dataset_path``, or with ``pack`` rows of documents, each once an epoch over all ranks."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):  # noqa: D106
        pack: str | None = None
        infinite: bool = True
        epochs: int = 1
        seed: int = 0
        lanes: int | None = None
        tail: str = "drop"

    def __init__(
        self, config: Config, *, dp_world_size: int, dp_rank: int, seq_len: int, local_batch_size: int, **_: Any
    ) -> None:
        self.epochs = float("inf") if config.infinite else config.epochs
        self.loader = ps.DataLoader(
            self.open_rows(config, seq_len), local_batch_size, shuffle=ps.order.Lanes(lanes=config.lanes),
            seed=config.seed, tail=config.tail, place=ps.Place(dp_rank, dp_world_size), device_transform=for_model,
        )  # fmt: skip
        if not len(self.loader):
            raise ValueError(f"{config.dataset_path} must have rows for a batch on each rank, or pass tail='short'")

    def open_rows(self, config: Config, seq_len: int) -> Any:
        """Return the dataset; a subclass may return another one, such as a ``ps.Mix``."""
        shape = {"length": seq_len, "pack": config.pack} if config.pack else {"length": seq_len + 1, "stride": seq_len}
        return ps.TokenDataset.from_shards(config.dataset_path, **shape)

    def __iter__(self) -> Any:
        while self.loader.state_dict()["epoch"] < self.epochs:
            yield from self.loader

    def state_dict(self) -> dict[str, Any]:
        return {"penstock": json.dumps(self.loader.state_dict())}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = json.loads(state_dict["penstock"])
        self.loader.load_state_dict(state, allow_new_global_batch=True, allow_rereads=True)


def for_model(batch: Any) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Return the input of torchtitan's models, and the labels; attention ends where positions begin again."""
    if isinstance(batch, ps.PackedBatch):
        return {"input": batch.tokens, "positions": batch.position_ids}, batch.labels
    return {"input": batch[:, :-1], "positions": torch.arange(batch.shape[1] - 1).expand(len(batch), -1)}, batch[:, 1:]
