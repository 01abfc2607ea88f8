"""The connector's checkpoint files and safetensors files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from penstock.checkpoint.safetensors.verbs import load_safetensors, open_safetensors, save_safetensors
from penstock.checkpoint.torchfile.archive import Checkpoint
from penstock.compat.osstorchconnector.access import Connected

if TYPE_CHECKING:
    from types import TracebackType

    from torch import Tensor

    from penstock.checkpoint.safetensors.verbs import Safetensors, Slice
    from penstock.source import Reader, Writer

__all__ = ["OssCheckpoint", "OssSafetensor"]


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
    """Tensors of a file by name, with the connector's methods."""

    def __init__(self, tensors: Safetensors) -> None:
        self._tensors = tensors

    def keys(self) -> list[str]:
        """Return the names in the order of their bytes in the file."""
        return self._tensors.keys()

    offset_keys = keys

    def metadata(self) -> dict[str, str]:
        """Return the metadata saved with the tensors."""
        return self._tensors.metadata()

    def get_tensor(self, name: str) -> Tensor:
        """Read a tensor. Raise ``NotFound`` for an unknown name."""
        return self._tensors.get_tensor(name)

    def get_slice(self, name: str) -> Slice:
        """Return an object that reads parts of a tensor when it is indexed."""
        return self._tensors.get_slice(name)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self._tensors.__exit__(kind, error, trace)
