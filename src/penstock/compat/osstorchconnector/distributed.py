"""The connector's storage for torch's Distributed Checkpoint, based on Penstock's."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING, Any, cast

from penstock.checkpoint.dcp import StorageReader, StorageWriter
from penstock.compat.filesystem import ObjectFileSystem
from penstock.compat.osstorchconnector.access import Access, Connected
from penstock.errors import InvalidURL, Unusable

if TYPE_CHECKING:
    from penstock.options import StoreOptions

    Path = str | os.PathLike[str]

__all__ = ["OssDCPFileSystem", "OssStorageReader", "OssStorageWriter"]

_ANY = Access("https://")  # checks and converts URIs
_UNUSED = (
    *("single_file_per_rank", "sync_files", "thread_count", "per_thread_copy_ahead", "cache_staged_state_dict"),
    "serialization_format",
)


class OssDCPFileSystem(ObjectFileSystem, Connected):
    """Objects of OSS as files for torch, and factory of checkpoint readers and writers for one store.

    ``dcp.save(state, storage_writer=fs.writer(uri))``.
    """

    def __init__(
        self,
        endpoint: str,
        cred_path: str = "",
        config_path: str = "",
        cred_provider: Any = None,  # noqa: ANN401  any SDK's
        region: str = "",
    ) -> None:
        """Use these options for every URI: see ``OssMapDataset.from_prefix``.

        Raises:
            ValueError: ``endpoint`` is empty.

        """
        Connected.__init__(self, endpoint, cred_path, config_path, cred_provider, region)
        ObjectFileSystem.__init__(self, cast("StoreOptions", self.access.store))

    @classmethod
    def url(cls, path: Path) -> str:
        """Return the URL of ``oss://bucket/key`` or ``/bucket/key``. Raise ``InvalidURL``, a ``ValueError``, else."""
        return _ANY.url(os.fspath(path))

    def init_path(self, path: Path) -> Path:
        """Return the path unchanged."""
        return path

    def rename(self, old_path: Path, new_path: Path) -> None:
        """Copy an object to its new name, and delete it under the old name."""
        super().rename(old_path, new_path)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Path) -> bool:
        """Return whether ``checkpoint_id`` is a URI of OSS; True for any ``pathlib.Path``, as in the connector."""
        try:
            return isinstance(checkpoint_id, pathlib.Path) or bool(cls.url(checkpoint_id))
        except (InvalidURL, TypeError):
            return False

    def writer(self, path: str, **kwargs: Any) -> OssStorageWriter:  # noqa: ANN401  torch's options
        """Return a writer for ``dcp.save``."""
        return OssStorageWriter(self, path, **kwargs)

    def reader(self, path: str) -> OssStorageReader:
        """Return a reader for ``dcp.load``."""
        return OssStorageReader(self, path)


class OssStorageWriter(StorageWriter):
    """Checkpoint writer below ``path``, in Penstock's format."""

    def __init__(self, fs: OssDCPFileSystem, path: str, **kwargs: Any) -> None:  # noqa: ANN401  torch's options
        """Write below ``path`` with the options of ``fs``.

        ``overwrite`` (default True, as in torch) replaces an existing checkpoint. Torch's options for files and threads
        are accepted and ignored.

        Raises:
            Unusable: An option is unknown.

        """
        overwrite = bool(kwargs.pop("overwrite", True))
        if strange := sorted(kwargs.keys() - set(_UNUSED)):
            raise Unusable(
                f"OssStorageWriter takes no {', '.join(strange)}: penstock.checkpoint.dcp has its own writer"
            )
        super().__init__(fs.access.url(path), overwrite=overwrite, store=fs.access.store)
        self.fs = fs
        self.path = path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Path) -> bool:
        """Return the result of ``OssDCPFileSystem.validate_checkpoint_id``."""
        return OssDCPFileSystem.validate_checkpoint_id(checkpoint_id)


class OssStorageReader(StorageReader):
    """Checkpoint reader below ``path``, for checkpoints of Penstock or of the connector."""

    def __init__(self, fs: OssDCPFileSystem, path: str) -> None:
        """Read below ``path`` with the options of ``fs``."""
        super().__init__(fs.access.url(path), store=fs.access.store)
        self.fs = fs
        self.path = path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Path) -> bool:
        """Return the result of ``OssDCPFileSystem.validate_checkpoint_id``."""
        return OssDCPFileSystem.validate_checkpoint_id(checkpoint_id)
