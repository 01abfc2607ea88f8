"""A Lightning training whose model is sharded over ranks, with checkpoints in a bucket: a program of a rank."""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from pathlib import Path

import lightning.pytorch as pl
import torch
from torch.distributed.fsdp import fully_shard

import penstock as ps
from penstock.checkpoint.lightning import CheckpointIO, ModelCheckpoint, ModelParallelStrategy
from penstock.interop.fsspec import register

GLOBAL_BATCH = 8
RANKS = int(os.environ.get("WORLD_SIZE", "1"))


class Sharded(pl.LightningModule):
    """Notes of each step its loss; a checkpoint holds how many there were."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        self.losses = []
        self.before = 0

    def configure_model(self):
        for each in (self.layers[0], self.layers):
            fully_shard(each, mesh=self.device_mesh["data_parallel"])

    def training_step(self, batch, _):
        loss = self.layers(batch).square().mean()
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.01)

    def on_save_checkpoint(self, checkpoint):
        checkpoint["steps"] = len(self.losses)

    def on_load_checkpoint(self, checkpoint):
        self.before = checkpoint["steps"]


def _features(sample):
    return torch.randn(8, generator=torch.Generator().manual_seed(int(sample.key.rpartition("/")[2])))


def _fit(data, folder, steps, *, shards):
    """Train, from the last checkpoint if there is one; return what was before, and this rank's losses."""
    model = Sharded()
    dataset = ps.MapDataset.from_prefix(data, transform=_features)
    saving = ModelCheckpoint(folder, filename="{step}", save_last=True, every_n_train_steps=1)
    pl.Trainer(
        strategy=ModelParallelStrategy(RANKS, 1, save_distributed_checkpoint=shards),
        accelerator="cpu",
        devices=RANKS,
        max_steps=steps,
        callbacks=[saving],
        plugins=[CheckpointIO()],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(model, ps.DataLoader(dataset, GLOBAL_BATCH // RANKS, shuffle=True), ckpt_path="last")
    return [model.before, model.losses]


def _main(data, out, *fits):
    """Do each fit, ``folder|steps|shards or whole``, and leave this rank's notes of all in a file."""
    register()
    notes = []
    for folder, steps, how in (each.split("|") for each in fits):
        notes.append(_fit(data, folder, int(steps), shards=how == "shards"))
    Path(out, f"{torch.distributed.get_rank()}.json").write_text(json.dumps(notes), "utf-8")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    _main(*sys.argv[1:])
