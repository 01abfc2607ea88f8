"""How an array lies in objects: its chunks, their keys, its type. Made of a metadata document; pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

__all__ = ["Layout"]

_MARGIN_BYTES = 64 << 10  # by which compressors may enlarge what cannot be compressed


@dataclass(frozen=True, slots=True)
class Layout:
    """One array of Zarr v2 or v3. Immutable and picklable; ``penstock.formats.zarr.documents`` makes it.

    Attributes:
        key: Where its objects lie within the store: a prefix, empty or ending in ``/``.
        name: The array's path below what was opened (``tas``); empty for an array that was opened itself.
        shape: Length along each dimension.
        dtype: Of decoded values, in native byte order.
        chunks: Shape of what is decoded at once: the inner chunk where the array is sharded.
        shards: Shape of a stored shard, a multiple of ``chunks``; None where each chunk is an object.
        fill: What an absent chunk is full of, a scalar of ``dtype``; zero where Zarr v2 has ``null``.
        dims: Names of the dimensions: v3's ``dimension_names``, v2's ``_ARRAY_DIMENSIONS``; None where unnamed.
        attributes: The user's attributes, as they are stored.
        document: The ``.zarray`` or ``zarr.json`` that this was made of: what codecs are made of.
        lead: What a chunk's key begins with below ``key``: ``c`` or nothing.
        separator: Between the parts of a chunk's key: ``/`` or ``.``.

    """

    key: str
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...]
    shards: tuple[int, ...] | None
    fill: Any = field(compare=False)  # of `document`, and NaN does not equal itself
    dims: tuple[str | None, ...]
    attributes: Mapping[str, Any] = field(repr=False)
    document: Mapping[str, Any] = field(repr=False)
    lead: str = "c"
    separator: str = "/"

    @property
    def grid(self) -> tuple[int, ...]:
        """Chunks along each dimension: of inner chunks, where the array is sharded."""
        return tuple(-(-size // chunk) for size, chunk in zip(self.shape, self.chunks, strict=True))

    @property
    def ratios(self) -> tuple[int, ...]:
        """Inner chunks along each dimension of a shard; 1 where the array is not sharded."""
        if self.shards is None:
            return (1,) * len(self.chunks)
        return tuple(shard // chunk for shard, chunk in zip(self.shards, self.chunks, strict=True))

    @property
    def chunk_bytes(self) -> int:
        """Bytes of one decoded chunk."""
        return prod(self.chunks) * self.dtype.itemsize

    @property
    def most_bytes(self) -> int:
        """Bytes that one encoded chunk has at most (``Span.most``): decoded, and 64 KiB for what does not compress."""
        return self.chunk_bytes + _MARGIN_BYTES

    def object_key(self, chunk: tuple[int, ...]) -> str:
        """Return the full key of the object that holds a chunk: of the shard, where the array is sharded."""
        if self.shards is not None:
            chunk = tuple(at // ratio for at, ratio in zip(chunk, self.ratios, strict=True))
        if self.lead:
            return self.key + self.separator.join((self.lead, *map(str, chunk)))
        return self.key + (self.separator.join(map(str, chunk)) or "0")  # v2 names the chunk of a scalar so

    def inner(self, chunk: tuple[int, ...]) -> int:
        """Return a chunk's number within its shard, row-major; 0 where the array is not sharded."""
        number = 0
        if self.shards is not None:
            for at, ratio in zip(chunk, self.ratios, strict=True):
                number = number * ratio + at % ratio
        return number
