"""The index of a shard: where each of its inner chunks lies. Part of the codec ``sharding_indexed`` of Zarr v3."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.errors import Damaged
from penstock.formats.zarr.decoding.crc import CRC_BYTES, checked
from penstock.formats.zarr.fields import Fields
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from penstock.formats.zarr.layout import Layout

__all__ = ["ABSENT", "Form", "chunk_span", "form_of", "index_span", "read_index", "sharding"]

ABSENT = (1 << 64) - 1  # offset and length of an inner chunk that is not there: it is full of the fill value
_ENTRY_BYTES = 16
_MOST_GROWTH = 16  # a filter may encode 1 byte as 8 (``astype``), complex numbers as 16
_MARGIN_BYTES = 1 << 20


class Form(NamedTuple):
    """How an index is encoded: byte order, whether a CRC-32C follows, whether it stands at the shard's end."""

    order: str
    crc: bool
    at_end: bool

    def size(self, chunks: int) -> int:
        """Return the bytes of the index of so many inner chunks."""
        return _ENTRY_BYTES * chunks + CRC_BYTES * self.crc


def sharding(layout: Layout) -> Mapping[str, Any]:
    """Return the configuration of the codec that shards a sharded array, as its document has it."""
    configuration: Mapping[str, Any] = layout.document["codecs"][0]["configuration"]
    return configuration


def form_of(fields: Fields) -> Form | None:
    """Return how the index of a ``sharding_indexed`` configuration is encoded; None where only zarr can decode it."""
    end = fields.chosen("index_location", ("start", "end"), "end") == "end"
    codecs = fields.extensions("index_codecs")
    if [name for name, _ in codecs] not in (["bytes"], ["bytes", "crc32c"]):
        return None
    order = codecs[0][1].chosen("endian", ("little", "big"), "little")
    return Form("<" if order == "little" else ">", len(codecs) > 1, end)


def index_span(layout: Layout, key: str) -> Span:
    """Return the bytes of a shard's index: ``key`` is the shard's, as ``layout.object_key`` has it. One request."""
    form = _form(layout)
    size = form.size(prod(layout.ratios))
    return Span(key, -size) if form.at_end else Span(key, 0, size)


def read_index(layout: Layout, data: bytes | bytearray | memoryview, url: str = "") -> NDArray[np.uint64]:
    """Return offset and length of each inner chunk of a shard, row-major; both are ``ABSENT`` where it is not there.

    Args:
        layout: Of a sharded array.
        data: What ``index_span`` brought.
        url: Of the shard, for errors.

    Raises:
        ChecksumMismatch: The index has a checksum, which does not match.
        Damaged: It has another size, or entries that cannot be.

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
    """Return where an inner chunk lies, by its shard's index; None where it is not there.

    ``etag`` is the version of the shard that the index was read from.
    """
    offset, length = index[layout.inner(chunk)].tolist()
    return None if offset == ABSENT else Span(layout.object_key(chunk), offset, offset + length, etag)


def _form(layout: Layout) -> Form:
    form = form_of(Fields(sharding(layout)))
    if form is None:  # documents.py leaves `shards` None then
        raise Damaged("this array has no index of shards that can be read")
    return form
