"""What torch's Distributed Checkpoint asks of what writes a checkpoint and of what reads one: where it is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.checkpoint.distributed.discovery import opened, valid

if TYPE_CHECKING:
    from penstock.options import StoreOptions

    Id = str | os.PathLike[str]

__all__ = ["Located"]


class Located:
    """The location of a checkpoint, as torch asks a writer or a reader for it."""

    _store: StoreOptions | str | None

    @property
    def checkpoint_id(self) -> str:
        """Where the checkpoint is."""
        return self._url

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Id) -> bool:
        """Say whether it is a URL or path that Penstock can open."""
        return valid(checkpoint_id)

    def reset(self, checkpoint_id: Id | None = None) -> None:
        """Begin anew, at another location if one is given."""
        if checkpoint_id:
            self._url = os.fspath(checkpoint_id)
            self._source, self._folder = opened(self._url, self._store)
