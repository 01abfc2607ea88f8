"""Layouts from metadata documents (``.zarray``, ``zarr.json``). Documents are untrusted: fields are checked."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, TypeGuard

import numpy as np

from penstock.data.zarr.format.index import Fields, form_of
from penstock.data.zarr.format.layout import Layout
from penstock.errors import Damaged

__all__ = ["fill_value", "layout_of", "v2_dtype", "v3_dtype"]

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

    Args:
        document: The document.
        attributes: Contents of ``.zattrs``, for Zarr v2; in v3 the document contains the attributes.
        key: Location of the array's objects: a prefix, empty or ending in ``/``.
        name: Path of the array below the opened array or group.
        url: URL of the document, for errors.

    Raises:
        Damaged: The document does not follow the specification, or its values are impossible.
        Unsupported: The document uses an extension that Penstock does not support; the message names the field.

    """
    if not isinstance(document, Mapping):
        raise Damaged("the Zarr metadata is damaged: the document should be a JSON object", url=url)
    fields = Fields(document, url)
    version = document.get("zarr_format")
    if isinstance(version, bool) or not isinstance(version, int) or version not in {2, 3}:
        raise fields.damaged("zarr_format", "2 or 3")
    return _v2(fields, attributes or {}, key, name) if version == 2 else _v3(fields, key, name)  # noqa: PLR2004


def _v2(fields: Fields, attributes: Mapping[str, Any], key: str, name: str) -> Layout:
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


def _v3(fields: Fields, key: str, name: str) -> Layout:
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


def _check_v3(fields: Fields) -> None:
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


def _inner(fields: Fields, grid: Fields, shards: tuple[int, ...]) -> tuple[int, ...] | None:
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


def _check_sizes(fields: Fields, name: str, shape: tuple[int, ...], chunks: tuple[int, ...], item_bytes: int) -> None:
    if len(chunks) != len(shape):
        raise fields.damaged(name, f"{len(shape)} numbers, one for each dimension")
    if prod(shape) * item_bytes > _MOST_ITEMS:
        raise fields.unsupported(name, f"the array has more than {_MOST_ITEMS} bytes")
    if prod(chunks) * item_bytes > _MOST_CHUNK_BYTES:
        raise fields.unsupported(
            name, f"a decoded chunk has at most {_MOST_CHUNK_BYTES >> 30} GiB, since it lies in memory"
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


def v2_dtype(fields: Fields) -> np.dtype[Any]:
    """Return the data type of ``.zarray``, in its stored byte order.

    Raises:
        Unsupported: The type is a structure, object (text of variable length), raw bytes or another unknown type.
        Damaged: The field is not a data type.

    """
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


def v3_dtype(fields: Fields) -> np.dtype[Any]:
    """Return the data type of ``zarr.json``, in native byte order: the codec ``bytes`` defines the stored order.

    Raises:
        Unsupported: The type is not a NumPy bool, integer, float, complex number, time, or text of fixed length.
        Damaged: The field is not a valid data type.

    """
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


def fill_value(fields: Fields, dtype: np.dtype[Any], version: int) -> np.generic:
    """Return ``fill_value`` as a scalar of the type in native byte order.

    If it is ``null`` in Zarr v2, return zero, or NaT for times and durations, as zarr does.
    """
    found, native = fields.values.get("fill_value"), dtype.newbyteorder("=")
    if found is None and version == 2:  # noqa: PLR2004  the format's version
        return _scalar(np.array("NaT", native) if native.kind in "mM" else np.zeros((), native))
    try:
        with np.errstate(all="ignore"):
            return _scalar(_filled(found, native, version))
    except (ValueError, TypeError, OverflowError, binascii.Error):
        raise fields.damaged("fill_value", f"a value of the type {native}") from None


def _scalar(array: np.ndarray[Any, Any]) -> np.generic:
    scalar: np.generic = array.reshape(1)[0]
    return scalar


def _filled(found: object, dtype: np.dtype[Any], version: int) -> np.ndarray[Any, Any]:
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
        filled[...] = np.array(_whole(found), dtype)
    elif dtype.kind in "mM":
        filled[...] = np.array("NaT" if found == "NaT" else _whole(found)).astype(dtype)
    else:
        filled[...] = _text(found, dtype, version)
    return filled


def _whole(found: object) -> int:
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


def _text(found: object, dtype: np.dtype[Any], version: int) -> str | bytes:
    """Return a text: bytes are decoded from Base64; in v2, 0 also means an empty text."""
    if found == 0 and version == 2:  # noqa: PLR2004
        return "" if dtype.kind == "U" else b""
    if not isinstance(found, str):
        raise ValueError  # noqa: TRY004  the caller reports damage
    text = found if dtype.kind == "U" else base64.b64decode(found.encode("ascii"), validate=True)
    if len(text) > dtype.itemsize // (4 if dtype.kind == "U" else 1):
        raise ValueError
    return text
