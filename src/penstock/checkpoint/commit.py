"""The commit protocol: data objects first, each under a new name, and last the manifest that makes them count."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from penstock.checkpoint.layout import MANIFEST, Manifest, Sealed
from penstock.checkpoint.seal import SealedReader, SealingWriter
from penstock.errors import AlreadyExists, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from penstock.source import Source

__all__ = ["Committed", "Saving"]

_PIECE_BYTES = 64 << 20


class Saving:
    """A checkpoint being saved below ``folder`` (a key that ends in ``/``): nothing counts until ``commit``.

    A reader sees no checkpoint there until then, and all of it from then on. Whatever ends the process before leaves
    objects that nobody reads: ``CheckpointManager.clean`` frees them. Costs, beside the data objects' own requests,
    three for the manifest: a HEAD before, its single PUT, and a HEAD after.
    """

    def __init__(self, source: Source, folder: str, kind: str) -> None:
        """Begin; nothing is sent yet."""
        self.id = uuid4().hex
        self._source = source
        self._folder = folder
        self._kind = kind
        self._sealed: dict[str, Sealed] = {}

    def vacant(self) -> None:
        """Look, before the data goes up, whether there is one already: ``AlreadyExists``."""
        try:
            self._source.head(self._folder + MANIFEST)
        except NotFound:
            return
        raise AlreadyExists("this checkpoint is committed already", url=self._source.url(self._folder + MANIFEST))

    def open(self, name: str) -> SealingWriter:
        """Open a data object to write; ``add`` it once it is closed well."""
        return SealingWriter(self._source.open_write(f"{self._folder}{self.id}/{name}"))

    def add(self, name: str, sealed: Sealed) -> None:
        """Count a data object in, written by this process or another."""
        self._sealed[f"{self.id}/{name}"] = sealed

    def commit(self, content: dict[str, Any]) -> None:
        """Make it count.

        Raises:
            AlreadyExists: Somebody else committed one there meanwhile; theirs stands.

        """
        manifest = Manifest(self.id, self._kind, self._sealed, content)
        with self._source.open_write(self._folder + MANIFEST, create_only=True) as writer:
            writer.write(manifest.encode())


class Committed:
    """A checkpoint that counts: its manifest, and its objects, each verified as it is read."""

    def __init__(self, source: Source, folder: str) -> None:
        """Read the manifest: two requests.

        Raises:
            NotFound: There is no committed checkpoint.
            CheckpointError: The manifest is damaged.

        """
        self._source = source
        self._folder = folder
        with source.open_read(folder + MANIFEST) as reader:
            self.manifest = Manifest.decode(reader.read(), source.url(folder + MANIFEST))

    def open(self, name: str) -> SealedReader:
        """Open a data object, by its name in the manifest: one HEAD. Raises ``NotFound`` naming it."""
        key = self._folder + name
        return SealedReader(self._source.open_read(key), self.manifest.objects[name], self._source.url(key))

    def verify(self) -> Iterator[str]:
        """Read every object and yield its URL once it is known to be what was written.

        Raises:
            NotFound: One is missing.
            Truncated: One has another length.
            ChecksumMismatch: One has other bytes.

        """
        buffer = bytearray(_PIECE_BYTES)
        for name in sorted(self.manifest.objects):
            with self.open(name) as reader:
                while reader.readinto(buffer):
                    pass
            yield self._source.url(self._folder + name)

    def delete(self) -> None:
        """Delete it, the manifest first: at no time is there one whose objects are not there."""
        self._source.delete([self._folder + MANIFEST])
        self._source.delete([self._folder + name for name in self.manifest.objects])
