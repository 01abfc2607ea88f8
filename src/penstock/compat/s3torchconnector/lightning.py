"""``s3torchconnector.lightning`` over Penstock: Lightning's checkpoints on S3.

Differences: a save is atomic and verified; a load reads parallel ranges directly into the tensors. Requires
``penstock[torch]`` and Lightning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.checkpoint.lightning import CheckpointIO
from penstock.compat.s3torchconnector.config import s3_url, store_options
from penstock.errors import kind_of

if TYPE_CHECKING:
    from penstock.compat.s3torchconnector.config import S3ClientConfig


class S3LightningCheckpoint(CheckpointIO):
    """Checkpoints by URL: ``Trainer(plugins=[S3LightningCheckpoint(region)])``."""

    def __init__(
        self, region: str | None, s3client_config: S3ClientConfig | None = None, endpoint: str | None = None
    ) -> None:
        super().__init__(store_options(region, endpoint, s3client_config))
        self.region = region

    def load_checkpoint(self, path: Any, map_location: object = None, weights_only: bool | None = None) -> Any:
        """Return the saved value. ``weights_only=None`` is True, as in torch. Raise ``NotFound`` if it is missing."""
        return super().load_checkpoint(path, map_location, weights_only)

    def _place(self, path: object) -> str:
        if not isinstance(path, str):
            raise TypeError(f"path must be an s3:// URL as text, got {kind_of(path)}: pathlib drops one of its slashes")
        return s3_url(path)
