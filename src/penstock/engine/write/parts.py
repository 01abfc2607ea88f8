"""Parts of one object: filled and digested, cut to size, sent within a budget of memory, and joined at the end.

One thread at a time uses an upload's ``Parts``: its ``Writer`` takes turns.
"""

from __future__ import annotations

from _thread import start_new_thread
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from sys import maxsize
from typing import TYPE_CHECKING, TypeVar

from penstock.engine.budget import Budget
from penstock.engine.contracts.driver import Multipart, Payload, UploadPart
from penstock.engine.fetch.fetcher import digest_payload
from penstock.engine.node.member import processors
from penstock.engine.support import require
from penstock.engine.waiting import Inbox, Wakeup, serve
from penstock.engine.write.publish import (
    Publication,
    needs_staging,
    publish_staged,
    staging_key,
    unconditional,
)
from penstock.errors import PenstockError, Unusable
from penstock.events import PartSent, emit, listening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.engine.contracts.driver import Attributes, Digest, Limits
    from penstock.engine.contracts.exchange import Exchange
    from penstock.engine.fetch.fetcher import Fetcher
    from penstock.engine.operations.operation import VerbOperation
    from penstock.options import WriteOptions
    from penstock.values import ObjectMeta

B = TypeVar("B")

# A buffer that is not used again doubles from here: most objects are small, and 16 MiB cost 5 ms to clear.
_FIRST_BYTES = 64 << 10
# CPU seconds for copying and digesting 1 GiB (Xeon with SHA extensions, 2 MiB of L2): 0.79 in pieces of 512 KiB, 0.75
# of 256 KiB, 0.77 of 128 KiB, 0.84 of 1 MiB, 1.13 when 16 MiB are copied first. If the same pieces are then digested
# for other purposes (a seal, a zip's checksum): 0.95 with 512 KiB and 0.80 with 256 KiB. hashlib releases the GIL once
# per piece.
_PIECE_BYTES = 256 << 10


class PartBuffer:
    """A buffer that is filled step by step, and the digest of its bytes if the store takes one.

    Its memory must not change after ``payload`` was called, until the payload is sent.
    """

    __slots__ = ("_digested", "_state", "buffer", "size")

    def __init__(self, buffer: bytearray, digest: Callable[[], Digest] | None) -> None:
        self.buffer = buffer
        self.size = 0
        self._digested = 0
        self._state = digest() if digest is not None else None

    @property
    def full(self) -> bool:
        return self.size == len(self.buffer)

    def doubled(self, most_bytes: int) -> int:
        return min(2 * len(self.buffer) or _FIRST_BYTES, most_bytes)

    def grow(self, most_bytes: int) -> None:
        """Double the buffer, up to ``most_bytes``. Raises BufferError once ``payload`` was called."""
        self.buffer.extend(bytes(self.doubled(most_bytes) - len(self.buffer)))

    def take(self, data: memoryview) -> int:
        """Copy from the start of ``data``, a view of bytes, until the buffer is full; return how many bytes."""
        taken = 0
        while taken < len(data) and not self.full:
            piece = data[taken : taken + min(len(self.buffer), self._digested + _PIECE_BYTES) - self.size]
            # Through a view: assigning anything but a bytearray to a bytearray first copies it into a new one.
            memoryview(self.buffer)[self.size : self.size + len(piece)] = piece
            self.size += len(piece)
            taken += len(piece)
            if self.size - self._digested == _PIECE_BYTES:
                self._digest()
        return taken

    def payload(self) -> Payload:
        self._digest()
        return Payload(memoryview(self.buffer)[: self.size], self._state.hexdigest() if self._state else "")

    def _digest(self) -> None:
        if self._state is not None:
            self._state.update(memoryview(self.buffer)[self._digested : self.size])
        self._digested = self.size


# Threads that digest the parts of one block. SHA-256 takes longer than all else that is done for a part.
_DIGESTERS = 4


def digested_ahead(views: Sequence[memoryview], begin: Callable[[], Digest] | None) -> Iterator[Payload]:
    """Yield views with their digests, in order; threads, which end with the last view, digest later views meanwhile."""
    turns = iter(range(len(views)))  # shared: Python code gets each number once
    done: dict[int, Payload | None] = {}
    ready = Wakeup()

    def digest() -> None:
        serve()
        for number in turns:
            try:
                done[number] = digest_payload(views[number], begin)
            except BaseException:  # noqa: BLE001  the caller's thread tries again, and raises it
                done[number] = None
            ready.set()

    try:
        if begin is not None:
            with suppress(RuntimeError):  # no more threads can be started
                for _ in range(min(_DIGESTERS, processors(), len(views)) - 1):
                    start_new_thread(digest, ())
        for number, view in enumerate(views):
            while number not in done:
                turn = next(turns, None)
                if turn is None:
                    ready.wait()
                else:
                    done[turn] = digest_payload(views[turn], begin)
            yield done.pop(number) or digest_payload(view, begin)
    finally:
        # Later views are of no use to anybody then.
        deque(turns, 0)


# Percentage of a store's parts that have one size. With 10 %, S3's 10,000 parts, beginning at 5 MiB, would hold 4.9
# TiB.
_PERCENT_PER_SIZE = 9


def part_bytes(number: int, first_bytes: int, limits: Limits) -> int:
    """Return the size of part ``number`` (from 1): it doubles every 9 % of ``most_parts``, if the store allows.

    With any first size, the 10,000 parts that S3 allows thus hold 5 TiB. ``Unusable`` beyond ``most_parts``.
    """
    if number > limits.most_parts:
        message = f"an upload has at most {limits.most_parts} parts here: pass a larger WriteOptions(part_bytes=…)"
        raise Unusable(message)
    # The first part may be the whole object, and be sent as a PUT.
    largest = min(limits.most_part_bytes, limits.put_bytes)
    if limits.equal_parts:
        return min(first_bytes, largest)
    doubled = (number - 1) // max(1, limits.most_parts * _PERCENT_PER_SIZE // 100)
    return min(first_bytes << min(doubled, largest.bit_length()), largest)


def cut(size_bytes: int, first_bytes: int, limits: Limits) -> Iterator[int]:
    """Yield the sizes of the parts of an object; the last one may be smaller. Raises the errors of ``part_bytes``."""
    number, left = 1, size_bytes
    while left > 0:
        size = min(left, part_bytes(number, first_bytes, limits))
        yield size
        number, left = number + 1, left - size


@dataclass(slots=True, eq=False)
class _Sent:
    """A part in flight, and the buffer that it is sent from."""

    part: UploadPart
    buffer: bytearray | bytes
    size_bytes: int
    operation: VerbOperation[str]


class Parts:
    """Parts of one object. One thread at a time uses an instance; ``call_off`` is for any thread.

    ``etags`` and ``pieces`` (sizes and digests) are in order; an ETag is empty while its part is in flight.
    """

    def __init__(self, fetcher: Fetcher, key: str, options: WriteOptions, attributes: Attributes) -> None:
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
        return part_bytes(len(self.etags) + 1, self._options.part_bytes, self._fetcher.limits)

    def views(self, block: bytes) -> list[memoryview]:
        views: list[memoryview] = []
        start, number = 0, len(self.etags) + 1
        while start < len(block):
            size = part_bytes(number + len(views), self._options.part_bytes, self._fetcher.limits)
            if start + size > len(block):
                break
            views.append(memoryview(block)[start : start + size])
            start += size
        return views

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
        self,
        buffer: bytearray | bytes,
        piece: tuple[int, str],
        verb: Callable[[str, str, UploadPart, B], Exchange[str]],
        body: B,
    ) -> None:
        """Send the next part: ``piece`` is its size and digest, ``buffer`` the memory that it occupies."""
        size_bytes, _ = piece
        part = UploadPart(len(self.etags) + 1, self._offset)
        operation = self._fetcher.operation(partial(verb, self.key, self.upload, part, body), self._inbox)
        self._sent.append(_Sent(part, buffer, size_bytes, operation))
        self.pieces.append(piece)
        self.etags.append("")
        self._offset += size_bytes
        self._fetcher.send((operation,))

    def buffer(self, size: int) -> bytearray:
        self.admit(size, size)
        # Buffers of other sizes belong to earlier parts.
        self.free = [buffer for buffer in self.free if len(buffer) == size]
        # The buffer that was used last is still in the processor's caches.
        found = self.free.pop() if self.free else bytearray(size)
        room = self.most_bytes(size) - self._held_bytes() - size
        del self.free[: max(0, len(self.free) - max(0, room) // size)]
        return found

    def most_bytes(self, size: int) -> int:
        """Return the bytes that may be held at once, in parts of ``size`` bytes.

        Two parts are always allowed, even if other processes use up the memory: one to fill and one in flight.
        """
        return max(self._window.bytes_limit, 2 * size)

    def admit(self, more_bytes: int, size: int) -> None:
        """Wait until ``more_bytes`` may be held in addition to parts of ``size`` bytes that are in flight."""
        self._collect(block=False)
        while self._held_bytes() + more_bytes > self.most_bytes(size):
            self._collect(block=True)

    def admit_view(self, size: int) -> None:
        """Wait until a part of ``size`` bytes in foreign memory may be in flight."""
        self._collect(block=False)
        while sum(sent.size_bytes for sent in self._sent) + size > self.most_bytes(size):
            self._collect(block=True)

    def settle(self, at_once: int = 0) -> None:
        """Wait until at most ``at_once`` parts are in flight; raise the error of a part that failed."""
        while len(self._sent) > at_once:
            self._collect(block=True)

    def publish(self, attributes: Attributes) -> ObjectMeta:
        """Make the object visible, once all its parts are stored; free buffers are released first."""
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
        self._fetcher.call_off([sent.operation for sent in list(self._sent)])

    def abort(self) -> VerbOperation[None] | None:
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
        # Several parts may be views of one object.
        return sum({id(sent.buffer): len(sent.buffer) for sent in self._sent}.values())

    def _collect(self, *, block: bool) -> None:
        """Collect the finished parts, and keep their buffers; raise the error of a part that failed."""
        if block and self._sent:
            self._inbox.wait_any([sent.operation for sent in self._sent])
        done = [sent for sent in self._sent if sent.operation.complete]
        self._sent = [sent for sent in self._sent if sent not in done]
        for sent in done:
            self.etags[sent.part.number - 1] = sent.operation.result()
            if listening():
                emit(PartSent(self._fetcher.driver.url(self._object), sent.part.number, sent.size_bytes))
            if isinstance(sent.buffer, bytearray) and sent.buffer:
                self.free.append(sent.buffer)
