"""Index of a shard: location of each inner chunk. Part of the codec ``sharding_indexed`` of Zarr v3."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.data.zarr.format.decoding.crc import CRC_BYTES, checked
from penstock.data.zarr.format.fields import Fields
from penstock.errors import Damaged
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from penstock.data.zarr.format.layout import Layout

__all__ = ["ABSENT", "Form", "chunk_span", "form_of", "index_span", "read_index", "sharding"]

# Offset and length of an absent inner chunk, which consists of the fill value.
ABSENT = (1 << 64) - 1
_ENTRY_BYTES = 16
# A filter may encode 1 byte as 8 (``astype``), or as 16 for complex numbers.
_MOST_GROWTH = 16
_MARGIN_BYTES = 1 << 20


class Form(NamedTuple):
    """Encoding of an index: byte order, whether a CRC-32C follows, and whether it lies at the end of the shard."""

    order: str
    crc: bool
    at_end: bool

    def size(self, chunks: int) -> int:
        """Return the size in bytes of the index of ``chunks`` inner chunks."""
        return _ENTRY_BYTES * chunks + CRC_BYTES * self.crc


def sharding(layout: Layout) -> Mapping[str, Any]:
    """Return the configuration of the sharding codec, from the document of a sharded array."""
    configuration: Mapping[str, Any] = layout.document["codecs"][0]["configuration"]
    return configuration


def form_of(fields: Fields) -> Form | None:
    """Return the encoding of the index of a ``sharding_indexed`` configuration; None if only zarr can decode it."""
    end = fields.chosen("index_location", ("start", "end"), "end") == "end"
    codecs = fields.extensions("index_codecs")
    if [name for name, _ in codecs] not in (["bytes"], ["bytes", "crc32c"]):
        return None
    order = codecs[0][1].chosen("endian", ("little", "big"), "little")
    return Form("<" if order == "little" else ">", len(codecs) > 1, end)


def index_span(layout: Layout, key: str) -> Span:
    """Return the byte range of a shard's index: ``key`` is the shard's ``layout.object_key``. One request."""
    form = _form(layout)
    size = form.size(prod(layout.ratios))
    return Span(key, -size) if form.at_end else Span(key, 0, size)


def read_index(layout: Layout, data: bytes | bytearray | memoryview, url: str = "") -> NDArray[np.uint64]:
    """Return offset and length of each inner chunk of a shard, row-major; both are ``ABSENT`` for an absent chunk.

    Args:
        layout: Layout of a sharded array.
        data: Bytes of ``index_span``.
        url: URL of the shard, for errors.

    Raises:
        ChecksumMismatch: The index has a checksum that does not match.
        Damaged: The index has another size, or impossible entries.

    """
    form, chunks = _form(layout), prod(layout.ratios)
    if len(data) != form.size(chunks):
        message = f"the index of the shard has {len(data)} bytes, not the {form.size(chunks)} of {chunks} chunks"
        raise Damaged(message, url=url)
    body = checked(data, "the shard's index", url) if form.crc else data
    entries = np.frombuffer(body, f"{form.order}u8").reshape(chunks, 2).astype(np.uint64, copy=False)
    offsets, lengths = entries[:, 0], entries[:, 1]
    absent = (offsets == ABSENT) & (lengths == ABSENT)
    most = _MOST_GROWTH * layout.chunk_bytes + _MARGIN_BYTES
    impossible = ~absent & ((offsets >= 1 << 62) | (lengths > most))
    if impossible.any():
        number = int(impossible.argmax())
        entry = f"{int(lengths[number])} bytes at {int(offsets[number])}"
        raise Damaged(f"the index of the shard says that its chunk {number} has {entry}: no chunk has", url=url)
    return entries


def chunk_span(layout: Layout, chunk: tuple[int, ...], index: NDArray[np.uint64], etag: str = "") -> Span | None:
    """Return the location of an inner chunk by the index of its shard; None for an absent chunk.

    ``etag`` is the version of the shard from which the index was read.
    """
    offset, length = index[layout.inner(chunk)].tolist()
    return None if offset == ABSENT else Span(layout.object_key(chunk), offset, offset + length, etag)


def _form(layout: Layout) -> Form:
    form = form_of(Fields(sharding(layout)))
    if form is None:  # documents.py leaves `shards` None then
        raise Damaged("this array has no index of shards that can be read")
    return form
