"""The Lightning checkpoint of the README of Google's Connector for PyTorch; the import and the text are changed."""

import os

import torch
from lightning import Trainer
from lightning.pytorch.demos import LightningTransformer
from torch.utils.data import DataLoader, TensorDataset

from penstock.compat.dataflux_pytorch.lightning import DatafluxLightningCheckpoint

PROJECT_NAME = os.environ.get("PROJECT_NAME", "project")
CKPT = f"gcs://{os.environ['BUCKET_NAME']}/checkpoints/ckpt.ckpt"
VOCABULARY = 50


class Transformer(LightningTransformer):
    """The demo's model, without the download of its text."""

    def prepare_data(self):
        """Download nothing."""


def main():
    dataflux_ckpt = DatafluxLightningCheckpoint(project_name=PROJECT_NAME)

    tokens = torch.randint(0, VOCABULARY, (64, 2, 35))  # in place of WikiText2
    dataset = TensorDataset(tokens[:, 0], tokens[:, 1])
    dataloader = DataLoader(dataset, num_workers=1)
    model = Transformer(vocab_size=VOCABULARY)
    trainer = Trainer(
        plugins=[dataflux_ckpt],
        min_epochs=4,
        max_epochs=5,
        max_steps=10,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )

    trainer.fit(model, dataloader)
    trainer.save_checkpoint(CKPT)
    print("saved at step", dataflux_ckpt.load_checkpoint(CKPT)["global_step"])


if __name__ == "__main__":
    main()
