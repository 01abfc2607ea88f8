"""``torch.save`` and ``torch.load`` by URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.checkpoint.file import Checkpoint
from penstock.errors import MissingExtra

if TYPE_CHECKING:
    import os
    from types import ModuleType

    from penstock.options import StoreOptions

__all__ = ["load", "save"]


def save(obj: object, url: str | os.PathLike[str], *, store: StoreOptions | None = None) -> None:
    """Save with ``torch.save``; the object appears whole or not at all, and replaces what stood there."""
    torch = _torch()
    with Checkpoint(store).writer(url) as writer:
        torch.save(obj, writer)


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
    torch = _torch()
    with Checkpoint(store).reader(url) as reader:
        return torch.load(reader, map_location=map_location, weights_only=weights_only)


def _torch() -> ModuleType:
    try:
        import torch
    except ImportError:
        raise MissingExtra("checkpoints of tensors need torch: pip install 'penstock[torch]'") from None
    return torch
