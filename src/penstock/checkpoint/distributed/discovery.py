"""Discovery of the distributed checkpoint in a folder: Penstock's, torch's, or none.

The location that torch's Distributed Checkpoint asks a storage writer or reader for.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Self

from torch.distributed.checkpoint.metadata import StorageMeta

from penstock.checkpoint.commit import read_current
from penstock.checkpoint.distributed import records, torchmeta
from penstock.checkpoint.distributed.torchmeta import METADATA
from penstock.checkpoint.integrity.manifest import MANIFEST, Manifest
from penstock.errors import CheckpointError, Damaged, NotFound, Unusable
from penstock.source import open_source
from penstock.values import as_folder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.distributed.checkpoint.metadata import Metadata

    from penstock.options import StoreOptions
    from penstock.source import Source

    Id = str | os.PathLike[str]

__all__ = ["ExistingCheckpoints", "Located", "Marker", "existing", "opened", "valid"]


class Marker(NamedTuple):
    """The object that marks a folder as a checkpoint: a manifest, or torch's metadata.

    Attributes:
        key: The object's key.
        etag: The version that was read.
        metadata: The checkpoint's metadata; ``storage_data`` maps to ``ItemLocation``.

    """

    key: str
    etag: str
    metadata: Metadata

    @classmethod
    def first(cls, source: Source, folder: str, names: list[str], *, weights_only: bool) -> Self:
        """Return the first of ``names`` that exists: two requests, and one for each missing name.

        Raises:
            NotFound: None of ``names`` exists.
            CheckpointError: The object is damaged, or describes another kind of checkpoint.

        """
        for name in names:
            try:
                etag, data = read_current(source, folder + name)
            except NotFound:
                continue
            return cls(folder + name, etag, _read(name, data, source.url(folder + name), weights_only=weights_only))
        raise NotFound(f"there is no checkpoint: no {' and no '.join(names)}", url=source.url(folder))

    def replaced(self, source: Source) -> bool:
        """Return whether the object was replaced or deleted since it was read: one request."""
        (meta,) = source.stat_existing([self.key])
        return meta is None or meta.etag != self.etag


class ExistingCheckpoints(NamedTuple):
    """The contents of a folder when a save begins.

    Attributes:
        etags: The ETag of each existing marker, by its key.
        objects: Keys of the objects that the markers name.

    """

    etags: dict[str, str]
    objects: set[str]


def existing(source: Source, folder: str, *, look: bool) -> ExistingCheckpoints:
    """Return the existing checkpoints; with ``look`` also the objects they name."""
    found = [meta for meta in source.stat_existing([folder + MANIFEST, folder + METADATA]) if meta is not None]
    objects = {folder + name for meta in found if look for name in _named(source, meta.key)}
    return ExistingCheckpoints({meta.key: meta.etag for meta in found}, objects)


def opened(url: str | os.PathLike[str], store: StoreOptions | str | None) -> tuple[Source, str]:
    """Return the source and the folder of a checkpoint's URL; the folder ends in ``/`` unless it is empty."""
    source, prefix = open_source(url, store)
    return source, as_folder(prefix)


def valid(url: str | os.PathLike[str]) -> bool:
    """Return whether a URL or path can be opened."""
    try:
        open_source(url)
    except Unusable:
        return False
    return True


def _read(name: str, data: bytes, url: str, *, weights_only: bool) -> Metadata:
    if name != MANIFEST:
        return torchmeta.decode(data, url, weights_only=weights_only)
    manifest = Manifest.decode(data, url)
    if manifest.kind != records.KIND:
        raise CheckpointError(f"this checkpoint is a {manifest.kind}, not a distributed one", url=url)
    metadata = records.decode(manifest.content, manifest.objects, url)
    return replace(metadata, storage_meta=StorageMeta(url.removesuffix(MANIFEST), manifest.save))


def _named(source: Source, key: str) -> Iterable[str]:
    """Return the objects that a marker names; none if it is unreadable, so these stay when it is replaced."""
    (_, data), url = read_current(source, key), source.url(key)
    try:
        if key.endswith(MANIFEST):
            return Manifest.decode(data, url).objects
        locations = torchmeta.decode(data, url, weights_only=True).storage_data
        return {location.name for location in locations.values()}
    except (Damaged, Unusable):
        return ()


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
