"""Sends the one request that makes an object visible, and finds out what came of it where the answer does not say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from penstock.buffer import flat
from penstock.errors import (
    AlreadyExists,
    Changed,
    ChecksumMismatch,
    Conflict,
    Damaged,
    NotFound,
    PenstockError,
    PreconditionFailed,
    Transient,
    Unusable,
)
from penstock.events import Committed, emit, listening, operation
from penstock.fetch.reading.batch import read_many
from penstock.protocols.driver import Payload, Put
from penstock.support import require
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.fetch.fetcher import Fetcher
    from penstock.protocols.driver import Attributes, ConditionForm, Digest
    from penstock.protocols.exchange import Exchange
    from penstock.values import ObjectMeta

__all__ = ["Publication", "check_metadata", "marked", "payload", "publish", "put", "single"]

_MARK = "penstockwrite"  # metadata that tells our object from another's when the answer to a commit is lost


def marked(attributes: Attributes) -> Attributes:
    """Return the attributes with a mark that no other write has."""
    return replace(attributes, metadata={**attributes.metadata, _MARK: uuid4().hex})


def check_metadata(fetcher: Fetcher, key: str, attributes: Attributes) -> None:
    """Refuse more user metadata than the store takes, before anything is sent: ``Unusable``."""
    if not attributes.metadata:
        return
    size, most = sum(len(f"{name}{value}".encode()) for name, value in attributes.metadata.items()), fetcher.limits
    if size > most.metadata_bytes:
        message = f"metadata of {size} bytes, names and values together: this store takes {most.metadata_bytes}"
        raise Unusable(message, url=fetcher.driver.url(key))


def payload(fetcher: Fetcher, data: bytes | bytearray | memoryview) -> Payload:
    """Return the body of a PUT with its digest, where the store looks at it."""
    view, abilities = flat(data), fetcher.driver.abilities
    return Payload(view, _digest_of(view, abilities.put_digest or abilities.digest))


def _digest_of(data: bytes | memoryview, begin: Callable[[], Digest] | None) -> str:
    if begin is None:
        return ""
    digest = begin()
    digest.update(data)
    return digest.hexdigest()


def put(fetcher: Fetcher, key: str, data: bytes | bytearray | memoryview, attributes: Attributes) -> str:
    """Write one small object in one request; returns its ETag."""
    body = single(fetcher, key, data, attributes)
    with operation("put", fetcher.driver.url, key):
        etag = fetcher.run(partial(require(fetcher.driver, Put, key).put, key, body, attributes))
    if listening():
        emit(Committed(fetcher.driver.url(key), len(body.data), etag))
    return etag


def single(fetcher: Fetcher, key: str, data: bytes | bytearray | memoryview, attributes: Attributes) -> Payload:
    """Return the body of one PUT, if the store takes that much in one: ``Unusable`` where it does not."""
    check_metadata(fetcher, key, attributes)
    body, most = payload(fetcher, data), fetcher.limits.put_bytes
    if len(body.data) > most:
        message = f"{len(body.data)} bytes in one request: this store takes {most}, write more with open(url, 'wb')"
        raise Unusable(message, url=fetcher.driver.url(key))
    return body


def publish(fetcher: Fetcher, key: str, data: bytes | bytearray | memoryview, attributes: Attributes) -> ObjectMeta:
    """Write one object in a single PUT, whatever its size, as ``attributes`` allow it; returns what is there then.

    Raises:
        AlreadyExists: There is one, and only a new one was to be written.
        PreconditionFailed: The version that was to be replaced is not there.
        Changed: It was written, and has been replaced by another writer's since.
        Damaged: What is there is not what was written.

    """
    body = single(fetcher, key, data, attributes)
    attributes = marked(attributes)
    pieces = ((len(body.data), body.digest),)
    verb = require(fetcher.driver, Put, key).put
    with operation("publish", fetcher.driver.url, key):
        found = Publication(fetcher, key, pieces, attributes).send(partial(verb, key, body, attributes))
    if listening():
        emit(Committed(fetcher.driver.url(key), found.size, found.etag))
    return found


@dataclass(frozen=True, slots=True)
class Publication:
    """An object about to be visible under ``key``, with the mark in its attributes.

    ``pieces`` are size and digest (empty where the store takes none) of what it is made of, in order.
    """

    fetcher: Fetcher
    key: str
    pieces: Sequence[tuple[int, str]]
    attributes: Attributes

    def send(self, make: partial[Exchange[str]]) -> ObjectMeta:
        """Look whether the condition holds, if there is one; send the request; compare what is there then.

        The look is there for stores that ignore conditions: there it is all there is, and two writers within a moment
        may both find it well. The one whose object did not stay is told so (``Changed``), unless it had compared before
        the other came. What is there then must have the size, and our mark or the ETag that the write was answered
        with. Where it has neither (some stores keep no metadata and give an object another ETag later) it is read back;
        for a write on a condition only if it bears no mark at all: another writer's mark says whose it is. Without
        marks another writer's object of the very same bytes counts as ours, for nothing tells them apart.
        """
        self._look()
        etag = self._settled(make)
        found = self._head()
        # A store that keeps no metadata (local files) names the ETag of what was written.
        ours = self._is_ours(found) or bool(etag and found.etag == etag)
        size = sum(size for size, _ in self.pieces)
        if self._conditional and not ours:
            ours = found.size == size and _MARK not in found.metadata and self._reads_back(found)
            if not ours:
                raise Changed("it was written, and another writer's object stands in its place by now", url=self._url)
        if found.size != size or not (ours or self._is_unnamed(etag, found) or self._reads_back(found)):
            shown = f"{found.size} bytes (ETag {found.etag})"
            message = f"wrote {size} bytes (ETag {etag}), the store shows {shown}: another writer, or damage"
            raise Damaged(message, url=self._url)
        return found

    def _is_unnamed(self, etag: str, found: ObjectMeta) -> bool:
        """Say whether ETags tell nothing: there are none, or this store is known to give an object two."""
        return not (etag and found.etag and self.fetcher.driver.abilities.tags)

    def _reads_back(self, found: ObjectMeta) -> bool:
        """Say whether the object is what was written, piece by piece; a store where this decides is asked once."""
        start = 0
        for size, digest in self.pieces:
            span = Span(self.key, start, start + size, found.etag)
            there = _digest_of(self._read(span), self.fetcher.driver.abilities.digest) if digest else ""
            if not there or not (digest.startswith(there) or there.startswith(digest)):  # one may have more behind it
                return False
            start += size
        driver = self.fetcher.driver
        driver.abilities = replace(driver.abilities, tags=False)
        return True

    def _read(self, span: Span) -> bytes:
        try:
            return read_many(self.fetcher, (span,))[0] if span.stop != span.start else b""
        except (Changed, Damaged, NotFound):  # it is another one by now
            return b""

    def _settled(self, make: partial[Exchange[str]]) -> str:
        """Send until it is known what came of it; returns the ETag, empty where only the mark tells.

        The answer may be lost, or unreadable, while the request took effect: then the object bears our mark, whatever a
        further attempt was told. (An upload that is gone is NoSuchUpload on S3 and a 500 on Ceph 16; and on a kept
        connection that died libcurl sends again by itself, so the first attempt we know of need not be the first.)
        """
        driver, before, tried = self.fetcher.driver, self.fetcher.driver.abilities, set()
        while True:
            try:
                return self.fetcher.run(make)
            except (AlreadyExists, PreconditionFailed, Damaged, NotFound, Transient, Unusable) as error:
                unnoticed = isinstance(error, ChecksumMismatch) and not error.code  # it is there, and is damaged
                if not unnoticed and self._bears_our_mark():
                    return ""
                tried.add(driver.abilities.form)
                other = self._other(error)
                if not self._conditional or other in tried:
                    if len(tried) > 1:  # none of them was what it wanted
                        driver.abilities = replace(driver.abilities, form=before.form)
                    raise
            self._look()  # raises what is really the matter, if it is not how the condition is said
            driver.abilities = replace(driver.abilities, form=other)

    def _other(self, error: PenstockError) -> ConditionForm:
        """Return in which other form the condition may be said, after a refusal; the same one where that is not why."""
        abilities = self.fetcher.driver.abilities
        said, other = abilities.form, abilities.form
        if error.code == "NotImplemented":
            other = "none"
        elif isinstance(error, PreconditionFailed) and said != "none":
            other = "bare" if said == "usual" else "usual"
        return other if other in abilities.forms else said

    def _look(self) -> None:
        """Raise ``AlreadyExists`` or ``PreconditionFailed`` where the condition does not hold now."""
        if not self._conditional:
            return
        try:
            etag = self._head().etag
        except NotFound:
            if self.attributes.create_only:
                return
            raise self._beaten("there is no object, and only an existing one was to be replaced") from None
        if self.attributes.create_only:
            raise self._beaten("there is an object already, and only a new one was to be written")
        if etag != self.attributes.replaces:
            raise self._beaten("the object is no longer the one that was to be replaced")

    def _beaten(self, message: str) -> Conflict:
        return (AlreadyExists if self.attributes.create_only else PreconditionFailed)(message, url=self._url)

    def _bears_our_mark(self) -> bool:
        try:
            return self._is_ours(self._head())
        except PenstockError:
            return False

    def _is_ours(self, found: ObjectMeta) -> bool:
        return found.metadata.get(_MARK) == self.attributes.metadata[_MARK]

    def _head(self) -> ObjectMeta:
        return self.fetcher.run(partial(self.fetcher.driver.head, self.key))

    @property
    def _conditional(self) -> bool:
        return self.attributes.create_only or bool(self.attributes.replaces)

    @property
    def _url(self) -> str:
        return self.fetcher.driver.url(self.key)
