"""Block checksums of an object, and file objects that compute them on write and verify them on read.

CRC-32, the checksum of zip files, is computed with the fastest library installed.
"""

from __future__ import annotations

import io
import zlib
from collections import OrderedDict
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Self

import xxhash

from penstock.engine.blocks import BlockReader
from penstock.engine.buffer import flat
from penstock.errors import ChecksumMismatch, Truncated
from penstock.progress import current

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from penstock.engine.buffer import Buffer
    from penstock.source import Reader, Writer


__all__ = [
    "BLOCK_BYTES",
    "DIGEST_BYTES",
    "BlockChecksums",
    "ChecksummedReader",
    "ChecksummedWriter",
    "Checksummer",
    "crc32",
    "fast",
]

# Bytes per digest. Costs 8 bytes of digest per MiB; a partial read verifies up to 1 MiB more at each end.
BLOCK_BYTES = 1 << 20
DIGEST_BYTES = 8  # of an XXH3 digest


@dataclass(frozen=True, slots=True)
class BlockChecksums:
    """The size and block checksums of one data object.

    Attributes:
        size: Bytes.
        digests: XXH3 (64 bits, big-endian, seed 0) of each ``BLOCK_BYTES`` of the object, in order; the last block may
            be shorter.

    """

    size: int
    digests: bytes

    def holds(self, block: int, data: bytes | memoryview) -> bool:
        """Return whether ``data`` matches the checksum of block number ``block``."""
        return xxhash.xxh3_64_digest(data) == self.digests[block * DIGEST_BYTES : (block + 1) * DIGEST_BYTES]


# Most bytes per library call: a library may hold lengths in 32 bits.
_DIGEST_BYTES = 64 << 20


@cache
def fast() -> Callable[[Any, int], int] | None:
    """Return isal's CRC-32, or None if isal is not installed (``pip install 'penstock[torch]'``).

    isal computes 15 GB/s, zlib 2.3 GB/s (measured).
    """
    try:
        from isal import isal_zlib
    except ImportError:
        return None
    found: Callable[[Any, int], int] = isal_zlib.crc32
    return found


def crc32(data: memoryview, crc: int = 0) -> int:
    """Return the CRC-32 of ``data`` appended to the bytes whose CRC-32 is ``crc``; other threads can run meanwhile."""
    compute = fast() or zlib.crc32
    for at in range(0, len(data), _DIGEST_BYTES):
        crc = compute(data[at : at + _DIGEST_BYTES], crc)
    return crc


# Pieces are written and then digested while they are still in the processor's cache.
_PIECE_BYTES = BLOCK_BYTES // 4
_KEPT = 4  # verified blocks kept for small reads


class Checksummer:
    """Incremental block checksums of an object, computed from its bytes in order."""

    def __init__(self) -> None:
        """Start with no bytes."""
        self.size = 0
        self._digests: list[bytes] = []
        self._open = xxhash.xxh3_64()

    def update(self, data: memoryview) -> None:
        """Add the next bytes, of any length."""
        at = 0
        while at < len(data):
            piece = data[at : at + BLOCK_BYTES - self.size % BLOCK_BYTES]
            self._open.update(piece)
            at += len(piece)
            self.size += len(piece)
            if self.size % BLOCK_BYTES == 0:
                self._digests.append(self._open.digest())
                self._open.reset()

    def checksums(self) -> BlockChecksums:
        """Return the checksums of all bytes so far."""
        last = [self._open.digest()] if self.size % BLOCK_BYTES else []
        return BlockChecksums(self.size, b"".join(self._digests + last))


class ChecksummedWriter(io.BufferedIOBase):
    """Write-only file over a ``Writer`` that computes block checksums.

    Call ``checksums`` after it is closed.
    """

    mode = "wb"

    def __init__(self, writer: Writer) -> None:
        """Compute checksums of all bytes written to ``writer`` through this file."""
        super().__init__()
        self._writer = writer
        self._checksummer = Checksummer()
        self._count = current()

    @property
    def name(self) -> str:
        """The URL of the object being written."""
        return self._writer.name

    def writable(self) -> bool:
        """Return True."""
        return self._writer.writable()

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._writer.tell()

    @property
    def closed(self) -> bool:
        """Whether the file is closed, with or without success."""
        return self._writer.closed

    def write(self, data: object, /) -> int:
        """Write any bytes-like object, as ``Writer.write`` does."""
        view, at = flat(data), 0
        # Raise for a closed file even if data is empty.
        self.tell()
        while at < len(view):
            piece = view[at : at + _PIECE_BYTES - self._checksummer.size % _PIECE_BYTES]
            self._writer.write(piece)
            self._checksummer.update(piece)
            self._count(0, len(piece))
            at += len(piece)
        return at

    def checksums(self) -> BlockChecksums:
        """Return the checksums of the bytes written."""
        return self._checksummer.checksums()

    def __enter__(self) -> Self:
        """Return this file."""
        self._writer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Publish the object, unless the ``with`` block raised."""
        self._writer.__exit__(kind, error, trace)

    def close(self) -> None:
        """Publish the object; a second call does nothing."""
        self._writer.close()

    def __del__(self) -> None:
        """Publish nothing: the underlying writer cleans up."""


class ChecksummedReader(BlockReader):
    """Read-only, seekable file over a ``Reader`` that verifies every byte before returning it.

    Whole blocks are read in parallel ranges directly into the caller's memory and verified there. For a partial block
    the whole block is read. A block that does not match its checksum raises ``ChecksumMismatch``.
    """

    def __init__(self, reader: Reader, checksums: BlockChecksums, url: str) -> None:
        """Verify ``reader`` against ``checksums``; raise ``Truncated`` immediately if its size differs."""
        super().__init__(checksums.size, BLOCK_BYTES)
        self.name = url
        self._reader = reader
        self._checksums = checksums
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        if reader.size != checksums.size:
            raise Truncated(f"the object has {reader.size} bytes, {checksums.size} were written", url=url)

    def close(self) -> None:
        """Close this file and the underlying reader."""
        self._reader.close()
        self._kept.clear()
        super().close()

    def _straight(self, start: int, target: Buffer) -> None:
        view, at, stop = target.view(), start, start + target.size
        while at < stop:
            number, offset = divmod(at, BLOCK_BYTES)
            whole = 0 if offset else (stop - at) // BLOCK_BYTES * BLOCK_BYTES
            if whole:
                self._whole(number, view[at - start : at - start + whole])
                at += whole
            else:
                piece = memoryview(self._block(number))[offset : offset + stop - at]
                view[at - start : at - start + len(piece)] = piece
                at += len(piece)

    def _whole(self, first: int, view: memoryview) -> None:
        self._reader.seek(first * BLOCK_BYTES)
        self._reader.readinto(view)
        for number, at in enumerate(range(0, len(view), BLOCK_BYTES), first):
            self._verify(number, view[at : at + BLOCK_BYTES])

    def _block(self, number: int) -> bytes:
        if number not in self._kept:
            self._reader.seek(number * BLOCK_BYTES)
            data = self._reader.read(min(BLOCK_BYTES, self._checksums.size - number * BLOCK_BYTES))
            self._verify(number, data)
            self._kept[number] = data
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return self._kept[number]

    def _verify(self, number: int, data: bytes | memoryview) -> None:
        if not self._checksums.holds(number, data):
            start = number * BLOCK_BYTES
            raise ChecksumMismatch(f"bytes {start} to {start + len(data)} are not what was written", url=self.name)
