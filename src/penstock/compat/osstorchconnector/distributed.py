"""The connector's storage of torch's Distributed Checkpoint, on Penstock's."""

from __future__ import annotations

import os
from typing import Any

from penstock.checkpoint.dcp import StorageReader, StorageWriter
from penstock.compat.osstorchconnector.access import Access, Connected
from penstock.errors import InvalidURL, Unusable

__all__ = ["OssDCPFileSystem", "OssStorageReader", "OssStorageWriter"]

_UNUSED = (
    *("single_file_per_rank", "sync_files", "thread_count", "per_thread_copy_ahead", "cache_staged_state_dict"),
    "serialization_format",
)


class OssDCPFileSystem(Connected):
    """Makes the readers and writers of one store: ``dcp.save(state, storage_writer=fs.writer(uri))``."""

    def writer(self, path: str, **kwargs: Any) -> OssStorageWriter:  # noqa: ANN401  torch's options
        """Return what ``dcp.save`` writes through."""
        return OssStorageWriter(self, path, **kwargs)

    def reader(self, path: str) -> OssStorageReader:
        """Return what ``dcp.load`` reads through."""
        return OssStorageReader(self, path)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Say whether this is a URI of the connector's."""
        try:
            Access("https://").url(os.fspath(checkpoint_id))
        except InvalidURL:
            return False
        return True


class OssStorageWriter(StorageWriter):
    """Saves below ``path``, in Penstock's format."""

    def __init__(self, fs: OssDCPFileSystem, path: str, **kwargs: Any) -> None:  # noqa: ANN401  torch's options
        """Write below ``path`` with the options of ``fs``.

        ``overwrite`` (default True, as torch has it) replaces a checkpoint. Torch's options of files and threads are
        accepted and not used.

        Raises:
            Unusable: Another option.

        """
        overwrite = bool(kwargs.pop("overwrite", True))
        if strange := sorted(kwargs.keys() - set(_UNUSED)):
            raise Unusable(
                f"OssStorageWriter takes no {', '.join(strange)}: penstock.checkpoint.dcp has its own writer"
            )
        super().__init__(fs.access.url(path), overwrite=overwrite, store=fs.access.store)


class OssStorageReader(StorageReader):
    """Loads what lies below ``path``: a checkpoint of Penstock's, or of the connector's."""

    def __init__(self, fs: OssDCPFileSystem, path: str) -> None:
        """Read below ``path`` with the options of ``fs``."""
        super().__init__(fs.access.url(path), store=fs.access.store)
