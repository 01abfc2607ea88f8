"""Fills a buffer with what is to be sent, and digests it piece by piece while the processor's cache still holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.protocols.driver import Payload

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.protocols.driver import Digest

__all__ = ["PartBuffer"]

# CPU seconds for copying and digesting 1 GiB (Xeon with SHA extensions, 2 MiB of L2): 0.79 in pieces of 512 KiB, 0.75
# of 256 KiB, 0.77 of 128 KiB, 0.84 of 1 MiB, 1.13 when 16 MiB are copied first; where others digest the same pieces in
# turn (a seal, a zip's sum) 0.95 of 512 KiB and 0.80 of 256 KiB. hashlib drops the GIL once for each.
_PIECE_BYTES = 256 << 10


class PartBuffer:
    """A buffer that grows full, and the digest of its bytes that the store wants, if it wants one.

    Attributes:
        buffer: Must not change after the payload was taken, until that is sent.
        size: How many bytes of it are filled.

    """

    __slots__ = ("_digested", "_state", "buffer", "size")

    def __init__(self, buffer: bytearray, digest: Callable[[], Digest] | None, size: int = 0) -> None:
        """Begin with the first ``size`` bytes of ``buffer``; ``digest`` begins a digest."""
        self.buffer = buffer
        self.size = size
        self._digested = 0
        self._state = digest() if digest is not None else None

    @property
    def full(self) -> bool:
        """Say whether there is no room left."""
        return self.size == len(self.buffer)

    def grow(self, most_bytes: int) -> None:
        """Double the buffer, up to ``most_bytes``: once a payload was taken this is a BufferError."""
        self.buffer.extend(bytes(min(len(self.buffer), most_bytes - len(self.buffer))))

    def take(self, data: memoryview) -> int:
        """Copy from the start of ``data``, a view of bytes, until the buffer is full; returns how many bytes."""
        taken = 0
        while taken < len(data) and not self.full:
            piece = data[taken : taken + min(len(self.buffer), self._digested + _PIECE_BYTES) - self.size]
            # Through a view: a bytearray copies whatever is no bytearray a first time, into a new one.
            memoryview(self.buffer)[self.size : self.size + len(piece)] = piece
            self.size += len(piece)
            taken += len(piece)
            if self.size - self._digested == _PIECE_BYTES:
                self._digest()
        return taken

    def payload(self) -> Payload:
        """Return what is filled, with its digest."""
        self._digest()
        return Payload(memoryview(self.buffer)[: self.size], self._state.hexdigest() if self._state else "")

    def _digest(self) -> None:
        if self._state is not None:
            self._state.update(memoryview(self.buffer)[self._digested : self.size])
        self._digested = self.size
