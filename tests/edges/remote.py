"""A Lightning training whose checkpoints are in a bucket: its fit, and the same as a program that is killed."""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings

import lightning.pytorch as pl
from lightning.pytorch.plugins.environments import LightningEnvironment

import penstock as ps
from penstock.checkpoint.lightning import CheckpointIO, ModelCheckpoint
from penstock.interop.fsspec import register
from tests.edges.keeper import Keeper, keys

__all__ = ["loader", "trainer"]


def loader(url):
    return ps.DataLoader(ps.MapDataset.from_prefix(url, transform=keys), 4, shuffle=True)


def trainer(folder, *, plugin=None, saves=None, **options):
    """Return a trainer that saves into ``folder``, by default each step, with ``last.ckpt`` beside the newest."""
    saves = {"save_last": True, "every_n_train_steps": 1} | (saves or {})
    return pl.Trainer(
        **({"max_epochs": 3, "accelerator": "cpu"} | options),
        callbacks=[ModelCheckpoint(folder, filename="{epoch}-{step}", **saves)],
        plugins=[LightningEnvironment(), plugin or CheckpointIO()],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


class Ended(Keeper):
    """Gets a signal in the middle of a batch."""

    def __init__(self, dies_at, number):
        super().__init__()
        self.number = number
        self.at = dies_at

    def training_step(self, batch, number):
        if len(self.ledger) == self.at:
            os.kill(os.getpid(), self.number)
        return super().training_step(batch, number)


def _main(data, folder, dies_at, name):
    """Train until a signal ends it; the environment says which store."""
    register()
    trainer(folder).fit(Ended(int(dies_at), signal.Signals[name]), loader(data), ckpt_path="last")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    _main(*sys.argv[1:])
