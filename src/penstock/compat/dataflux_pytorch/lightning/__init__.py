"""``dataflux_pytorch.lightning`` over Penstock: Lightning's plugins and torch's Distributed Checkpoint."""

from penstock.compat.dataflux_pytorch.lightning.dataflux_lightning_checkpoint import (
    DatafluxLightningAsyncCheckpoint,
    DatafluxLightningCheckpoint,
)
from penstock.compat.dataflux_pytorch.lightning.gcs_filesystem import (
    GCSDistributedReader,
    GCSDistributedWriter,
    GCSFileSystem,
)

__all__ = [
    "DatafluxLightningAsyncCheckpoint",
    "DatafluxLightningCheckpoint",
    "GCSDistributedReader",
    "GCSDistributedWriter",
    "GCSFileSystem",
]
