"""Index of a shard, which locates the inner chunks of the codec ``sharding_indexed`` of Zarr v3. Pure."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from penstock.data.zarr.format.layout import DocumentFields, form_of, sharding
from penstock.data.zarr.format.steps import verify_crc32c
from penstock.errors import Damaged
from penstock.values import Span

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.data.zarr.format.layout import IndexForm, Layout

# Offset and length of an absent inner chunk, which consists of the fill value.
ABSENT = (1 << 64) - 1
# A filter may encode 1 byte as 8 (``astype``), or as 16 for complex numbers.
_MOST_GROWTH = 16
_INDEX_MARGIN_BYTES = 1 << 20


def index_span(layout: Layout, key: str) -> Span:
    """Return the byte range of a shard's index: ``key`` is the shard's ``layout.object_key``. One request."""
    form = _read_index_form(layout)
    size = form.size(prod(layout.ratios))
    return Span(key, -size) if form.at_end else Span(key, 0, size)


def read_index(layout: Layout, data: bytes | bytearray | memoryview, url: str = "") -> NDArray[np.uint64]:
    """Return offset and length of each inner chunk of a shard, row-major; both are ``ABSENT`` for an absent chunk."""
    form, chunks = _read_index_form(layout), prod(layout.ratios)
    if len(data) != form.size(chunks):
        message = f"the index of the shard has {len(data)} bytes, not the {form.size(chunks)} of {chunks} chunks"
        raise Damaged(message, url=url)
    body = verify_crc32c(data, "the shard's index", url) if form.crc else data
    entries = np.frombuffer(body, f"{form.order}u8").reshape(chunks, 2).astype(np.uint64, copy=False)
    offsets, lengths = entries[:, 0], entries[:, 1]
    absent = (offsets == ABSENT) & (lengths == ABSENT)
    most = _MOST_GROWTH * layout.chunk_bytes + _INDEX_MARGIN_BYTES
    impossible = ~absent & ((offsets >= 1 << 62) | (lengths > most))
    if impossible.any():
        number = int(impossible.argmax())
        entry = f"{int(lengths[number])} bytes at {int(offsets[number])}"
        raise Damaged(f"the index of the shard says that its chunk {number} has {entry}: no chunk has", url=url)
    return entries


def chunk_span(layout: Layout, chunk: tuple[int, ...], index: NDArray[np.uint64], etag: str = "") -> Span | None:
    """Return the location of an inner chunk by the index of its shard, whose version is ``etag``; None if absent."""
    offset, length = index[layout.inner(chunk)].tolist()
    return None if offset == ABSENT else Span(layout.object_key(chunk), offset, offset + length, etag)


def _read_index_form(layout: Layout) -> IndexForm:
    form = form_of(DocumentFields(sharding(layout)))
    if form is None:  # layout_of leaves `shards` None then
        raise Damaged("this array has no index of shards that can be read")
    return form
