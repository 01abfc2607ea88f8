"""Checkpoints as file objects: for ``torch.save``, ``torch.load`` and any other function that takes a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.verbs import open as open_object

if TYPE_CHECKING:
    import os

    from penstock.options import StoreOptions
    from penstock.source import Reader, Writer

__all__ = ["Checkpoint"]


class Checkpoint:
    """Access to checkpoints of one store by URL, as file objects."""

    def __init__(self, store: StoreOptions | str | None = None) -> None:
        """Use ``store``'s options for every URL; by default those of the environment and profile."""
        self._store = store

    def writer(self, url: str | os.PathLike[str]) -> Writer:
        """Open a new object to write; it is published, complete, only if the ``with`` block ends without an error."""
        return open_object(url, "wb", store=self._store)

    def reader(self, url: str | os.PathLike[str]) -> Reader:
        """Open the current version of an object to read, seekable: one HEAD. Raise ``NotFound`` if it is missing."""
        return open_object(url, "rb", store=self._store)
