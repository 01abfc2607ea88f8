"""Checkpoints of the connector: torch files, safetensors, and distributed checkpoints."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING, Any, Self, cast

from penstock.checkpoint.dcp import StorageReader, StorageWriter
from penstock.checkpoint.safetensors.verbs import load_safetensors, open_safetensors, save_safetensors
from penstock.checkpoint.torchfile.archive import Checkpoint
from penstock.compat.arguments import WrongArgument, overwrite_of
from penstock.compat.filesystem import CheckpointsOf, ObjectFileSystem
from penstock.compat.osstorchconnector.datasets import Access
from penstock.errors import InvalidURL

if TYPE_CHECKING:
    from types import TracebackType

    from torch import Tensor

    from penstock.checkpoint.safetensors.verbs import Safetensors
    from penstock.options import StoreOptions
    from penstock.source import Reader, Writer

    Path = str | os.PathLike[str]


class Connected:
    """Base of classes that open objects by URI, with the connector's arguments."""

    def __init__(
        self, endpoint: str, cred_path: str = "", config_path: str = "", cred_provider: Any = None, region: str = ""
    ) -> None:
        if not endpoint:
            raise WrongArgument("the endpoint is empty: pass one such as https://oss-cn-beijing.aliyuncs.com")
        self.access = Access(endpoint, cred_path, config_path, cred_provider, region)
        # Not None: there is an endpoint.
        self._store = cast("StoreOptions", self.access.store)


class OssCheckpoint(Connected):
    """Checkpoints, and any other objects, as files for ``torch.load`` and ``torch.save``."""

    def reader(self, oss_uri: str) -> Reader:
        """Open an object for reading: one HEAD. Raise ``NotFound`` if it does not exist."""
        return Checkpoint(self.access.store).reader(self.access.url(oss_uri))

    def writer(self, oss_uri: str) -> Writer:
        """Open an object for writing; the complete object appears if the ``with`` block succeeds, never otherwise."""
        return Checkpoint(self.access.store).writer(self.access.url(oss_uri))


class OssSafetensor(Connected):
    """Safetensors files by URI, which must end in ``.safetensors``."""

    def safe_open(self, oss_uri: str, device: str | int = "cpu") -> _Opened:
        """Open a file to read single tensors. Raise ``NotFound`` if it does not exist."""
        return _Opened(open_safetensors(self.access.url(oss_uri), device=device, store=self.access.store))

    def load_file(self, oss_uri: str, device: str | int = "cpu") -> dict[str, Tensor]:
        """Load all tensors. Raise the errors of ``ps.load_safetensors``."""
        return load_safetensors(self.access.url(oss_uri), device=device, store=self.access.store)

    def save_file(self, tensors: dict[str, Tensor], oss_uri: str, metadata: dict[str, str] | None = None) -> None:
        """Save tensors, and replace an existing file. Raise the errors of ``ps.save_safetensors``."""
        save_safetensors(tensors, self.access.url(oss_uri), metadata=metadata, overwrite=True, store=self.access.store)


class _Opened:
    """Tensors of a file by name, with the methods of ``Safetensors`` and the connector's ``offset_keys``."""

    def __init__(self, tensors: Safetensors) -> None:
        self._tensors = tensors

    def offset_keys(self) -> list[str]:
        """Return the names in the order of their bytes in the file."""
        return self._tensors.keys()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._tensors, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tensors.__exit__(kind, error, trace)


_ANY = Access("https://")  # checks and converts URIs


class OssDCPFileSystem(Connected, ObjectFileSystem):
    """Objects of OSS as files for torch, and factory of checkpoint readers and writers for one store.

    ``dcp.save(state, storage_writer=fs.writer(uri))``.
    """

    @classmethod
    def url(cls, path: Path) -> str:
        """Return the URL of ``oss://bucket/key`` or ``/bucket/key``. Raise ``InvalidURL``, a ``ValueError``, else."""
        return _ANY.url(os.fspath(path))

    def init_path(self, path: Path) -> Path:
        return path

    def rename(self, old_path: Path, new_path: Path) -> None:
        super().rename(old_path, new_path)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Path) -> bool:
        """Return whether ``checkpoint_id`` is a URI of OSS; True for any ``pathlib.Path``, as in the connector."""
        try:
            return isinstance(checkpoint_id, pathlib.Path) or bool(cls.url(checkpoint_id))
        except (InvalidURL, TypeError):
            return False

    def writer(self, path: str, **kwargs: Any) -> OssStorageWriter:
        return OssStorageWriter(self, path, **kwargs)

    def reader(self, path: str) -> OssStorageReader:
        return OssStorageReader(self, path)


class OssStorageWriter(CheckpointsOf, StorageWriter):
    """Checkpoint writer below ``path``, in Penstock's format."""

    _files = OssDCPFileSystem

    def __init__(self, fs: OssDCPFileSystem, path: str, **kwargs: Any) -> None:
        """Write below ``path`` with the options of ``fs``.

        ``overwrite`` (default True, as in torch) replaces an existing checkpoint. Torch's options for files and threads
        have no effect, with a warning.
        """
        overwrite = overwrite_of("OssStorageWriter", kwargs)
        super().__init__(fs.access.url(path), overwrite=overwrite, store=fs.access.store)
        self.fs = fs
        self.path = path


class OssStorageReader(CheckpointsOf, StorageReader):
    """Checkpoint reader below ``path``, for checkpoints of Penstock or of the connector."""

    _files = OssDCPFileSystem

    def __init__(self, fs: OssDCPFileSystem, path: str) -> None:
        super().__init__(fs.access.url(path), store=fs.access.store)
        self.fs = fs
        self.path = path
