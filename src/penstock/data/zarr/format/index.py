"""Index of a shard: location of each inner chunk. Part of the codec ``sharding_indexed`` of Zarr v3.

Fields of a metadata document, checked when read: a document is untrusted input.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.data.zarr.format.steps import CRC_BYTES, checked
from penstock.errors import Damaged, Unsupported
from penstock.values import Span

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.data.zarr.format.layout import Layout


__all__ = ["ABSENT", "Fields", "Form", "chunk_span", "form_of", "index_span", "read_index", "sharding"]

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


# Largest length along one dimension in NumPy.
_MOST = (1 << 63) - 1
_MOST_DIMENSIONS = 32  # limit of NumPy 1
_short = reprlib.Repr()
_short.maxlevel = 3


@dataclass(frozen=True, slots=True)
class Fields:
    """JSON object of a document, and its location.

    Attributes:
        values: The object.
        url: URL of the document, for errors.
        path: Path of the object within the document (``codecs[0].configuration``), for errors; empty for the document.

    """

    values: Mapping[str, Any]
    url: str = ""
    path: str = ""

    def damaged(self, name: str, expected: str) -> Damaged:
        """Return the error for an invalid field; ``expected`` describes valid values."""
        found = _short.repr(self.values[name]) if name in self.values else "missing"
        return Damaged(f"the Zarr metadata is damaged: {self._at(name)} should be {expected}: {found}", url=self.url)

    def unsupported(self, name: str, reason: str) -> Unsupported:
        """Return the error for an unsupported value of a field; ``reason`` explains it."""
        found = _short.repr(self.values.get(name))
        return Unsupported(f"this Zarr array is not supported: {self._at(name)} is {found}: {reason}", url=self.url)

    def sizes(self, name: str, least: int) -> tuple[int, ...]:
        """Return the whole numbers of a list, each at least ``least``."""
        found = self.values.get(name)
        if (
            not isinstance(found, Sequence)
            or isinstance(found, str)
            or not all(_is_size(each, least) for each in found)
        ):
            raise self.damaged(name, f"a list of whole numbers from {least} on")
        if len(found) > _MOST_DIMENSIONS:
            raise self.unsupported(name, f"an array has at most {_MOST_DIMENSIONS} dimensions")
        return tuple(int(each) for each in found)

    def chosen(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """Return a word that must be one of ``choices``; ``default`` if the field is missing."""
        found = self.values.get(name)
        if found is None:
            return default
        if not isinstance(found, str) or found not in choices:
            raise self.damaged(name, " or ".join(map(repr, choices)))
        return found

    def mapping(self, name: str) -> Fields:
        """Return the object in a field; empty if the field is missing."""
        found = self.values.get(name)
        if found is not None and not isinstance(found, Mapping):
            raise self.damaged(name, "an object")
        return Fields(found or {}, self.url, self._path(name))

    def named(self, name: str, value: object) -> tuple[str, Fields]:
        """Return name and configuration of a Zarr v3 extension: ``{"name": …, "configuration": {…}}``, or the name."""
        if isinstance(value, str):
            return value, Fields({}, self.url, self._path(name))
        if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
            raise self.damaged(name, "an object with a name")
        inside = Fields(value, self.url, self._path(name))
        return str(value["name"]), inside.mapping("configuration")

    def extension(self, name: str) -> tuple[str, Fields]:
        """Return name and configuration of a field that is an extension point of Zarr v3."""
        return self.named(name, self.values.get(name))

    def extensions(self, name: str) -> list[tuple[str, Fields]]:
        """Return names and configurations of a field that is a list of extensions; empty if the field is missing."""
        found = self.values.get(name)
        if found is None:
            return []
        if not isinstance(found, Sequence) or isinstance(found, str):
            raise self.damaged(name, "a list")
        return [self.named(name, each) for each in found]

    def _path(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def _at(self, name: str) -> str:
        return f"field {self._path(name)!r}"


def _is_size(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST
