"""Publication of an object: the request that makes it visible, and the check of its outcome."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import quote
from uuid import uuid4

from penstock.engine.contracts.driver import STAGED, Delete, Move, Put
from penstock.engine.fetch.fetcher import digest_payload
from penstock.engine.read.reader import read_many
from penstock.engine.support import require, supports
from penstock.engine.waiting import Inbox
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
from penstock.values import MARK, Span, marked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.contracts.driver import Attributes, ConditionForm
    from penstock.engine.contracts.exchange import Exchange
    from penstock.engine.fetch.fetcher import Fetcher
    from penstock.values import ObjectMeta


def put(fetcher: Fetcher, key: str, data: bytes | bytearray | memoryview, attributes: Attributes) -> str:
    """Write one small object in one request; return its ETag."""
    body = fetcher.body_of_put(key, data, attributes)
    with operation("put", fetcher.driver.url, key):
        etag = fetcher.run(partial(require(fetcher.driver, Put, key).put, key, body, attributes))
    if listening():
        emit(Committed(fetcher.driver.url(key), len(body.data), etag))
    return etag


def publish(fetcher: Fetcher, key: str, data: bytes | bytearray | memoryview, attributes: Attributes) -> ObjectMeta:
    """Write one object in a single PUT of any size; return its metadata. Raises as ``Publication.send``."""
    body = fetcher.body_of_put(key, data, attributes)
    attributes = replace(attributes, metadata=marked(attributes.metadata))
    pieces = ((len(body.data), body.digest),)
    verb = require(fetcher.driver, Put, key).put
    with operation("publish", fetcher.driver.url, key):
        found = Publication(fetcher, key, pieces, attributes).send(partial(verb, key, body, attributes))
    if listening():
        emit(Committed(fetcher.driver.url(key), found.size, found.etag))
    return found


@dataclass(frozen=True, slots=True)
class Publication:
    """An object about to appear under ``key``, with the mark in its attributes.

    ``pieces`` are size and digest (empty if the store takes none) of its parts, in order.
    """

    fetcher: Fetcher
    key: str
    pieces: Sequence[tuple[int, str]]
    attributes: Attributes

    def send(self, make: partial[Exchange[str]]) -> ObjectMeta:
        """Check the condition, if there is one; send the request; compare the resulting object.

        On stores that ignore conditions the first check is the only guard, and two writers within a moment may both
        pass it. The writer whose object did not stay gets ``Changed``, unless it compared before the other wrote. The
        object there must have the size, and our mark or the ETag from the response to the write. If it has neither
        (some stores keep no metadata and give an object another ETag later), it is read back. A conditional write reads
        it back only if it has no mark at all, because the mark of another writer shows whose it is. Without marks,
        another writer's object of the very same bytes counts as ours, because nothing distinguishes them.
        """
        self._look()
        etag = self._settled(make)
        try:
            found = self._head()
        except NotFound as error:
            raise Changed("the object was written, but another writer has deleted it", url=self._url) from error
        # A store that keeps no metadata (local files) returns the ETag of the bytes that were written.
        ours = self._is_ours(found) or bool(etag and found.etag == etag)
        size = sum(size for size, _ in self.pieces)
        if self._conditional and not ours:
            ours = found.size == size and MARK not in found.metadata and self._reads_back(found)
            if not ours:
                raise Changed("the object was written, but another writer has replaced it", url=self._url)
        if found.size != size or not (ours or self._is_unnamed(etag, found) or self._reads_back(found)):
            shown = f"{found.size} bytes (ETag {found.etag})"
            message = f"wrote {size} bytes (ETag {etag}), but the store reports {shown}: another writer, or damage"
            raise Damaged(message, url=self._url)
        return found

    def _is_unnamed(self, etag: str, found: ObjectMeta) -> bool:
        return not (etag and found.etag and self.fetcher.driver.abilities.tags)

    def _reads_back(self, found: ObjectMeta) -> bool:
        """Return whether the object matches the written pieces; done once for a store where this decides."""
        start = 0
        for size, digest in self.pieces:
            span = Span(self.key, start, start + size, found.etag)
            there = digest_payload(self._read(span), self.fetcher.driver.abilities.digest).digest if digest else ""
            # One of the digests may be longer than the other.
            if not there or not (digest.startswith(there) or there.startswith(digest)):
                return False
            start += size
        driver = self.fetcher.driver
        driver.abilities = replace(driver.abilities, tags=False)
        return True

    def _read(self, span: Span) -> bytes:
        try:
            return read_many(self.fetcher, (span,))[0] if span.stop != span.start else b""
        except (Changed, Damaged, NotFound):
            # The object was replaced meanwhile.
            return b""

    def _settled(self, make: partial[Exchange[str]]) -> str:
        """Send until the outcome is known; return the ETag, or an empty string if only the mark shows it.

        The response may be lost, or unreadable, although the request took effect. Then the object has our mark,
        whatever the response to a further attempt was. (For an upload that no longer exists, S3 answers NoSuchUpload
        and Ceph 16 a 500. On a kept-alive connection that died, libcurl sends again by itself, so the first attempt
        that we know of need not be the first.)
        """
        driver, before, tried = self.fetcher.driver, self.fetcher.driver.abilities, set()
        began = monotonic()
        while True:
            try:
                return self.fetcher.run(make)
            except (AlreadyExists, PreconditionFailed, Damaged, NotFound, Transient, Unusable) as error:
                unnoticed = isinstance(error, ChecksumMismatch) and not error.code  # it is there, but damaged
                if not unnoticed and self._bears_our_mark(error, self.fetcher.left_s(began)):
                    return ""
                tried.add(driver.abilities.form)
                other = self._other(error)
                if not self._conditional or other in tried:
                    if len(tried) > 1:
                        # The store accepted none of the forms.
                        driver.abilities = replace(driver.abilities, form=before.form)
                    raise
            # Raises the real error, unless the form of the condition is the cause.
            self._look()
            driver.abilities = replace(driver.abilities, form=other)

    def _other(self, error: PenstockError) -> ConditionForm:
        abilities = self.fetcher.driver.abilities
        said, other = abilities.form, abilities.form
        if error.code == "NotImplemented":
            other = "none"
        elif isinstance(error, PreconditionFailed) and said != "none":
            other = "bare" if said == "usual" else "usual"
        return other if other in abilities.forms else said

    def _look(self) -> None:
        """Raise ``AlreadyExists`` or ``PreconditionFailed`` if the condition does not hold now."""
        if not self._conditional:
            return
        try:
            etag = self._head().etag
        except NotFound:
            if self.attributes.create_only:
                return
            raise self._beaten("cannot replace: the object does not exist") from None
        if self.attributes.create_only:
            raise self._beaten("cannot create: the object exists already")
        if etag != self.attributes.replaces:
            raise self._beaten("cannot replace: the object has changed since its ETag was read")

    def _beaten(self, message: str) -> Conflict:
        return (AlreadyExists if self.attributes.create_only else PreconditionFailed)(message, url=self._url)

    def _bears_our_mark(self, error: PenstockError, limit_s: float) -> bool:
        try:
            return self._is_ours(self._head(limit_s))
        except Transient as unknown:
            if isinstance(error, Transient):
                return False
            # The write may have taken effect, and ``error`` may be the answer to its repetition.
            raise unknown from error
        except PenstockError:
            return False

    def _is_ours(self, found: ObjectMeta) -> bool:
        return found.metadata.get(MARK) == self.attributes.metadata[MARK]

    def _head(self, limit_s: float = inf) -> ObjectMeta:
        return self.fetcher.run(partial(self.fetcher.driver.head, self.key), limit_s)

    @property
    def _conditional(self) -> bool:
        return self.attributes.create_only or bool(self.attributes.replaces)

    @property
    def _url(self) -> str:
        return self.fetcher.driver.url(self.key)


# Neither a published object nor an error on its way out needs to wait longer for this deletion.
_DELETE_S = 5.0


def needs_staging(fetcher: Fetcher, attributes: Attributes) -> bool:
    """Return whether the store honours the condition of such a write only in a move, not at a completion."""
    heeded = fetcher.driver.abilities.complete
    unmet = (attributes.create_only and not heeded.create) or (bool(attributes.replaces) and not heeded.replace)
    return unmet and supports(fetcher.driver, Move)


def staging_key(key: str, most_bytes: int) -> str:
    """Return a new key below ``STAGED`` that contains ``key``, unless it would have more than ``most_bytes``.

    ``key`` is escaped: no folder is made for it, and a prefix finds the objects that wait for keys with it.
    """
    token = uuid4().hex
    named = f"{STAGED}{quote(key, safe='')}.{token}"
    return named if len(named) <= most_bytes else f"{STAGED}{token}"


def unconditional(attributes: Attributes) -> Attributes:
    """Return the attributes, without conditions, for the object that waits to be moved."""
    return replace(attributes, create_only=False, replaces="")


def publish_staged(staged: Publication, final: Publication, complete: partial[Exchange[str]]) -> ObjectMeta:
    """Complete the upload at the key of ``staged``, and move the object to that of ``final`` on its condition.

    Takes six requests: two that complete and compare, three that look, move and compare, one that deletes what a move
    may leave. Whatever goes wrong, nothing is left at the key of ``staged``, if the store can be reached. A process
    that is killed in between leaves an object there, which listings do not show: it counts as an unfinished upload.
    """
    driver, wanted = final.fetcher.driver, final.attributes
    failure: BaseException | None = None
    try:
        there = staged.send(complete)
        move = require(driver, Move, final.key).move
        new, old = wanted.create_only, wanted.replaces
        return final.send(partial(move, staged.key, final.key, there.etag, create_only=new, replaces=old))
    except BaseException as error:
        failure = error
        raise
    finally:
        _discard(staged, failure)


def _discard(staged: Publication, failure: BaseException | None) -> None:
    fetcher, key = staged.fetcher, staged.key
    with suppress(PenstockError):
        deleting = fetcher.operation(partial(require(fetcher.driver, Delete, key).delete, key), Inbox())
        fetcher.send((deleting,))
        deleting.wait(fetcher.grace_s(failure, _DELETE_S))
