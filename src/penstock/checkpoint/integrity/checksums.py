"""Block checksums of an object. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import xxhash

__all__ = ["BLOCK_BYTES", "DIGEST_BYTES", "BlockChecksums"]

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
