"""Lightning on Ray Train, in which a worker kills itself once: each worker notes which keys it got at which step."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import lightning.pytorch as pl
import ray
import ray.train.lightning
import torch
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

import penstock as ps
from penstock.checkpoint.lightning import CheckpointIO, ModelCheckpoint

GLOBAL_BATCH, EPOCHS, EVERY = 12, 2, 3


class Noting(pl.LightningModule):
    """A model that notes its batches, and dies at a step unless it has done so before."""

    def __init__(self, settings):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.folder, self.dies = Path(settings["folder"]), settings["dies"]

    def training_step(self, batch):
        step, keys = self.global_step + 1, batch[1].tolist()
        with (self.folder / f"seen-{os.getpid()}").open("a") as file:
            file.write(json.dumps([self.current_epoch, step, self.global_rank, self.trainer.world_size, keys]) + "\n")
        died = self.folder / "died"
        if step == self.dies and self.global_rank == self.trainer.world_size - 1 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.layer(batch[0]).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def train(settings):
    """Train two epochs, as docs/ray.md does."""
    world = ray.train.get_context().get_world_size()
    dataset = ps.MapDataset.from_prefix(
        settings["url"], transform=lambda sample: (torch.zeros(1), int(sample.key.rpartition("/")[2]))
    )
    loader = ps.DataLoader(dataset, GLOBAL_BATCH // world, shuffle=True)
    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        strategy=ray.train.lightning.RayDDPStrategy(),
        plugins=[ray.train.lightning.RayLightningEnvironment(), CheckpointIO()],
        callbacks=[ModelCheckpoint(f"{settings['folder']}/run", save_last=True, every_n_train_steps=EVERY)],
        logger=False,
        enable_progress_bar=False,
    )
    ray.train.lightning.prepare_trainer(trainer).fit(Noting(settings), loader, ckpt_path="last")


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    ray.init(logging_level="ERROR", log_to_driver=False)
    run_config = RunConfig(
        name="training", storage_path=f"{settings['folder']}/ray", failure_config=FailureConfig(max_failures=1)
    )
    scaling_config = ScalingConfig(num_workers=settings["workers"])
    TorchTrainer(train, train_loop_config=settings, scaling_config=scaling_config, run_config=run_config).fit()
