"""Multipart upload: begins with the first part, sends parts within a byte budget, and collects their results."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from sys import maxsize
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote
from uuid import uuid4

from penstock.engine.budget import Budget
from penstock.engine.contracts.driver import STAGED, Delete, Move, Multipart, Part
from penstock.engine.fetch.plan import part_bytes
from penstock.engine.support import require, supports
from penstock.engine.waiting import Inbox
from penstock.engine.write.publish import Publication
from penstock.errors import PenstockError
from penstock.events import PartSent, emit, listening

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.engine.contracts.driver import Attributes
    from penstock.engine.contracts.exchange import Exchange
    from penstock.engine.fetch.fetcher import Fetcher
    from penstock.engine.fetch.operation import Operation
    from penstock.options import WriteOptions
    from penstock.values import ObjectMeta

__all__ = ["Parts", "needs_staging", "staging_key"]

B = TypeVar("B")


@dataclass(slots=True, eq=False)
class _Sent:
    """A part in flight, and the buffer that it is sent from."""

    part: Part
    buffer: bytearray
    size_bytes: int
    operation: Operation[str]


class Parts:
    """Parts of one object. One thread at a time uses an instance; ``call_off`` is for any thread.

    Attributes:
        upload: The store's identifier of the upload; empty before the first part.
        key: Key that the parts are sent to.
        etags: ETags of the parts, in order; empty while a part is in flight.
        pieces: Sizes and digests of the parts, in order.
        free: Buffers of parts that were sent.

    """

    def __init__(self, fetcher: Fetcher, key: str, options: WriteOptions, attributes: Attributes) -> None:
        """Start without parts; nothing is sent."""
        self.upload = ""
        self.key = key
        self.etags: list[str] = []
        self.pieces: list[tuple[int, str]] = []
        self.free: list[bytearray] = []
        self._fetcher = fetcher
        self._object = key
        self._options = options
        self._attributes = attributes
        self._window = Budget(options.buffer_bytes, maxsize)
        self._offset = 0
        self._sent: list[_Sent] = []
        self._inbox = Inbox()

    def next_bytes(self) -> int:
        """Return the size of the next part."""
        return part_bytes(len(self.etags) + 1, self._options.part_bytes, self._fetcher.limits)

    def begin(self) -> None:
        """Begin the upload with one request, unless it has begun."""
        if not self.upload:
            create, attributes = require(self._fetcher.driver, Multipart, self.key).create, self._attributes
            if needs_staging(self._fetcher, attributes):
                self.key = staging_key(self.key, self._fetcher.limits.key_bytes)
                attributes = unconditional(attributes)
            self.upload = self._fetcher.run(partial(create, self.key, attributes))
            self._fetcher.hold(self._window)

    def send(
        self, buffer: bytearray, piece: tuple[int, str], verb: Callable[[str, str, Part, B], Exchange[str]], body: B
    ) -> None:
        """Send the next part: ``piece`` is its size and digest, ``buffer`` the memory that it occupies."""
        size_bytes, _ = piece
        part = Part(len(self.etags) + 1, self._offset)
        operation = self._fetcher.operation(partial(verb, self.key, self.upload, part, body), self._inbox)
        self._sent.append(_Sent(part, buffer, size_bytes, operation))
        self.pieces.append(piece)
        self.etags.append("")
        self._offset += size_bytes
        self._fetcher.send((operation,))

    def buffer(self, size: int) -> bytearray:
        """Return a buffer of ``size`` bytes; wait for a part while as many bytes as allowed are in flight.

        Two buffers are always allowed, one to fill and one in flight, whatever other processes of the machine hold.
        """
        self._collect(block=False)
        while self._held_bytes() + size > max(self._window.bytes_limit, 2 * size):
            self._collect(block=True)
        # Buffers of other sizes belong to earlier parts.
        self.free = [buffer for buffer in self.free if len(buffer) == size]
        # The buffer that was used last is still in the processor's caches.
        found = self.free.pop() if self.free else bytearray(size)
        room = max(self._window.bytes_limit, 2 * size) - self._held_bytes() - size
        del self.free[: max(0, len(self.free) - max(0, room) // size)]
        return found

    def settle(self, at_once: int = 0) -> None:
        """Wait until at most ``at_once`` parts are in flight; raise the error of a part that failed."""
        while len(self._sent) > at_once:
            self._collect(block=True)

    def publish(self, attributes: Attributes) -> ObjectMeta:
        """Make the object visible, once all its parts are there; their free buffers are released first."""
        self.free.clear()
        fetcher, key = self._fetcher, self._object
        publication = Publication(fetcher, key, self.pieces, attributes)
        complete = require(fetcher.driver, Multipart, key).complete
        if self.key != key:
            staged = replace(publication, key=self.key, attributes=unconditional(attributes))
            return publish_staged(staged, publication, partial(complete, self.key, self.upload, self.etags))
        new, old = attributes.create_only, attributes.replaces
        return publication.send(partial(complete, key, self.upload, self.etags, create_only=new, replaces=old))

    def call_off(self) -> None:
        """Cancel the parts in flight; a thread that waits for one wakes up."""
        self._fetcher.call_off([sent.operation for sent in list(self._sent)])

    def abort(self) -> Operation[None] | None:
        """Ask the store to discard the upload, without waiting; return the request, if there is one."""
        if self.upload:
            # In this order: a part that arrives after the abort would stay forever.
            self.call_off()
            # The upload is invisible either way, and the error that led here is the one to raise.
            with suppress(PenstockError):
                abort = require(self._fetcher.driver, Multipart, self.key).abort
                leaving = self._fetcher.operation(partial(abort, self.key, self.upload), Inbox())
                self._fetcher.send((leaving,))
                return leaving
        return None

    def _held_bytes(self) -> int:
        return sum(len(sent.buffer) for sent in self._sent)

    def _collect(self, *, block: bool) -> None:
        """Take the parts that are done, and keep their buffers; raise the error of a part that failed."""
        if block and self._sent:
            self._inbox.wait_any([sent.operation for sent in self._sent])
        done = [sent for sent in self._sent if sent.operation.complete]
        self._sent = [sent for sent in self._sent if sent not in done]
        for sent in done:
            self.etags[sent.part.number - 1] = sent.operation.result()
            if listening():
                emit(PartSent(self._fetcher.driver.url(self._object), sent.part.number, sent.size_bytes))
            if sent.buffer:
                self.free.append(sent.buffer)


# Neither a published object nor an error on its way out needs to wait longer for this deletion.
_DELETE_S = 5.0


def needs_staging(fetcher: Fetcher, attributes: Attributes) -> bool:
    """Return whether the store honours the condition of such a write only in a move, not at a completion."""
    heeded = fetcher.driver.abilities.complete
    unmet = (attributes.create_only and not heeded.create) or (bool(attributes.replaces) and not heeded.replace)
    return unmet and supports(fetcher.driver, Move)


def staging_key(key: str, most_bytes: int) -> str:
    """Return a new key below ``STAGED`` that contains ``key``, unless it would have more than ``most_bytes``.

    ``key`` is escaped, so that no folder is made for it, and so that a prefix finds the objects that wait for keys with
    it.
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

    Raises:
        PenstockError: As in ``Publication.send``.

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
