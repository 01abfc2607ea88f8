"""Layout of an array in objects: chunks, their keys, and their type. Made from a metadata document; pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

__all__ = ["Layout"]

_MARGIN_BYTES = 64 << 10  # growth of incompressible data by compressors


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of an array of Zarr v2 or v3. Immutable and picklable; made by ``penstock.data.zarr.format.documents``.

    Attributes:
        key: Location of its objects in the store: a prefix, empty or ending in ``/``.
        name: Path below the opened group (``tas``); empty for an array that was opened itself.
        shape: Length along each dimension.
        dtype: Type of decoded values, in native byte order.
        chunks: Shape of a chunk that is decoded at once: the inner chunk of a sharded array.
        shards: Shape of a stored shard, a multiple of ``chunks``; None if each chunk is an object.
        fill: Value of absent chunks, a scalar of ``dtype``; zero, or NaT, if Zarr v2 has ``null``.
        dims: Names of the dimensions: v3's ``dimension_names``, v2's ``_ARRAY_DIMENSIONS``; None for an unnamed one.
        attributes: The user's attributes, as stored.
        document: The ``.zarray`` or ``zarr.json`` of the layout, from which codecs are made.
        lead: Beginning of a chunk's key below ``key``: ``c`` or nothing.
        separator: Separator between the parts of a chunk's key: ``/`` or ``.``.

    """

    key: str
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...]
    shards: tuple[int, ...] | None
    fill: Any = field(compare=False)  # from `document`; NaN does not equal itself
    dims: tuple[str | None, ...]
    attributes: Mapping[str, Any] = field(repr=False)
    document: Mapping[str, Any] = field(repr=False)
    lead: str = "c"
    separator: str = "/"

    @property
    def document_key(self) -> str:
        """Full key of the array's metadata document."""
        return self.key + (".zarray" if self.document["zarr_format"] == 2 else "zarr.json")  # noqa: PLR2004  the version

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of chunks along each dimension: inner chunks of a sharded array."""
        return tuple(-(-size // chunk) for size, chunk in zip(self.shape, self.chunks, strict=True))

    @property
    def ratios(self) -> tuple[int, ...]:
        """Number of inner chunks along each dimension of a shard; 1 if the array is not sharded."""
        if self.shards is None:
            return (1,) * len(self.chunks)
        return tuple(shard // chunk for shard, chunk in zip(self.shards, self.chunks, strict=True))

    @property
    def chunk_bytes(self) -> int:
        """Bytes of one decoded chunk."""
        return prod(self.chunks) * self.dtype.itemsize

    @property
    def most_bytes(self) -> int:
        """Most bytes of an encoded chunk (``Span.most``): the decoded size, and 64 KiB for incompressible data."""
        return self.chunk_bytes + _MARGIN_BYTES

    def object_key(self, chunk: tuple[int, ...]) -> str:
        """Return the full key of the object that holds a chunk: the shard of a sharded array."""
        if self.shards is not None:
            chunk = tuple(at // ratio for at, ratio in zip(chunk, self.ratios, strict=True))
        if self.lead:
            return self.key + self.separator.join((self.lead, *map(str, chunk)))
        # In v2, the chunk of a scalar has the key "0".
        return self.key + (self.separator.join(map(str, chunk)) or "0")

    def inner(self, chunk: tuple[int, ...]) -> int:
        """Return the row-major number of a chunk within its shard; 0 if the array is not sharded."""
        number = 0
        if self.shards is not None:
            for at, ratio in zip(chunk, self.ratios, strict=True):
                number = number * ratio + at % ratio
        return number
