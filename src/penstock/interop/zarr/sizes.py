"""How large the chunks of each array are, as far as reads have shown: what bounds the next read of one. Pure."""

from __future__ import annotations

import re

from penstock.protocols.driver import UNKNOWN_BYTES

__all__ = ["ChunkSizes", "array_of"]

# A chunk's key ends in its indices: ``c/0/1`` and ``c.0.1`` in version 3, ``0.1`` and ``0/1`` in version 2 and in
# version 3's ``v2`` encoding; ``c`` alone is the chunk of a scalar (zarr-specs, "Chunk key encoding").
_INDICES = re.compile(r"(?:^|/)(?:c(?:[./][0-9]+)*|[0-9]+(?:[./][0-9]+)*)$").search
_SPARE = 16  # a chunk may be larger than all before by this part of the largest


def array_of(key: str) -> str | None:
    """Return the name of the array that ``key`` is a chunk of; None where it is no chunk, as metadata."""
    found = _INDICES(key)
    return None if found is None else key[: found.start()]


class ChunkSizes:
    """The largest chunk of each array so far.

    Any thread may call: an update that is lost costs a read a second request, and no more.
    """

    __slots__ = ("_most",)

    def __init__(self) -> None:
        """Nothing was read yet."""
        self._most: dict[str, int] = {}

    def bound(self, array: str | None) -> int:
        """Return how many bytes to expect at most: of a chunk of an array, or of any object."""
        return UNKNOWN_BYTES if array is None else self._most.get(array, UNKNOWN_BYTES)

    def add(self, array: str | None, size_bytes: int) -> None:
        """Take note of a chunk's size."""
        if array is not None and size_bytes > self._most.get(array, 0):
            self._most[array] = size_bytes + size_bytes // _SPARE
