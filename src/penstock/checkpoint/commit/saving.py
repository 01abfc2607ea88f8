"""The commit protocol: data objects first, each under a new name, and last the manifest that makes them count."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

from penstock.checkpoint.integrity.checksummed import ChecksummedReader, ChecksummedWriter
from penstock.checkpoint.integrity.manifest import MANIFEST, Manifest, fits, span
from penstock.checkpoint.transfer.plan import Object
from penstock.errors import AlreadyExists, Changed, Conflict, InvalidURL, NotFound, PenstockError, Truncated
from penstock.protocols.driver import Put
from penstock.providers.urls import parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from penstock.checkpoint.integrity.checksums import BlockChecksums
    from penstock.source import Source
    from penstock.values import ObjectMeta

__all__ = ["CommittedCheckpoint", "Saving", "publish", "read_current"]

_PIECE_BYTES = 64 << 20
_TRIES = 9


class Saving:
    """A checkpoint being saved below ``folder`` (a key that ends in ``/``): nothing counts until ``commit``.

    A reader sees no checkpoint there until then, and all of it from then on. Whatever ends the process before leaves
    objects without a manifest: ``CheckpointManager.clean`` frees them. Costs, beside the data objects' own requests,
    three for the manifest: a HEAD before, its single PUT (whatever its size), and a HEAD after.

    Attributes:
        id: Of this save: no other has it.
        etag: The manifest's, once it is committed.

    """

    def __init__(self, source: Source, folder: str, kind: str) -> None:
        """Begin; nothing is sent yet. ``Unsupported`` where the store takes no objects."""
        source.require(Put, folder)
        self.id = uuid4().hex
        self.etag = ""
        self._source = source
        self._folder = folder
        self._kind = kind
        self._checksums: dict[str, BlockChecksums] = {}

    def current_etag(self) -> str:
        """Return the ETag of the manifest that is there; empty where there is none. One request."""
        try:
            return self._source.head(self._folder + MANIFEST).etag
        except NotFound:
            return ""

    def refuse_existing(self) -> None:
        """Look, before the data goes up, whether there is one already: ``AlreadyExists``."""
        if self.current_etag():
            raise AlreadyExists("this checkpoint is committed already", url=self._source.url(self._folder + MANIFEST))

    def check(self, name: str) -> None:
        """Refuse a data object's name that the store cannot hold: ``InvalidURL``. No request."""
        if not fits(name):
            raise InvalidURL("this is no relative path of valid UTF-8, and no store can hold it", url=name)
        parse(self._source.url(f"{self._folder}{self.id}/{name}"))

    def open(self, name: str) -> ChecksummedWriter:
        """Open a data object to write; ``add`` it once it is closed well."""
        return ChecksummedWriter(self._source.open_write(f"{self._folder}{self.id}/{name}"))

    def add(self, name: str, checksums: BlockChecksums) -> None:
        """Count a data object in, written by this process or another."""
        self._checksums[f"{self.id}/{name}"] = checksums

    def commit(self, content: dict[str, Any], replacing: str = "") -> Manifest:
        """Make it count: a new one, or in place of the one whose manifest has the ETag ``replacing``; return it.

        A reader sees the one that was replaced until then, and all of this from then on. The other's objects stay:
        ``CommittedCheckpoint.delete_objects`` frees them. Where another save's manifest stands, or none, this save's
        objects are deleted; they stay where that is not known.

        Raises:
            AlreadyExists: Somebody else committed one there meanwhile; theirs stands.
            PreconditionFailed: Somebody else has replaced or deleted it meanwhile; what they left stands.
            Changed: This one was committed, and somebody else has replaced it since.

        """
        manifest = Manifest(self.id, self._kind, self._checksums, content)
        self.etag = publish(self._source, self._folder + MANIFEST, manifest.encode(), replacing, self._keys)
        return manifest

    @property
    def _keys(self) -> list[str]:
        return [self._folder + name for name in self._checksums]


class CommittedCheckpoint:
    """A checkpoint that counts: its manifest, and its objects, each verified as it is read.

    Attributes:
        manifest: What it is made of.
        etag: The manifest's, for ``Saving.commit``.

    """

    def __init__(self, source: Source, folder: str) -> None:
        """Read the manifest: two requests.

        Raises:
            NotFound: There is no committed checkpoint.
            CheckpointError: The manifest is damaged.

        """
        self._source = source
        self._folder = folder
        self.etag, document = read_current(source, folder + MANIFEST)
        self.manifest = Manifest.decode(document, source.url(folder + MANIFEST))

    def open(self, name: str) -> ChecksummedReader:
        """Open a data object, by its name in the manifest: one HEAD. Raises ``NotFound`` naming it."""
        key = self._folder + name
        return ChecksummedReader(self._source.open_read(key), self.manifest.objects[name], self._source.url(key))

    def objects(self, names: Sequence[str]) -> dict[str, Object]:
        """Look at data objects, in parallel, and return what ``gather`` reads each by: a HEAD for each.

        Raises:
            NotFound: One is missing. ``Truncated``: one has another length.

        """
        found = self._source.stat_many([self._folder + name for name in names])
        return {name: self._object(name, meta) for name, meta in zip(names, found, strict=True)}

    def _object(self, name: str, meta: ObjectMeta) -> Object:
        checksums, url = self.manifest.objects[name], self._source.url(meta.key)
        if meta.size != checksums.size:
            raise Truncated(f"the object has {meta.size} bytes, {checksums.size} were written", url=url)
        return Object(meta.key, meta.etag, meta.size, url, checksums)

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
        self.delete_objects()

    def delete_objects(self) -> None:
        """Delete its objects and no manifest: once another one has taken its place, or it is deleted."""
        self._source.delete([self._folder + name for name in self.manifest.objects])


def publish(source: Source, key: str, data: bytes, replaces: str, named: Sequence[str]) -> str:
    """Write what makes the objects ``named`` count, in place of the version ``replaces`` if given; return its ETag.

    Where another writer's stands, or none, the objects are deleted; they stay where that is not known. Three requests,
    and two where the store denies it.

    Raises:
        Conflict: As ``Source.publish``; what others left stands.

    """
    try:
        return source.publish(key, data, replaces=replaces).etag
    except Conflict:
        etag, current = _current_manifest(source, key)
        if current == data:  # a store that drops metadata cannot say whose object it holds; its bytes can
            return etag
        if current is not None:
            with suppress(PenstockError):  # clean() frees what stays
                source.delete(named)
        raise


def _current_manifest(source: Source, key: str) -> tuple[str, bytes | None]:
    """Return an object's ETag and bytes; no bytes where there is none, None where it is unreadable."""
    try:
        return read_current(source, key)
    except NotFound:
        return "", b""
    except PenstockError:
        return "", None


def read_current(source: Source, key: str) -> tuple[str, bytes]:
    """Return the ETag and the bytes of a manifest, or of metadata like one: two requests.

    The object may be replaced between the two requests, again and again: each time both are sent again, nine times at
    most. Of more bytes than a manifest may have the first ``MOST_BYTES + 1`` are returned.

    Raises:
        NotFound: There is no such object.
        Changed: It was replaced each time, or the store calls one version another.

    """
    before = ""
    for left in reversed(range(_TRIES)):
        meta = source.head(key)
        try:
            return meta.etag, source.read(span(meta))
        except Changed:
            if meta.etag == before or not left:
                raise
            before = meta.etag
    raise AssertionError
