"""``torch.load`` and ``save`` by URL, and storage for Distributed Checkpoint."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.compat.arguments import overwrite_of
from penstock.compat.multistorageclient.pathlib import MultiStoragePath
from penstock.compat.multistorageclient.shortcuts import open as open_url
from penstock.compat.multistorageclient.shortcuts import resolve_storage_client
from penstock.errors import ConfigError, require_extras
from penstock.options import StoreOptions

with require_extras("penstock.compat.multistorageclient.torch needs torch", torch="torch"):
    import torch

    from penstock.checkpoint.dcp import StorageReader, StorageWriter
    from penstock.compat.filesystem import CheckpointsOf, ObjectFileSystem

if TYPE_CHECKING:
    import os
    from collections.abc import Generator


def load(f: Any, *args: Any, **kwargs: Any) -> Any:
    """Load the file at a URL or a path, or an open file, with ``torch.load``'s arguments."""
    if not isinstance(f, str | MultiStoragePath):
        return torch.load(f, *args, **kwargs)
    with open_url(str(f)) as opened:
        return torch.load(opened, *args, **kwargs)


def save(obj: object, f: Any, *args: Any, **kwargs: Any) -> None:
    """Save a value atomically, with ``torch.save``'s arguments; ``attributes`` are its object's metadata."""
    attributes = kwargs.pop("attributes", None)
    if not isinstance(f, str | MultiStoragePath):
        torch.save(obj, f, *args, **kwargs)
        return
    with open_url(str(f), "wb", attributes=attributes) as opened:
        torch.save(obj, opened, *args, **kwargs)


class MultiStorageFileSystem(ObjectFileSystem):
    """Files for torch's own reader and writer, by URL or path."""

    def __init__(self) -> None:
        super().__init__(StoreOptions())

    @classmethod
    def url(cls, path: str | os.PathLike[str]) -> str:
        """Return Penstock's URL of a path. Raise ``InvalidURL`` for an unknown scheme."""
        client, inner = resolve_storage_client(str(path))
        return client.url(inner)

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Generator[Any, None, None]:
        """Open a file as ``StorageClient.open`` does; a writer publishes its object if the ``with`` block succeeds."""
        with MultiStoragePath(path).open(mode) as file:
            yield file

    def exists(self, path: str | os.PathLike[str]) -> bool:
        """Return whether an object exists at the path, or anything below it."""
        return MultiStoragePath(path).exists()

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        """Create a local directory; elsewhere do nothing."""
        MultiStoragePath(path).mkdir(parents=True, exist_ok=True)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Return whether ``checkpoint_id`` is a path, or a URL of a usable profile, without a request."""
        try:
            MultiStoragePath(checkpoint_id)
        except (ValueError, ConfigError):
            return False
        return True

    def ls(self, path: str | os.PathLike[str]) -> list[str]:
        return [str(each) for each in MultiStoragePath(path).iterdir()]


class MultiStorageFileSystemReader(CheckpointsOf, StorageReader):
    """Reader of distributed checkpoints of Penstock or of Multi-Storage Client."""

    _files = MultiStorageFileSystem

    def __init__(self, path: str | os.PathLike[str], thread_count: int = 1) -> None:
        """Read below ``path``; ``thread_count`` is accepted and ignored: ranges are read in parallel."""
        client, inner = resolve_storage_client(str(path))
        super().__init__(client.url(inner))


class MultiStorageFileSystemWriter(CheckpointsOf, StorageWriter):
    """Writer of a distributed checkpoint, in Penstock's format."""

    _files = MultiStorageFileSystem

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
        """Write below ``path``; replace an existing checkpoint unless ``overwrite`` is False; warn about the rest."""
        given = {
            "single_file_per_rank": single_file_per_rank,
            "sync_files": sync_files,
            "thread_count": thread_count,
            "per_thread_copy_ahead": per_thread_copy_ahead,
            "cache_staged_state_dict": cache_staged_state_dict,
        }
        overwrite = overwrite_of("MultiStorageFileSystemWriter", given | {"overwrite": overwrite})
        client, inner = resolve_storage_client(str(path))
        super().__init__(client.url(inner), overwrite=overwrite)
