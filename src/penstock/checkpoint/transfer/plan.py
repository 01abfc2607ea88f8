"""Which requests bring many pieces of objects: long runs straight to where they belong, the rest by way of scratch.

Pure: bytes and blocks in, runs out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.checkpoint.integrity.checksums import BLOCK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.checkpoint.integrity.checksums import BlockChecksums

__all__ = ["Object", "Piece", "Run", "Want", "runs"]

_MOST_BYTES = 8 * BLOCK_BYTES  # of one request: a connection to S3 gives 50 to 100 MB/s, so many in parallel pay
_STRAIGHT_BYTES = 2 * BLOCK_BYTES  # from here on a run of whole blocks is worth a request of its own, and no copy
_GAP_BYTES = 256 << 10  # of bytes not wanted, read to save a request: 30 ms at 10 MB/s


@dataclass(frozen=True, slots=True, eq=False)
class Object:
    """A data object, and what its bytes are held to.

    Attributes:
        key: Its full key.
        etag: The version to read; empty to take any.
        size: Bytes.
        url: Its name in messages.
        checksums: The digests of its blocks; None: there are none.
        origin: The byte at which block 0 of ``checksums`` begins.

    """

    key: str
    etag: str
    size: int
    url: str
    checksums: BlockChecksums | None
    origin: int = 0

    def within(self, start: int, stop: int) -> str:
        """Name bytes in messages."""
        return f"bytes {start} to {stop}"

    def whole(self, start: int, stop: int) -> tuple[int, int]:
        """Return the whole blocks within ``[start, stop)``; all of it where there are no checksums."""
        if self.checksums is None:
            return start, stop
        first = start + (self.origin - start) % BLOCK_BYTES
        last = stop if stop == self.size else stop - (stop - self.origin) % BLOCK_BYTES
        return first, max(first, last)

    def around(self, start: int, stop: int) -> tuple[int, int]:
        """Return the whole blocks around ``[start, stop)``; just that where there are no checksums."""
        if self.checksums is None:
            return start, stop
        last = min(self.size, stop + (self.origin - stop) % BLOCK_BYTES)
        return start - (start - self.origin) % BLOCK_BYTES, last


class Want(NamedTuple):
    """A piece of an object, and the memory it belongs in.

    Attributes:
        of: The object.
        start: Its first byte in the object, inclusive.
        stop: Its last, exclusive.
        memory: A writable, contiguous buffer of ``stop - start`` bytes.
        tag: Whatever its owner wants to find it by.

    """

    of: Object
    start: int
    stop: int
    memory: Any
    tag: Any = None


class Piece(NamedTuple):
    """Bytes ``[start, stop)`` of the object that belong into a want's memory."""

    want: Want
    start: int
    stop: int


@dataclass(slots=True, eq=False)
class Run:
    """One request: bytes ``[start, stop)`` of an object.

    Attributes:
        of: The object.
        start: First byte.
        stop: Last byte, exclusive.
        straight: Read into the memory of its one piece, and not into scratch.
        pieces: What lies in it.
        done: The wants whose last bytes these are.

    """

    of: Object
    start: int
    stop: int
    straight: bool = False
    pieces: list[Piece] = field(default_factory=list)
    done: list[Want] = field(default_factory=list)

    def reaches(self, of: Object, start: int, stop: int) -> bool:
        """Say whether ``[start, stop)`` is best read along with this run."""
        near = self.of is of and self.start <= start <= self.stop + _GAP_BYTES
        return near and max(stop, self.stop) - self.start <= _MOST_BYTES


def runs(wants: Iterable[Want]) -> Iterator[Run]:
    """Return the requests for ``wants``, drawn lazily; each want is done in its turn.

    What lies near each other is read together as long as starts ascend; any other order only costs requests.
    """
    waiting: Run | None = None  # for more that lies in it
    for want in wants:
        for piece, straight in _pieces(want):
            low, high = (piece.start, piece.stop) if straight else want.of.around(piece.start, piece.stop)
            if waiting is not None and not straight and waiting.reaches(want.of, low, high):
                waiting.stop = max(high, waiting.stop)
            else:
                if waiting is not None:
                    yield waiting
                waiting = Run(want.of, low, high, straight)
            waiting.pieces.append(piece)
            if piece.stop == want.stop:
                waiting.done.append(want)
            if straight:
                yield waiting
                waiting = None
    if waiting is not None:
        yield waiting


def _pieces(want: Want) -> Iterator[tuple[Piece, bool]]:
    """Cut a want: what goes straight into its memory, and what is left at its ends."""
    of, start, stop, *_ = want
    first, last = of.whole(start, stop)
    if start == stop:
        yield Piece(want, start, stop), True  # no request, but its turn
        return
    if last - first < _STRAIGHT_BYTES:
        first = last = stop
    if start < first:
        yield Piece(want, start, first), False
    for at in range(first, last, _MOST_BYTES):
        yield Piece(want, at, min(last, at + _MOST_BYTES)), True
    if last < stop:
        yield Piece(want, last, stop), False
