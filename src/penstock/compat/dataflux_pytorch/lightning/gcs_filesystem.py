"""``dataflux_pytorch.lightning.gcs_filesystem`` over Penstock: torch's Distributed Checkpoint on Google Cloud Storage.

Checkpoints are in torch's own layout: the original can read them, and this module can read those of the original.
Differences: a save becomes visible atomically when all ranks have written, and replaces an existing checkpoint
atomically; a rank reads only the data that it loads, in parallel, directly into the tensors.
``penstock.checkpoint.dcp`` has a layout with digests.
"""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.dcp import StorageReader, StorageWriter
from penstock.compat.arguments import not_honoured, overwrite_of
from penstock.compat.dataflux_pytorch.lightning.path_utils import gcs_url
from penstock.compat.dataflux_pytorch.listing import store_options
from penstock.compat.filesystem import CheckpointsOf, ObjectFileSystem
from penstock.errors import Unsupported

if TYPE_CHECKING:
    import os

    Path = str | os.PathLike[str]


class GCSFileSystem(ObjectFileSystem):
    """Objects of Google Cloud Storage as files, for torch's ``FileSystemWriter`` and ``FileSystemReader``."""

    def __init__(self, project_name: str | None, debug: bool = False, storage_client: Any = None) -> None:
        if debug:
            not_honoured("debug=True", "penstock.events tells what is read and written")
        super().__init__(store_options(storage_client))
        self.project_name = project_name
        self.storage_client = storage_client
        self.debug = debug

    @classmethod
    def url(cls, path: Path) -> str:
        """Return the URL of a Google Cloud Storage path. Raise ``InvalidURL`` (a ``ValueError``) for any other path."""
        return gcs_url(path)

    def init_path(self, path: Path) -> pathlib.Path:
        """Return a ``pathlib`` path, as the original does; all methods accept it."""
        return pathlib.Path(path)

    def concat_path(self, path: Path, suffix: str) -> pathlib.Path:
        """Return the ``pathlib`` path of ``suffix`` below ``path``."""
        return pathlib.Path(path) / suffix

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Path) -> bool:
        """Return True for a URL of Google Cloud Storage and for any ``pathlib`` path."""
        return isinstance(checkpoint_id, pathlib.Path) or bool(gcs_url(checkpoint_id))


class _AtGCS(CheckpointsOf):
    """Mixin of the writer and the reader: locations are ``gs://`` paths."""

    _files = GCSFileSystem

    def reset(self, checkpoint_id: Path | None = None) -> None:
        """Reset the state, and use the location ``checkpoint_id`` if it is given."""
        super().reset(checkpoint_id and gcs_url(checkpoint_id))  # type: ignore[misc]


class GCSDistributedWriter(_AtGCS, StorageWriter):
    """Checkpoint writer below ``path``, on every rank: ``dcp.save(state, storage_writer=GCSDistributedWriter(…))``.

    An existing checkpoint is replaced when the new one is complete; ``overwrite=False`` raises an error instead.
    """

    def __init__(
        self,
        path: Path,
        project_name: str | None,
        storage_client: Any = None,
        debug: bool | None = False,
        **kwargs: Any,
    ) -> None:
        """Set the location ``path``, without a request. ``kwargs`` are those of torch's ``FileSystemWriter``."""
        self.fs = GCSFileSystem(project_name, bool(debug), storage_client)
        overwrite = overwrite_of("GCSDistributedWriter", kwargs)
        super().__init__(gcs_url(path), overwrite=overwrite, layout="torch", store=store_options(storage_client))


class GCSDistributedReader(_AtGCS, StorageReader):
    """Checkpoint reader below ``path``, on every rank: ``dcp.load(state, storage_reader=GCSDistributedReader(…))``."""

    def __init__(
        self,
        path: Path,
        project_name: str | None,
        storage_client: Any = None,
        debug: bool | None = False,
        **kwargs: Any,
    ) -> None:
        """Set the location ``path``, without a request."""
        if kwargs:
            raise Unsupported(f"GCSDistributedReader reads all layouts: leave out {', '.join(sorted(kwargs))}")
        self.fs = GCSFileSystem(project_name, bool(debug), storage_client)
        super().__init__(gcs_url(path), store=store_options(storage_client))
