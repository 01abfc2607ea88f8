"""The checksums of an object: one for each block of its bytes. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import xxhash

__all__ = ["BLOCK_BYTES", "DIGEST_BYTES", "BlockChecksums"]

BLOCK_BYTES = 1 << 20  # what a digest covers: 8 bytes for each MiB, and a partial read verifies a MiB more at each end
DIGEST_BYTES = 8  # of an XXH3


@dataclass(frozen=True, slots=True)
class BlockChecksums:
    """A data object that was written whole.

    Attributes:
        size: Bytes.
        digests: XXH3 (64 bits, big-endian, seed 0) of each ``BLOCK_BYTES`` of it in turn; the last may be shorter.

    """

    size: int
    digests: bytes

    def holds(self, block: int, data: bytes | memoryview) -> bool:
        """Say whether ``data`` is what was written as a block."""
        return xxhash.xxh3_64_digest(data) == self.digests[block * DIGEST_BYTES : (block + 1) * DIGEST_BYTES]
