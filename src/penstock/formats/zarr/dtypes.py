"""Data types and fill values of Zarr v2 and v3 as NumPy's."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from penstock.formats.zarr.fields import Fields

__all__ = ["fill_value", "v2_dtype", "v3_dtype"]

# https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html#data-type-encoding
_V2 = re.compile(
    r"[<>|=]?(?:b1|[iu][1248]|f[248]|c8|c16|[SU][1-9]\d{0,5}|[mM]8(?:\[\d{0,9}(?:Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\]))"
)
# https://zarr-specs.readthedocs.io/en/latest/v3/data-types/index.html
_V3 = {
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
}
_VARIABLE = {"string", "bytes", "variable_length_bytes", "vlen-utf8", "vlen-bytes"}
_UNITS = {"Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"}
_MOST_CHARACTERS = 1 << 20  # of a fixed-length text
_WORDS = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
_VARIABLE_LENGTH = "values of variable length have no place in a tensor"


def v2_dtype(fields: Fields) -> np.dtype[Any]:
    """Return the data type of ``.zarray``, in the byte order that it is stored in.

    Raises:
        Unsupported: Structures, objects (texts of variable length), raw bytes.
        Damaged: No data type.

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
    """Return the data type of an array's ``zarr.json``, in native byte order: the codec ``bytes`` says the stored one.

    Raises:
        Unsupported: Another type than NumPy's bool, integers, floats, complex numbers, times, texts of fixed length.
        Damaged: No data type.

    """
    name, configuration = fields.extension("data_type")
    if name in _V3:
        return np.dtype(name)
    if name in {"numpy.datetime64", "numpy.timedelta64"}:
        unit, scale = configuration.values.get("unit"), configuration.values.get("scale_factor", 1)
        if unit not in _UNITS or not isinstance(scale, int) or not 1 <= scale < 1 << 31:
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
    """Return ``fill_value`` as a scalar of the type in native byte order; zero where Zarr v2 has none (``null``)."""
    found, native = fields.values.get("fill_value"), dtype.newbyteorder("=")
    if found is None and version == 2:  # noqa: PLR2004  the format's version
        return _scalar(np.zeros((), native))
    try:
        with np.errstate(all="ignore"):
            return _scalar(_filled(found, native, version))
    except (ValueError, TypeError, OverflowError, binascii.Error):
        raise fields.damaged("fill_value", f"a value of the type {native}") from None


def _scalar(array: np.ndarray[Any, Any]) -> np.generic:
    scalar: np.generic = array.reshape(1)[0]
    return scalar


def _filled(found: object, dtype: np.dtype[Any], version: int) -> np.ndarray[Any, Any]:
    """Return a fill value as an array of no dimensions. ``ValueError`` and the like where it has another type."""
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
    """Return a float of JSON: a number, a word for what JSON has not, or v3's hexadecimal bits ("0x7fc00001")."""
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
    """Return a text: Base64 for bytes; in v2 0 stands for an empty one, too."""
    if found == 0 and version == 2:  # noqa: PLR2004
        return "" if dtype.kind == "U" else b""
    if not isinstance(found, str):
        raise ValueError  # noqa: TRY004  told as damage by the caller
    text = found if dtype.kind == "U" else base64.b64decode(found.encode("ascii"), validate=True)
    if len(text) > np.zeros((), dtype).itemsize:
        raise ValueError
    return text
