"""The commit protocol: data objects first, each under a new name, then the manifest that commits them.

Removal of one checkpoint by its URL: an object, or a folder's checkpoint files and no other files.
"""

from __future__ import annotations

import logging
import os
import re
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from penstock.checkpoint.columns import IndexColumns, read_checksums
from penstock.checkpoint.gather import Object
from penstock.checkpoint.integrity import (
    MANIFEST,
    METADATA,
    BlockChecksums,
    ChecksummedReader,
    ChecksummedWriter,
    Manifest,
    fits,
    span,
)
from penstock.engine.contracts.driver import Put
from penstock.errors import AlreadyExists, Changed, Conflict, InvalidURL, NotFound, PenstockError, Truncated, Unusable
from penstock.source import Source, open_source
from penstock.stores.urls import check_deletable, parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.options import StoreOptions
    from penstock.values import ObjectMeta

_PIECE_BYTES = 64 << 20
_TRIES = 9


class Saving:
    """Save in progress below ``folder`` (a key that ends in ``/``); ``commit`` makes it visible atomically.

    If the process ends before the commit, objects without a manifest remain; ``CheckpointManager.clean`` deletes them.
    Besides requests for data objects, a save costs three for the manifest: a HEAD before, one PUT (of any size), and
    a HEAD after.
    """

    def __init__(self, source: Source, folder: str, kind: str) -> None:
        source.require(Put, folder)
        self.id = uuid4().hex
        self.etag = ""
        self._source = source
        self._folder = folder
        self._kind = kind
        self._checksums: dict[str, BlockChecksums] = {}

    def current_etag(self) -> str:
        """Return the ETag of the existing manifest, or an empty string if it does not exist. One request."""
        try:
            return self._source.head(self._folder + MANIFEST).etag
        except NotFound:
            return ""

    def refuse_existing(self) -> None:
        """Raise ``AlreadyExists`` if a checkpoint is committed already; call it before uploading data."""
        if self.current_etag():
            message = "this checkpoint is committed already: pass overwrite=True to replace it"
            raise AlreadyExists(message, url=self._source.url(self._folder + MANIFEST))

    def check(self, name: str) -> None:
        """Raise ``InvalidURL`` for a data object name that the store cannot hold. No request."""
        if not fits(name):
            raise InvalidURL(
                "object name must be a relative path in valid UTF-8 without '.', '..' or empty parts", url=name
            )
        parse(self._source.url(f"{self._folder}{self.id}/{name}"))

    def open(self, name: str) -> ChecksummedWriter:
        """Open a data object to write; call ``add`` after it is closed successfully."""
        return ChecksummedWriter(self._source.open_write(f"{self._folder}{self.id}/{name}"))

    def add(self, name: str, checksums: BlockChecksums) -> None:
        """Register a data object for the commit, written by this process or another."""
        self._checksums[f"{self.id}/{name}"] = checksums

    def commit(self, content: dict[str, Any], replacing: str = "") -> Manifest:
        """Commit the checkpoint and return its manifest: create it, or replace the one whose ETag is ``replacing``.

        The replaced checkpoint's objects stay; ``CommittedCheckpoint.delete_objects`` deletes them. On a conflict this
        save's objects are deleted if the store holds another manifest, or none; they stay if that is unknown. Raises
        ``AlreadyExists`` or ``PreconditionFailed`` if another save was faster, whose result stays; ``Changed`` if this
        checkpoint was committed, and then replaced by another save.
        """
        manifest = Manifest(self.id, self._kind, self._checksums, content)
        named = [self._folder + name for name in self._checksums]
        self.etag = publish(self._source, self._folder + MANIFEST, manifest.encode(), replacing, named)
        return manifest


class CommittedCheckpoint:
    """Committed checkpoint: its manifest, with its ETag for ``Saving.commit``, and its objects, verified on read."""

    def __init__(self, source: Source, folder: str, current: tuple[str, bytes] | None = None) -> None:
        """Read the manifest: two requests, or none with its ETag and bytes in ``current``."""
        self._source = source
        self._folder = folder
        self.etag, document = current or read_current(source, folder + MANIFEST)
        self.manifest = Manifest.decode(document, source.url(folder + MANIFEST))

    @cached_property
    def columns(self) -> IndexColumns:
        """The index, for a checkpoint of a kind that has one."""
        return IndexColumns(self._source, self._folder, self.manifest)

    def open(self, name: str) -> ChecksummedReader:
        """Open a data object by its name in the manifest: one HEAD. Raise ``NotFound`` if it is missing."""
        return self._open(name, self._checksums([name])[name])

    def objects(self, names: Sequence[str]) -> dict[str, Object]:
        """Return, by name, an ``Object`` for ``gather`` to read each data object: parallel HEADs, one each."""
        checksums = self._checksums(names)
        found = self._source.stat_many([self._folder + name for name in names])
        return {name: self._object(checksums[name], meta) for name, meta in zip(names, found, strict=True)}

    def _checksums(self, names: Sequence[str]) -> dict[str, BlockChecksums]:
        known, indexed = self.manifest.objects, self.manifest.indexed
        further = [name for name in names if name not in known]
        read = read_checksums(self.columns, indexed, further) if further else {}
        return {name: read.get(name) or known[name] for name in names}

    def _open(self, name: str, checksums: BlockChecksums) -> ChecksummedReader:
        key = self._folder + name
        return ChecksummedReader(self._source.open_read(key), checksums, self._source.url(key))

    def _object(self, checksums: BlockChecksums, meta: ObjectMeta) -> Object:
        url = self._source.url(meta.key)
        if meta.size != checksums.size:
            raise Truncated(f"the object has {meta.size} bytes, but {checksums.size} were written", url=url)
        return Object(meta.key, meta.etag, meta.size, url, checksums)

    def verify(self) -> Iterator[str]:
        buffer = bytearray(_PIECE_BYTES)
        for name, checksums in sorted(self._checksums(list(self.manifest.sizes)).items()):
            with self._open(name, checksums) as reader:
                while reader.readinto(buffer):
                    pass
            yield self._source.url(self._folder + name)

    def delete(self) -> None:
        """Delete the checkpoint, manifest first: no reader ever finds a manifest whose objects are gone."""
        self._source.delete([self._folder + MANIFEST])
        self.delete_objects()

    def delete_objects(self) -> None:
        """Delete the objects and keep the manifest: for a checkpoint that was replaced or deleted."""
        self._source.delete([self._folder + name for name in self.manifest.sizes])


def publish(source: Source, key: str, data: bytes, replaces: str, named: Sequence[str]) -> str:
    """Write a manifest that commits the objects ``named``, and return its ETag.

    With ``replaces`` (an ETag) it replaces that version. On a conflict the objects are deleted if the store holds
    another manifest, or none; they stay if that is unknown. Costs three requests, and two more on a conflict.
    """
    try:
        return source.publish(key, data, replaces=replaces).etag
    except Conflict:
        etag, current = _current_manifest(source, key)
        # A store that drops metadata cannot tell whose object it holds, but the bytes can.
        if current == data:
            return etag
        if current is not None:
            with suppress(PenstockError):  # clean() deletes what stays
                source.delete(named)
        raise


def _current_manifest(source: Source, key: str) -> tuple[str, bytes | None]:
    """Return an object's ETag and bytes: empty bytes if it does not exist, None if it cannot be read."""
    try:
        return read_current(source, key)
    except NotFound:
        return "", b""
    except PenstockError:
        return "", None


def read_current(source: Source, key: str) -> tuple[str, bytes]:
    """Return the ETag and the bytes of a manifest, or of torch's metadata: two requests.

    If the object is replaced between the two requests, both are sent again, at most nine times in total; then, or if
    the store reports two ETags for one version, ``Changed``. Of an object larger than a manifest may be, only the first
    ``MOST_BYTES + 1`` bytes are returned.
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


_LOG = logging.getLogger("penstock")

# Files that mark a folder as a checkpoint: Penstock's, torch's (Lightning's FSDP writes it too), DeepSpeed's.
_MARKS = (MANIFEST, METADATA)
_DATA = re.compile(
    r"([0-9a-f]{32}/([0-9a-f]{2}/)?)?([0-9]+\.data|penstock\.index|__[0-9]+_[0-9]+\.distcp|state\.pt)"
    r"|__[0-9]+\.metadata|[^/]+\.distcp|checkpoint/[^/]*rank_[0-9]+[^/]*_states\.pt"
)
# Further checkpoint files of a folder that holds a checkpoint.
_BESIDE = re.compile(r"meta\.pt|latest|zero_to_fp32\.py")
# Named in Penstock's manifests. Matched only beside a manifest: other programs may use such folder names too.
_NAMED = re.compile(r"[0-9a-f]{32}/.+", re.DOTALL)


def told_apart(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the files of a checkpoint in a folder (marks first), and all other files; relative paths."""
    kinds = (_DATA, _BESIDE, _NAMED) if MANIFEST in names else (_DATA, _BESIDE)
    if not any(name in _MARKS or _DATA.fullmatch(name) for name in names):
        return [], list(names)
    made = [name for name in names if name in _MARKS or any(kind.fullmatch(name) for kind in kinds)]
    others = sorted(set(names) - set(made))
    return sorted(made, key=lambda name: name not in _MARKS), others


def remove(url: str | os.PathLike[str], store: StoreOptions | str | None) -> None:
    """Delete a checkpoint: an object, a link, or the checkpoint files of a folder.

    A missing one is not an error. In a folder the files that mark it as a checkpoint are deleted first. Other files
    stay, and a warning reports them. Costs a listing and a request for each object.
    """
    location = parse(url)
    check_deletable(location)
    source, key = open_source(url, store)
    key = key.rstrip("/")
    path = f"/{key}" if location.local else ""
    if (path and not os.path.isdir(path)) or os.path.islink(path):  # noqa: PTH112, PTH114  pathlib changes names
        source.delete([key])
        return
    names = [each.key.removeprefix(f"{key}/") for page in source.pages(f"{key}/") for each in page.entries]
    made, others = told_apart(names)
    if others and not made and (path or source.stat_existing([key]) == [None]):
        raise Unusable(
            f"cannot delete: the folder is not a checkpoint, it contains {others[0]!r}; nothing was deleted",
            url=source.url(key),
        )
    marks = [name for name in made if name in _MARKS]
    # Marks first: no reader ever finds a checkpoint whose objects are gone.
    source.delete([f"{key}/{name}" for name in marks])
    source.delete([f"{key}/{name}" for name in made if name not in _MARKS])
    if path:
        _remove_empty(path)
    else:
        source.delete([key])
    if others:
        _LOG.warning(
            "%s was kept: %d files in it are not of a checkpoint, such as %r", source.url(key), len(others), others[0]
        )


def _remove_empty(path: str) -> None:
    for at, _, _ in os.walk(path, topdown=False):
        with suppress(OSError):
            os.rmdir(at)  # noqa: PTH106  as above
