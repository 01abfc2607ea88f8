"""A Lightning training that keeps a ledger: a model, its fit, and the same as a program for several ranks."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.environments import LightningEnvironment

import penstock as ps

__all__ = ["Keeper", "Killed", "fit", "keys"]


class Killed(Exception):
    """The end of a training, somewhere in a batch."""


def keys(sample):
    return torch.zeros(1), int(sample.key.rpartition("/")[2])


class Keeper(pl.LightningModule):
    """Notes of each batch its epoch, its number in it, and its samples; a checkpoint holds the notes up to it."""

    def __init__(self, dies_at=None):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.ledger = []
        self.before = []
        self.dies_at = dies_at

    def training_step(self, batch, number):
        if len(self.ledger) == self.dies_at:
            raise Killed
        self.ledger.append([self.current_epoch, number, batch[1].tolist()])
        return self.layer(batch[0]).mean()

    def validation_step(self, batch, number):
        """Do nothing; that there is validation changes when Lightning saves."""

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

    def on_save_checkpoint(self, checkpoint):
        checkpoint["ledger"] = self.before + self.ledger

    def on_load_checkpoint(self, checkpoint):
        self.before = checkpoint["ledger"]


def fit(model, loader, folder, saves, *, resumes=None, validation=None, **trainer):
    """Fit and return the ledger of all the run's history; else raise, and leave the last checkpoint in ``folder``."""
    saving = ModelCheckpoint(folder, filename="{epoch}-{step}", save_last=True, save_top_k=-1, **saves)
    pl.Trainer(
        **({"max_epochs": 3, "accelerator": "cpu"} | trainer),
        callbacks=[saving],
        plugins=[LightningEnvironment()],  # whatever launched the tests
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(model, loader, validation, ckpt_path=resumes)
    return model.before + model.ledger


def _main(url, folder, dies_at):
    """Be one of two ranks; Lightning starts the other by running this program again."""
    dataset = ps.MapDataset.from_prefix(url, transform=keys)
    model = Keeper(dies_at=int(dies_at))
    try:
        fit(
            model,
            ps.DataLoader(dataset, 4, shuffle=True),
            folder,
            {"every_n_train_steps": 1},
            strategy="ddp",
            devices=2,
        )
    except Killed:
        Path(folder, f"{model.global_rank}.json").write_text(json.dumps(model.ledger), "utf-8")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    _main(*sys.argv[1:])
