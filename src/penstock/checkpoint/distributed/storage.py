"""The location that torch's Distributed Checkpoint asks a storage writer or reader for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.checkpoint.distributed.discovery import opened, valid

if TYPE_CHECKING:
    from penstock.options import StoreOptions

    Id = str | os.PathLike[str]

__all__ = ["Located"]


class Located:
    """The location of a checkpoint, with the methods that torch expects of a writer and a reader."""

    _store: StoreOptions | str | None

    @property
    def checkpoint_id(self) -> str:
        """The checkpoint's URL."""
        return self._url

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Id) -> bool:
        """Return whether Penstock can open a URL or path."""
        return valid(checkpoint_id)

    def reset(self, checkpoint_id: Id | None = None) -> None:
        """Start over, at another location if one is given."""
        if checkpoint_id:
            self._url = os.fspath(checkpoint_id)
            self._source, self._folder = opened(self._url, self._store)
