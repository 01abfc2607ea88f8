"""Train with Lightning; checkpoints go to the bucket, and a second run continues in mid-epoch.

python examples/lightning_fit.py s3://bucket/photos/ --run s3://bucket/runs/3
"""

import argparse

import lightning.pytorch as pl
import torch
from imagefolder import decode

import penstock as ps
from penstock.checkpoint.lightning import CheckpointIO, ModelCheckpoint
from penstock.interop.fsspec import register


class Classifier(pl.LightningModule):
    """One linear layer."""

    def __init__(self, classes: int) -> None:
        """Make the layer."""
        super().__init__()
        self.layer = torch.nn.Linear(64 * 64 * 3, classes)

    def training_step(self, batch, _):
        """Return a batch's loss."""
        images, labels = batch
        return torch.nn.functional.cross_entropy(self.layer(images.flatten(1) / 255), labels)

    def configure_optimizers(self):
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters())


def main() -> None:
    """Train up to a number of steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="the folder that holds the classes' folders")
    parser.add_argument("--run", required=True, help="the folder for checkpoints")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=64)
    arguments = parser.parse_args()

    register()  # Lightning looks into folders with fsspec: s3:// is Penstock's from here on
    catalog = ps.Catalog.scan(arguments.url, labels="folder")
    dataset = ps.MapDataset.from_catalog(catalog, transform=decode)
    saving = ModelCheckpoint(arguments.run, save_last=True, every_n_train_steps=2)
    trainer = pl.Trainer(max_steps=arguments.steps, callbacks=[saving], plugins=[CheckpointIO()], logger=False)
    loader = ps.DataLoader(dataset, arguments.batch_size, shuffle=True)
    trainer.fit(Classifier(len(catalog.classes)), loader, ckpt_path="last")
    print(f"trained up to step {trainer.global_step}")


if __name__ == "__main__":
    main()
