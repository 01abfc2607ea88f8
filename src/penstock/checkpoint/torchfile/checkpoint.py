"""Checkpoints as files: for ``torch.save``, ``torch.load`` and anything else that takes a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.verbs import open as open_object

if TYPE_CHECKING:
    import os

    from penstock.options import StoreOptions
    from penstock.source import Reader, Writer

__all__ = ["Checkpoint"]


class Checkpoint:
    """Opens checkpoints of one store by URL."""

    def __init__(self, store: StoreOptions | str | None = None) -> None:
        """Use ``store``'s options for every URL; default: environment and profile."""
        self._store = store

    def writer(self, url: str | os.PathLike[str]) -> Writer:
        """Open a new object to write; it appears, whole, when the ``with`` block ends well, and never otherwise."""
        return open_object(url, "wb", store=self._store)

    def reader(self, url: str | os.PathLike[str]) -> Reader:
        """Open an object to read, seekable, held to its present version: one HEAD. Raises ``NotFound``."""
        return open_object(url, "rb", store=self._store)
