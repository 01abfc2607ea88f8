"""``dataflux_pytorch.lightning.gcs_filesystem`` over Penstock: torch's Distributed Checkpoint on Google Cloud Storage.

Checkpoints are in torch's own layout, which the original reads, and this reads the original's. What differs: a save
becomes visible as one, when all ranks have written, and replaces what was there atomically; a rank reads only what it
loads, in parallel, into the tensors themselves. ``penstock.checkpoint.dcp`` has a layout with digests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.checkpoint.dcp import StorageReader, StorageWriter
from penstock.compat.dataflux_pytorch.options import gcs_url, store_options
from penstock.compat.filesystem import ObjectFileSystem
from penstock.compat.hints import not_honoured
from penstock.compat.torchwriter import overwrite_of

if TYPE_CHECKING:
    import os

    Path = str | os.PathLike[str]

__all__ = ["GCSDistributedReader", "GCSDistributedWriter", "GCSFileSystem"]


class GCSFileSystem(ObjectFileSystem):
    """Objects of Google Cloud Storage as files, for torch's ``FileSystemWriter`` and ``FileSystemReader``."""

    def __init__(
        self,
        project_name: str | None,
        debug: bool = False,  # noqa: FBT001, FBT002  the original's
        storage_client: Any = None,  # noqa: ANN401  a google.cloud.storage.Client
    ) -> None:
        """Open nothing yet."""
        if debug:
            not_honoured("debug=True", "penstock.events tells what is read and written")
        super().__init__(store_options(storage_client))
        self.project_name = project_name
        self.storage_client = storage_client
        self.debug = debug

    @classmethod
    def url(cls, path: Path) -> str:
        """Return a path's URL. ``InvalidURL``, a ``ValueError``, unless it is of Google Cloud Storage."""
        return gcs_url(path)


class GCSDistributedWriter(StorageWriter):
    """Saves a checkpoint below ``path``, on every rank: ``dcp.save(state, storage_writer=GCSDistributedWriter(…))``.

    What stood there is replaced when the new checkpoint is complete (``overwrite=False`` refuses instead).
    """

    def __init__(
        self,
        path: Path,
        project_name: str | None,
        storage_client: Any = None,  # noqa: ANN401  a google.cloud.storage.Client
        debug: bool | None = False,  # noqa: FBT001, FBT002  the original's
        **kwargs: Any,  # noqa: ANN401  those of torch's FileSystemWriter
    ) -> None:
        """Write below ``path``; nothing is sent yet. ``kwargs`` are those of torch's ``FileSystemWriter``."""
        self.fs = GCSFileSystem(project_name, bool(debug), storage_client)
        overwrite = overwrite_of("GCSDistributedWriter", kwargs)
        super().__init__(gcs_url(path), overwrite=overwrite, layout="torch", store=store_options(storage_client))

    def reset(self, checkpoint_id: Path | None = None) -> None:
        """Begin anew, at another location if one is given."""
        super().reset(checkpoint_id and gcs_url(checkpoint_id))

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Path) -> bool:
        """Return whether it is a URL of Google Cloud Storage."""
        return GCSFileSystem.validate_checkpoint_id(checkpoint_id)


class GCSDistributedReader(StorageReader):
    """Loads a checkpoint below ``path``, on every rank: ``dcp.load(state, storage_reader=GCSDistributedReader(…))``."""

    def __init__(
        self,
        path: Path,
        project_name: str | None,
        storage_client: Any = None,  # noqa: ANN401  a google.cloud.storage.Client
        debug: bool | None = False,  # noqa: FBT001, FBT002  the original's
    ) -> None:
        """Read below ``path``; nothing is sent yet."""
        self.fs = GCSFileSystem(project_name, bool(debug), storage_client)
        super().__init__(gcs_url(path), store=store_options(storage_client))

    def reset(self, checkpoint_id: Path | None = None) -> None:
        """Begin anew, at another location if one is given."""
        super().reset(checkpoint_id and gcs_url(checkpoint_id))

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Path) -> bool:
        """Return whether it is a URL of Google Cloud Storage."""
        return GCSFileSystem.validate_checkpoint_id(checkpoint_id)
