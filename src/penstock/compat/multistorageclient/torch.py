"""``torch.load`` and ``save`` by URL, and the storage of Distributed Checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from penstock.checkpoint.dcp import StorageReader, StorageWriter
from penstock.compat.filesystem import ObjectFileSystem
from penstock.compat.multistorageclient.pathlib import MultiStoragePath
from penstock.compat.multistorageclient.shortcuts import open as open_url
from penstock.compat.multistorageclient.shortcuts import resolve_storage_client
from penstock.options import StoreOptions

if TYPE_CHECKING:
    import os

__all__ = ["MultiStorageFileSystem", "MultiStorageFileSystemReader", "MultiStorageFileSystemWriter", "load", "save"]


def load(f: Any, *args: Any, **kwargs: Any) -> Any:
    """Load what a URL, a path or an open file holds, with ``torch.load``'s arguments."""
    if not isinstance(f, str | MultiStoragePath):
        return torch.load(f, *args, **kwargs)
    with open_url(str(f)) as opened:
        return torch.load(opened, *args, **kwargs)


def save(obj: object, f: Any, *args: Any, **kwargs: Any) -> None:
    """Save an object, atomically, with ``torch.save``'s arguments; ``attributes`` are its object's metadata."""
    attributes = kwargs.pop("attributes", None)
    if not isinstance(f, str | MultiStoragePath):
        torch.save(obj, f, *args, **kwargs)
        return
    with open_url(str(f), "wb", attributes=attributes) as opened:
        torch.save(obj, opened, *args, **kwargs)


class MultiStorageFileSystemReader(StorageReader):
    """Loads a distributed checkpoint: one of Penstock's, or of Multi-Storage Client's."""

    def __init__(self, path: str | os.PathLike[str], thread_count: int = 1) -> None:
        """Read below ``path``; ``thread_count`` is accepted and changes nothing: ranges are read in parallel."""
        client, inner = resolve_storage_client(str(path))
        super().__init__(client.url(inner))


class MultiStorageFileSystemWriter(StorageWriter):
    """Saves a distributed checkpoint, in Penstock's format."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
    ) -> None:
        """Write below ``path``, and replace what is there unless ``overwrite`` is False; the rest changes nothing."""
        client, inner = resolve_storage_client(str(path))
        super().__init__(client.url(inner), overwrite=overwrite)


class MultiStorageFileSystem(ObjectFileSystem):
    """Files for torch's own reader and writer, by URL and by path."""

    def __init__(self) -> None:
        """Take each URL's profile."""
        super().__init__(StoreOptions())

    @classmethod
    def url(cls, path: str | os.PathLike[str]) -> str:
        """Return Penstock's URL of a path. Raises ``InvalidURL`` for another scheme."""
        client, inner = resolve_storage_client(str(path))
        return client.url(inner)

    def ls(self, path: str | os.PathLike[str]) -> list[str]:
        """Return what lies in a directory."""
        return [str(each) for each in MultiStoragePath(path).iterdir()]
