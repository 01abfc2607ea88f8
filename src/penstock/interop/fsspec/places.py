"""Which source a name lies in, and by which key: one source for each bucket that a file system was asked about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.providers.urls import parse
from penstock.source import Source

if TYPE_CHECKING:
    from penstock.interop.fsspec.storage import Storage

__all__ = ["Places"]


class Places:
    """Sources by bucket. Thread-safe; sources find engines of their own after a fork."""

    def __init__(self, storage: Storage) -> None:
        """Open nothing yet."""
        self._storage = storage
        self._sources: dict[str, Source] = {}

    def find(self, url: str) -> tuple[Source, str]:
        """Return the source and the key of a URL. No request; raises as ``open_source`` does."""
        location = parse(url)
        source = self._sources.get(location.root)
        if source is None:
            source = self._sources.setdefault(location.root, Source(location, self._storage.options(location)))
        return source, location.key
