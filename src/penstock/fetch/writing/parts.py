"""A multipart upload: begun with the first part, so many bytes on their way, and what came of each."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from sys import maxsize
from typing import TYPE_CHECKING, TypeVar

from penstock.budget import Budget
from penstock.errors import PenstockError
from penstock.events import PartSent, emit, listening
from penstock.fetch.plan import part_bytes
from penstock.fetch.writing.publish import Publication
from penstock.fetch.writing.staging import needs_staging, publish_staged, staging_key, unconditional
from penstock.protocols.driver import Multipart, Part
from penstock.support import require
from penstock.waiting import Inbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.fetch.fetcher import Fetcher
    from penstock.fetch.operation import Operation
    from penstock.options import WriteOptions
    from penstock.protocols.driver import Attributes
    from penstock.protocols.exchange import Exchange
    from penstock.values import ObjectMeta

__all__ = ["Parts"]

B = TypeVar("B")


@dataclass(slots=True, eq=False)
class _Sent:
    """A part on its way, and the buffer it is sent from."""

    part: Part
    buffer: bytearray
    size_bytes: int
    operation: Operation[str]


class Parts:
    """The parts of one object. One thread at a time uses it; ``call_off`` is for any thread.

    Attributes:
        upload: What the store calls the upload; empty before the first part.
        key: Where the parts go.
        etags: Of the parts, in order; empty while a part is on its way.
        pieces: Sizes and digests of the parts, in order.
        free: Buffers of parts that were sent.

    """

    def __init__(self, fetcher: Fetcher, key: str, options: WriteOptions, attributes: Attributes) -> None:
        """Begin with no part; nothing is sent."""
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
        """Begin the upload, if need be: one request."""
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
        """Send the next part on its way: ``piece`` is its size and digest, ``buffer`` the memory that it occupies."""
        size_bytes, _ = piece
        part = Part(len(self.etags) + 1, self._offset)
        operation = self._fetcher.operation(partial(verb, self.key, self.upload, part, body), self._inbox)
        self._sent.append(_Sent(part, buffer, size_bytes, operation))
        self.pieces.append(piece)
        self.etags.append("")
        self._offset += size_bytes
        self._fetcher.send((operation,))

    def buffer(self, size: int) -> bytearray:
        """Return a buffer of ``size``; waits for a part when as many bytes as allowed are in flight.

        Two are always allowed, one that is filled and one on its way, whatever other processes of the machine hold.
        """
        self._collect(block=False)
        while self._held_bytes() + size > max(self._window.bytes_limit, 2 * size):
            self._collect(block=True)
        self.free = [buffer for buffer in self.free if len(buffer) == size]  # others are those of earlier parts
        found = self.free.pop() if self.free else bytearray(size)  # used last, and still in the processor's caches
        room = max(self._window.bytes_limit, 2 * size) - self._held_bytes() - size
        del self.free[: max(0, len(self.free) - max(0, room) // size)]
        return found

    def settle(self, at_once: int = 0) -> None:
        """Wait until at most ``at_once`` parts are on their way. Raises what went wrong with one."""
        while len(self._sent) > at_once:
            self._collect(block=True)

    def publish(self, attributes: Attributes) -> ObjectMeta:
        """Make the object of the parts visible, once all of them are there; no memory of theirs is kept meanwhile."""
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
        """Cancel the parts that are on their way; a thread that waits for one wakes up."""
        self._fetcher.call_off([sent.operation for sent in list(self._sent)])

    def abort(self) -> Operation[None] | None:
        """Have the store forget the upload; waits for nothing. Returns the request, if there is one."""
        if self.upload:
            # In this order: a part that lands after the abort would stay for ever.
            self.call_off()
            # The upload is invisible either way, and what led here is the error to raise.
            with suppress(PenstockError):
                abort = require(self._fetcher.driver, Multipart, self.key).abort
                leaving = self._fetcher.operation(partial(abort, self.key, self.upload), Inbox())
                self._fetcher.send((leaving,))
                return leaving
        return None

    def _held_bytes(self) -> int:
        return sum(len(sent.buffer) for sent in self._sent)

    def _collect(self, *, block: bool) -> None:
        """Take the parts that are done, and keep their buffers. Raises what went wrong with one."""
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
