"""The S3 connector's checkpoints: files for reading and writing by URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.compat.s3torchconnector.config import s3_url, store_options
from penstock.compat.s3torchconnector.s3reader import S3ReaderConstructor
from penstock.source import object_at
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    from penstock.compat.s3torchconnector.config import S3ClientConfig
    from penstock.compat.s3torchconnector.s3reader import S3Reader
    from penstock.source import Writer

__all__ = ["S3Checkpoint"]


class S3Checkpoint:
    """Files for ``torch.save`` and ``torch.load``, by URL."""

    def __init__(
        self, region: str | None, endpoint: str | None = None, s3client_config: S3ClientConfig | None = None
    ) -> None:
        """Keep the arguments; nothing is opened yet."""
        self.region = region
        self.endpoint = endpoint
        self._store = store_options(region, endpoint, s3client_config)

    def reader(self, s3_uri: str) -> S3Reader:
        """Return a seekable file over the object. The first read opens it, and raises ``NotFound`` if it is missing."""
        return S3ReaderConstructor.default().open(*object_at(s3_url(s3_uri), self._store))

    def writer(self, s3_uri: str) -> Writer:
        """Return a writable file; the complete object appears on a successful close, and never otherwise."""
        return open_object(s3_url(s3_uri), "wb", store=self._store)
