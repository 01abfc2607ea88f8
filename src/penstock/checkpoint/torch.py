"""``torch.save`` and ``torch.load`` by URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.checkpoint.file import Checkpoint
from penstock.errors import MissingExtra, PenstockError

if TYPE_CHECKING:
    import io
    import os
    from types import ModuleType
    from typing import BinaryIO

    from penstock.options import StoreOptions

__all__ = ["dump", "load", "save", "torch_module"]


def save(obj: object, url: str | os.PathLike[str], *, store: StoreOptions | None = None) -> None:
    """Save with ``torch.save``; the object appears whole or not at all, and replaces what stood there."""
    with Checkpoint(store).writer(url) as writer:
        dump(obj, writer)


def dump(obj: object, file: BinaryIO | io.BufferedIOBase) -> None:
    """Write with ``torch.save``; where the file fails, with the file's error and not with what torch makes of it."""
    try:
        torch_module().save(obj, file)
    except RuntimeError as error:  # torch ends the archive although it could not be written, and trips over that
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, PenstockError):
            cause = cause.__context__
        raise cause or error from None


def load(
    url: str | os.PathLike[str],
    *,
    map_location: object = None,
    weights_only: bool = True,
    store: StoreOptions | None = None,
) -> Any:  # noqa: ANN401  whatever was saved
    """Load with ``torch.load``; each tensor's bytes go straight into its memory, in parallel ranges.

    ``weights_only=False`` runs whatever code the file names: only for files you trust. Raises ``NotFound``, or
    ``Changed`` when the object is replaced while it is read.
    """
    torch = torch_module()
    with Checkpoint(store).reader(url) as reader:
        return torch.load(reader, map_location=map_location, weights_only=weights_only)


def torch_module() -> ModuleType:
    """Return torch, or raise ``MissingExtra``."""
    try:
        import torch
    except ImportError:
        raise MissingExtra("checkpoints of tensors need torch: pip install 'penstock[torch]'") from None
    return torch
