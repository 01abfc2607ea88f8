"""``dataflux_pytorch.dataflux_checkpoint`` over Penstock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.compat.dataflux_pytorch.listing import store_options
from penstock.source import Writer as DatafluxCheckpointBuffer
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    from penstock.source import Reader

__all__ = ["DatafluxCheckpoint", "DatafluxCheckpointBuffer"]


class DatafluxCheckpoint:
    """Files for ``torch.save`` and ``torch.load`` on the objects of a bucket, in bounded memory.

    ``storage_client`` is a ``google.cloud.storage.Client``; ``project_name`` is not needed to find objects.
    """

    def __init__(self, project_name: str | None, bucket_name: str, storage_client: Any = None) -> None:
        self.project_name = project_name
        self.bucket_name = bucket_name
        self.storage_client = storage_client
        self._store = store_options(storage_client)

    def reader(self, object_name: str) -> Reader:
        """Return a seekable file over the object: one HEAD. Raise ``NotFound`` if it does not exist."""
        return open_object(self._url(object_name), "rb", store=self._store)

    def writer(self, object_name: str) -> DatafluxCheckpointBuffer:
        """Return a writable file; the complete object appears on a successful close, and never otherwise."""
        return open_object(self._url(object_name), "wb", store=self._store)

    def _url(self, object_name: str) -> str:
        return f"gs://{self.bucket_name}/{object_name}"
