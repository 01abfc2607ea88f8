"""Layout of an array in objects: its type, chunks, and their keys; and the index of a shard. Pure.

The index locates the inner chunks of the codec ``sharding_indexed`` of Zarr v3.

``Runs``: chunks of several lengths along a dimension, where arrays of several stores are read as one.

A layout is made from a metadata document (``.zarray``, ``zarr.json``), which is untrusted: ``DocumentFields`` checks
each field when it is read.
"""

from __future__ import annotations

import base64
import binascii
import re
import reprlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import numpy as np

from penstock.data.zarr.format.steps import CRC_BYTES, verify_crc32c
from penstock.errors import Damaged, Unsupported
from penstock.values import Span

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MARGIN_BYTES = 64 << 10  # growth of incompressible data by compressors


@dataclass(frozen=True)
class Runs:
    """Chunks along a dimension, as runs of chunks of one length each. The last chunk of a run may be shorter.

    It takes the place of a chunk's length: ``divmod(elements, runs)`` returns the number of the chunk, and the element
    in it, of an element or of an array of elements; ``n * runs`` are chunks of ``n`` chunks each. ``lengths`` are the
    elements of each run, ``sizes`` those of a chunk in it.
    """

    lengths: tuple[int, ...]
    sizes: tuple[int, ...]
    starts: tuple[int, ...] = field(init=False, repr=False, compare=False)
    firsts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    # Arrays leave ``elements // runs`` to this class.
    __array_ufunc__ = None

    def __post_init__(self) -> None:
        """Compute the first element and the number of the first chunk of each run, and those after the last."""
        counts = [-(-length // size) for length, size in zip(self.lengths, self.sizes, strict=True)]
        object.__setattr__(self, "starts", (0, *accumulate(self.lengths)))
        object.__setattr__(self, "firsts", (0, *accumulate(counts)))

    def __rdivmod__(self, elements: Any) -> tuple[Any, Any]:  # noqa: ANN401  an int or an array of them
        """Return the numbers of chunks, and the elements in them."""
        if isinstance(elements, np.ndarray):
            runs = np.searchsorted(self.starts[:-1], elements, side="right") - 1
            numbers, places = np.divmod(elements - np.take(self.starts, runs), np.take(self.sizes, runs))
            return numbers + np.take(self.firsts, runs), places
        run = bisect_right(self.starts, elements, hi=len(self.lengths)) - 1
        number, inside = divmod(elements - self.starts[run], self.sizes[run])
        return number + self.firsts[run], inside

    def __rfloordiv__(self, elements: Any) -> Any:  # noqa: ANN401
        return divmod(elements, self)[0]

    def __rmul__(self, chunks: int) -> Runs:
        """Return chunks of several chunks each, within the same runs."""
        return Runs(self.lengths, tuple(chunks * size for size in self.sizes))

    def place(self, chunk: int) -> tuple[int, int]:
        """Return the number of the run that contains a chunk, and the number of the chunk in it."""
        run = bisect_right(self.firsts, chunk, hi=len(self.lengths)) - 1
        return run, chunk - self.firsts[run]

    def bounds(self, chunk: int) -> tuple[int, int]:
        """Return the first element of a chunk, and the one after its last."""
        run, number = self.place(chunk)
        start = self.starts[run] + number * self.sizes[run]
        return start, min(start + self.sizes[run], self.starts[run + 1])


def largest(length: int | Runs) -> int:
    return length if isinstance(length, int) else max(length.sizes)


def bounds(length: int | Runs, chunk: int, size: int) -> tuple[int, int]:
    """Return the first element of a chunk, and the one after its last, along a dimension of ``size`` elements."""
    if isinstance(length, Runs):
        return length.bounds(chunk)
    return chunk * length, min((chunk + 1) * length, size)


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of an array of Zarr v2 or v3. Immutable and picklable; made by ``layout_of``.

    Attributes:
        key: Location of its objects in the store: a prefix, empty or ending in ``/``.
        name: Path below the opened group (``tas``); empty for an array that was opened itself.
        dtype: Type of decoded values, in native byte order.
        chunks: Shape of a chunk that is decoded at once: the inner chunk of a sharded array.
        shards: Shape of a stored shard, a multiple of ``chunks``; None if each chunk is an object.
        fill: Value of absent chunks, a scalar of ``dtype``; zero, or NaT, if Zarr v2 has ``null``.
        dims: Names of the dimensions: v3's ``dimension_names``, v2's ``_ARRAY_DIMENSIONS``; None for an unnamed one.
        document: The ``.zarray`` or ``zarr.json`` of the layout, from which codecs are made.
        lead: Beginning of a chunk's key below ``key``: ``c`` or nothing.
        separator: Separator between the parts of a chunk's key: ``/`` or ``.``.
        runs: Chunks along dimensions where their lengths differ: of arrays of several stores that are read as one.
            ``chunks`` has the largest.
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
    runs: Mapping[int, Runs] = field(default_factory=dict)

    @property
    def document_key(self) -> str:
        return self.key + (".zarray" if self.document["zarr_format"] == 2 else "zarr.json")  # noqa: PLR2004  the version

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of chunks along each dimension: inner chunks of a sharded array."""
        found = [-(-size // chunk) for size, chunk in zip(self.shape, self.chunks, strict=True)]
        for axis, runs in self.runs.items():
            found[axis] = runs.firsts[-1]
        return tuple(found)

    @property
    def lengths(self) -> tuple[int | Runs, ...]:
        return tuple(self.runs.get(axis, size) for axis, size in enumerate(self.chunks))

    @property
    def ratios(self) -> tuple[int, ...]:
        """Number of inner chunks along each dimension of a shard; 1 if the array is not sharded."""
        if self.shards is None:
            return (1,) * len(self.chunks)
        return tuple(shard // chunk for shard, chunk in zip(self.shards, self.chunks, strict=True))

    @property
    def chunk_bytes(self) -> int:
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


_MOST_CHUNK_BYTES = 64 << 30  # decoded: a whole chunk lies in memory
_MOST_INNER = 1 << 24  # inner chunks of a shard, with an index of 256 MiB
_MOST_ITEMS = (1 << 63) - 1
_V3_FIELDS = {
    *("zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs"),
    *("attributes", "dimension_names", "storage_transformers"),
}


def layout_of(
    document: object, attributes: Mapping[str, Any] | None = None, *, key: str = "", name: str = "", url: str = ""
) -> Layout:
    """Return the layout of an array from its ``.zarray`` or ``zarr.json``, as parsed JSON.

    ``attributes`` are the contents of ``.zattrs``, for Zarr v2; ``key``, the location of the array's objects, is a
    prefix, empty or ending in ``/``; ``url`` is that of the document, for errors.
    """
    if not isinstance(document, Mapping):
        raise Damaged("the Zarr metadata is damaged: the document should be a JSON object", url=url)
    fields = DocumentFields(document, url)
    version = document.get("zarr_format")
    if isinstance(version, bool) or not isinstance(version, int) or version not in {2, 3}:
        raise fields.damaged("zarr_format", "2 or 3")
    return _v2(fields, attributes or {}, key, name) if version == 2 else _v3(fields, key, name)  # noqa: PLR2004


def _v2(fields: DocumentFields, attributes: Mapping[str, Any], key: str, name: str) -> Layout:
    shape, chunks, dtype = fields.sizes("shape", 0), fields.sizes("chunks", 1), v2_dtype(fields)
    _check_sizes(fields, "chunks", shape, chunks, dtype.itemsize)
    fields.chosen("order", ("C", "F"), "C")
    named = attributes.get("_ARRAY_DIMENSIONS")
    return Layout(
        key=key,
        name=name,
        shape=shape,
        dtype=dtype.newbyteorder("="),
        chunks=chunks,
        shards=None,
        fill=fill_value(fields, dtype, 2),
        dims=tuple(named) if _are_names(named, len(shape)) else (None,) * len(shape),
        attributes=attributes,
        document=fields.values,
        lead="",
        separator=fields.chosen("dimension_separator", (".", "/"), "."),
    )


def _v3(fields: DocumentFields, key: str, name: str) -> Layout:
    _check_v3(fields)
    shape, dtype = fields.sizes("shape", 0), v3_dtype(fields)
    grid, configuration = fields.extension("chunk_grid")
    if grid != "regular":
        raise fields.unsupported("chunk_grid", "chunks of one size (regular) are")
    chunks = configuration.sizes("chunk_shape", 1)
    inner = _inner(fields, configuration, chunks)
    _check_sizes(configuration, "chunk_shape", shape, inner or chunks, dtype.itemsize)
    dims = fields.values.get("dimension_names") or (None,) * len(shape)
    if not _are_names(dims, len(shape)):
        raise fields.damaged("dimension_names", "a name, or null, for each dimension")
    encoding, how = fields.extension("chunk_key_encoding")
    if encoding not in {"default", "v2"}:
        raise fields.unsupported("chunk_key_encoding", "default and v2 are")
    return Layout(
        key=key,
        name=name,
        shape=shape,
        dtype=dtype,
        chunks=inner or chunks,
        shards=chunks if inner else None,
        fill=fill_value(fields, dtype, 3),
        dims=tuple(dims),
        attributes=fields.mapping("attributes").values,
        document=fields.values,
        lead="c" if encoding == "default" else "",
        separator=how.chosen("separator", (".", "/"), "/" if encoding == "default" else "."),
    )


def _check_v3(fields: DocumentFields) -> None:
    """Raise for invalid required fields, and for unknown fields and extensions that must be understood."""
    if fields.values.get("node_type") != "array":
        raise fields.damaged("node_type", "'array'")
    if fields.values.get("storage_transformers"):
        raise fields.unsupported("storage_transformers", "none is")
    if not fields.extensions("codecs"):
        raise fields.damaged("codecs", "a list of codecs, one of them to bytes")
    for each, value in fields.values.items():
        if each not in _V3_FIELDS and not (isinstance(value, Mapping) and value.get("must_understand") is False):
            raise fields.unsupported(each, "no such field is known, and it must be understood")


def _inner(fields: DocumentFields, grid: DocumentFields, shards: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape of inner chunks that can be read one by one; None if chunks are decoded as a whole.

    The latter applies to shards that another codec changes, before or after (the places of inner chunks are unknown),
    and to shards whose index is not encoded as the specification proposes.
    """
    codecs = fields.extensions("codecs")
    name, configuration = codecs[0]
    if len(codecs) != 1 or name != "sharding_indexed":
        return None
    inner = configuration.sizes("chunk_shape", 1)
    if len(inner) != len(shards) or any(shard % chunk for shard, chunk in zip(shards, inner, strict=False)):
        raise configuration.damaged("chunk_shape", f"divisors of the shard's shape {list(shards)}")
    if prod(shards) // prod(inner) > _MOST_INNER:
        raise grid.unsupported("chunk_shape", f"a shard has at most {_MOST_INNER} inner chunks")
    return inner if form_of(configuration) else None


def _check_sizes(
    fields: DocumentFields, name: str, shape: tuple[int, ...], chunks: tuple[int, ...], item_bytes: int
) -> None:
    if len(chunks) != len(shape):
        raise fields.damaged(name, f"{len(shape)} numbers, one for each dimension")
    if prod(shape) * item_bytes > _MOST_ITEMS:
        raise fields.unsupported(name, f"the array has more than {_MOST_ITEMS} bytes")
    if prod(chunks) * item_bytes > _MOST_CHUNK_BYTES:
        raise fields.unsupported(
            name, f"a decoded chunk has at most {_MOST_CHUNK_BYTES >> 30} GiB, since it is in memory"
        )


def _are_names(found: object, count: int) -> TypeGuard[list[str | None] | tuple[str | None, ...]]:
    return (
        isinstance(found, list | tuple)
        and len(found) == count
        and all(each is None or isinstance(each, str) for each in found)
    )


# https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html#data-type-encoding
_V2 = re.compile(
    r"[<>|=]?(?:b1|[iu][1248]|f[248]|c8|c16|[SU][1-9]\d{0,5}|[mM]8(?:\[(?:[1-9]\d{0,8})?(?:Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\]))"
)
# https://zarr-specs.readthedocs.io/en/latest/v3/data-types/index.html
_V3 = {
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
}
_VARIABLE = {"string", "bytes", "variable_length_bytes", "vlen-utf8", "vlen-bytes"}
_UNITS = {"Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"}
_MOST_CHARACTERS = 1 << 20  # bytes of a fixed-length text
_WORDS = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
_VARIABLE_LENGTH = "values of variable length have no place in a tensor"


def v2_dtype(fields: DocumentFields) -> np.dtype[Any]:
    """Return the data type of ``.zarray``, in its stored byte order."""
    found = fields.values.get("dtype")
    if isinstance(found, list):
        raise fields.unsupported("dtype", "a structure is not one tensor")
    if not isinstance(found, str):
        raise fields.damaged("dtype", "a NumPy data type such as '<f4'")
    if _V2.fullmatch(found):
        return np.dtype(found)
    if found[-1:] == "O":
        raise fields.unsupported("dtype", _VARIABLE_LENGTH)
    raise fields.unsupported("dtype", "bool, int, uint, float and complex of NumPy's sizes are")


def v3_dtype(fields: DocumentFields) -> np.dtype[Any]:
    """Return the data type of ``zarr.json``, in native byte order: the codec ``bytes`` defines the stored order."""
    name, configuration = fields.extension("data_type")
    if name in _V3:
        return np.dtype(name)
    if name in {"numpy.datetime64", "numpy.timedelta64"}:
        unit, scale = configuration.values.get("unit"), configuration.values.get("scale_factor", 1)
        whole = isinstance(scale, int) and not isinstance(scale, bool)
        if not isinstance(unit, str) or unit not in _UNITS or not whole or not 1 <= scale < 1 << 31:
            raise fields.damaged("data_type", "a unit of time with a scale_factor from 1 on")
        return np.dtype(f"{name[6:]}[{scale}{unit}]")
    if name in {"fixed_length_utf32", "null_terminated_bytes"}:
        letter, width = ("U", 4) if name == "fixed_length_utf32" else ("S", 1)
        size = configuration.values.get("length_bytes")
        if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= _MOST_CHARACTERS or size % width:
            raise fields.damaged("data_type", "a text whose length_bytes is a whole number of characters")
        return np.dtype(f"{letter}{size // width}")
    if name in _VARIABLE:
        raise fields.unsupported("data_type", _VARIABLE_LENGTH)
    raise fields.unsupported("data_type", f"{', '.join(sorted(_V3))} are")


def fill_value(fields: DocumentFields, dtype: np.dtype[Any], version: int) -> np.generic:
    """Return ``fill_value`` as a scalar of the type in native byte order.

    If it is ``null`` in Zarr v2, return zero, or NaT for times and durations, as zarr does.
    """
    found, native = fields.values.get("fill_value"), dtype.newbyteorder("=")
    if found is None and version == 2:  # noqa: PLR2004  the format's version
        array = np.array("NaT", native) if native.kind in "mM" else np.zeros((), native)
    else:
        try:
            with np.errstate(all="ignore"):
                array = _decode_fill_value(found, native, version)
        except (ValueError, TypeError, OverflowError, binascii.Error):
            raise fields.damaged("fill_value", f"a value of the type {native}") from None
    scalar: np.generic = array.reshape(1)[0]
    return scalar


def _decode_fill_value(found: object, dtype: np.dtype[Any], version: int) -> np.ndarray[Any, Any]:
    """Return a fill value as a zero-dimensional array; raise ``ValueError`` or similar for a wrong type."""
    filled = np.zeros((), dtype)
    if dtype.kind == "c":
        if isinstance(found, int | float):
            found = (found, 0.0)
        if not isinstance(found, Sequence) or isinstance(found, str) or len(found) != 2:  # noqa: PLR2004  re, im
            raise ValueError
        part = np.dtype(f"f{dtype.itemsize // 2}")
        filled.real[...], filled.imag[...] = (_float(each, part) for each in found)
    elif dtype.kind == "f":
        filled[...] = _float(found, dtype)
    elif dtype.kind == "b":
        if found not in {False, True}:
            raise ValueError
        filled[...] = bool(found)
    elif dtype.kind in "iu":
        whole, bounds = _parse_whole(found), np.iinfo(dtype)
        # NumPy before 2 would wrap it around.
        if not bounds.min <= whole <= bounds.max:
            raise ValueError
        filled[...] = whole
    elif dtype.kind in "mM":
        filled[...] = np.array("NaT" if found == "NaT" else _parse_whole(found)).astype(dtype)
    else:
        filled[...] = _decode_fill_text(found, dtype, version)
    return filled


def _parse_whole(found: object) -> int:
    if isinstance(found, bool) or not isinstance(found, int | float) or found != int(found):
        raise ValueError
    return int(found)


def _float(found: object, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return a float from JSON: a number, a word ("NaN", …), or hexadecimal bits as in v3 ("0x7fc00001")."""
    if isinstance(found, str):
        if found in _WORDS:
            return np.array(_WORDS[found], dtype)
        if found[:2] == "0x" and len(found) - 2 in {4, 8, 16}:
            bits = np.frombuffer(bytes.fromhex(found[2:]), f">f{len(found) // 2 - 1}")
            return bits.astype(dtype)[0]  # type: ignore[no-any-return]
        return np.array(float(found), dtype)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise TypeError
    return np.array(float(found), dtype)


def _decode_fill_text(found: object, dtype: np.dtype[Any], version: int) -> str | bytes:
    """Return a text: bytes are decoded from Base64; in v2, 0 also means an empty text."""
    if found == 0 and version == 2:  # noqa: PLR2004
        return "" if dtype.kind == "U" else b""
    if not isinstance(found, str):
        raise ValueError  # noqa: TRY004  the caller reports damage
    text = found if dtype.kind == "U" else base64.b64decode(found.encode("ascii"), validate=True)
    if len(text) > dtype.itemsize // (4 if dtype.kind == "U" else 1):
        raise ValueError
    return text


_ENTRY_BYTES = 16  # offset and length of an inner chunk


class IndexForm(NamedTuple):
    """Encoding of an index: byte order, whether a CRC-32C follows, and whether it is at the end of the shard."""

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


def form_of(fields: DocumentFields) -> IndexForm | None:
    """Return the encoding of the index of a ``sharding_indexed`` configuration; None if only zarr can decode it."""
    end = fields.chosen("index_location", ("start", "end"), "end") == "end"
    codecs = fields.extensions("index_codecs")
    if [name for name, _ in codecs] not in (["bytes"], ["bytes", "crc32c"]):
        return None
    order = codecs[0][1].chosen("endian", ("little", "big"), "little")
    return IndexForm("<" if order == "little" else ">", len(codecs) > 1, end)


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
        raise Damaged(f"the index of the shard declares {entry} for its chunk {number}: impossible", url=url)
    return entries


def chunk_span(layout: Layout, chunk: tuple[int, ...], index: NDArray[np.uint64], etag: str = "") -> Span | None:
    """Return the location of an inner chunk by the index of its shard, whose version is ``etag``; None if absent."""
    offset, length = index[layout.inner(chunk)].tolist()
    return None if offset == ABSENT else Span(layout.object_key(chunk), offset, offset + length, etag)


def _read_index_form(layout: Layout) -> IndexForm:
    form = form_of(DocumentFields(sharding(layout)))
    if form is None:  # layout_of leaves `shards` None then
        raise Damaged("this array has no readable index of shards")
    return form


# Largest length along one dimension in NumPy.
_MOST = (1 << 63) - 1
_MOST_DIMENSIONS = 32  # limit of NumPy 1
_short = reprlib.Repr()
_short.maxlevel = 3


@dataclass(frozen=True, slots=True)
class DocumentFields:
    """JSON object of a document, and its location for errors.

    ``path`` is that within the document (``codecs[0].configuration``); empty for the document.
    """

    values: Mapping[str, Any]
    url: str = ""
    path: str = ""

    def damaged(self, name: str, expected: str) -> Damaged:
        """Return the error for an invalid field; ``expected`` describes valid values."""
        found = _short.repr(self.values[name]) if name in self.values else "missing"
        return Damaged(
            f"the Zarr metadata is damaged: field {self._path(name)!r} should be {expected}: {found}", url=self.url
        )

    def unsupported(self, name: str, reason: str) -> Unsupported:
        """Return the error for an unsupported value of a field; ``reason`` explains it."""
        found = _short.repr(self.values.get(name))
        return Unsupported(
            f"this Zarr array is not supported: field {self._path(name)!r} is {found}: {reason}", url=self.url
        )

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

    def mapping(self, name: str) -> DocumentFields:
        """Return the object in a field; empty if the field is missing."""
        found = self.values.get(name)
        if found is not None and not isinstance(found, Mapping):
            raise self.damaged(name, "an object")
        return DocumentFields(found or {}, self.url, self._path(name))

    def named(self, name: str, value: object) -> tuple[str, DocumentFields]:
        """Return name and configuration of a Zarr v3 extension: ``{"name": …, "configuration": {…}}``, or the name."""
        if isinstance(value, str):
            return value, DocumentFields({}, self.url, self._path(name))
        if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
            raise self.damaged(name, "an object with a name")
        inside = DocumentFields(value, self.url, self._path(name))
        return str(value["name"]), inside.mapping("configuration")

    def extension(self, name: str) -> tuple[str, DocumentFields]:
        """Return name and configuration of a field that is an extension point of Zarr v3."""
        return self.named(name, self.values.get(name))

    def extensions(self, name: str) -> list[tuple[str, DocumentFields]]:
        """Return names and configurations of a field that is a list of extensions; empty if the field is missing."""
        found = self.values.get(name)
        if found is None:
            return []
        if not isinstance(found, Sequence) or isinstance(found, str):
            raise self.damaged(name, "a list")
        return [self.named(name, each) for each in found]

    def _path(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name


def _is_size(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST
