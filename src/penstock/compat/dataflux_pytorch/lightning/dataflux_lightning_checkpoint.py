"""``dataflux_pytorch.lightning``'s plugins over Penstock: Lightning's checkpoints on Google Cloud Storage."""

from __future__ import annotations

from typing import Any

from penstock.checkpoint.lightning import AsyncCheckpointIO, CheckpointIO
from penstock.compat.dataflux_pytorch.lightning.path_utils import gcs_url
from penstock.compat.dataflux_pytorch.listing import store_options


class DatafluxLightningCheckpoint(CheckpointIO):
    """Checkpoints by ``gs://`` or ``gcs://`` path: ``Trainer(plugins=[DatafluxLightningCheckpoint(project)])``.

    ``disable_multipart`` has no effect: objects are uploaded in parallel parts while torch writes them.
    """

    def __init__(self, project_name: str | None, storage_client: Any = None, disable_multipart: bool = False) -> None:
        super().__init__(store_options(storage_client))
        self.project_name = project_name
        self.storage_client = storage_client
        self.disable_multipart = disable_multipart

    def load_checkpoint(self, path: Any, map_location: object = None, weights_only: bool | None = None) -> Any:
        """Return the saved value. ``weights_only=None`` is True, as in torch. Raise ``NotFound`` if it is missing."""
        return super().load_checkpoint(path, map_location, weights_only)

    def _place(self, path: Any) -> str:
        return gcs_url(path)


class DatafluxLightningAsyncCheckpoint(AsyncCheckpointIO):
    """``DatafluxLightningCheckpoint`` in the background: see ``penstock.checkpoint.lightning.AsyncCheckpointIO``."""

    def __init__(self, project_name: str | None, storage_client: Any = None, disable_multipart: bool = False) -> None:
        super().__init__(DatafluxLightningCheckpoint(project_name, storage_client, disable_multipart))
