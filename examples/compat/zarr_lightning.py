"""The program of zarr-torch-dataset's README, complete: Lightning and several ranks, each on a part of the chunks.

Run: srun python examples/compat/zarr_lightning.py s3://bucket/data, or torchrun
"""

import os
import sys

import lightning
import torch
import zarr

from penstock.compat.zarrdataset import ZarrDataLoader, ZarrIterableDataset
from penstock.interop.zarr import Store

url = sys.argv[1]


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch):
        """Return a batch's loss."""
        samples, targets = batch
        return torch.nn.functional.mse_loss(self.layer(samples)[:, 0], targets)

    def validation_step(self, batch):
        """Log the loss."""
        self.log("loss", self.training_step(batch), sync_dist=True)

    def configure_optimizers(self):
        """Return the optimizer."""
        return torch.optim.SGD(self.parameters(), lr=0.01)


# Open your Zarr datasets: the paths are all that changes from local files to a bucket.
train_samples = zarr.open(Store(f"{url}/train_samples_zarr"), mode="r")
train_targets = zarr.open(Store(f"{url}/train_targets_zarr"), mode="r")
validation_samples = zarr.open(Store(f"{url}/validation_samples_zarr"), mode="r")
validation_targets = zarr.open(Store(f"{url}/validation_targets"), mode="r")

train_ds = ZarrIterableDataset(
    samples=train_samples,
    targets=train_targets,
    shuffle_chunks=True,
    chunks_shuffle_seed=42,
    shuffle_buffer=True,
    buffer_shuffle_seed=None,
)
val_ds = ZarrIterableDataset(
    samples=validation_samples, targets=validation_targets, shuffle_chunks=False, shuffle_buffer=False
)
loading = {"num_workers": int(os.environ.get("WORKERS", "2")), "batch_size": 32, "pin_memory": True, "drop_last": False}
train_da = ZarrDataLoader(dataset=train_ds, prefetch_factor=2, **loading)
val_da = ZarrDataLoader(dataset=val_ds, prefetch_factor=2, **loading)

trainer = lightning.Trainer(
    accelerator="auto" if torch.cuda.is_available() else "cpu",
    devices=int(os.environ["SLURM_GPUS_ON_NODE"]),
    num_nodes=int(os.environ["SLURM_NNODES"]),
    strategy="ddp",
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(model=Model(), train_dataloaders=train_da, val_dataloaders=val_da)
print(f"rank {trainer.global_rank}: {trainer.global_step} steps, loss {trainer.callback_metrics['loss']:.3f}")
