"""Columns of MDS samples: the encodings of mosaicml-streaming, from bytes to values and back. Pure.

Format: ``streaming/base/format/mds/encodings.py`` of mosaicml-streaming 0.13. A sample is the sizes of the values of
variable size, a uint32 each, and then all values, both in the order of the columns. Numbers are little-endian.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from functools import lru_cache
from json import loads
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from penstock.errors import Damaged, Unsupported, Unusable

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Decode = Callable[[memoryview], Any]
    Decoder = Callable[[str], Decode]  # of an encoding; raises ``Unsupported`` for one that cannot be read

_ERRORS = (
    Damaged,
    Unsupported,
    ValueError,
    ArithmeticError,
    IndexError,
    KeyError,
    TypeError,
    RecursionError,
    struct.error,
)
SCALARS = {f"{kind}{bits}" for kind in ("uint", "int") for bits in (8, 16, 32, 64)} | {"float16", "float32", "float64"}
# Numbers of element types in front of arrays of any type.
TYPES = {bits + at: f"{kind}{bits}" for bits in (8, 16, 32, 64) for at, kind in enumerate(("uint", "int"))}
TYPES |= {18: "float16", 34: "float32", 66: "float64"}
_SIZES = ("<u1", "<u2", "<u4", "<u8")
# Element type and bands of Pillow's modes; those of "1" are bits.
_MODES = {
    "1": ("u1", 1),
    "L": ("u1", 1),
    "P": ("u1", 1),
    "I": ("<i4", 1),
    "F": ("<f4", 1),
    "I;16": ("<u2", 1),
    "I;16L": ("<u2", 1),
    "I;16B": (">u2", 1),
    **dict.fromkeys(("LA", "La", "PA"), ("u1", 2)),
    **dict.fromkeys(("RGB", "YCbCr", "LAB", "HSV"), ("u1", 3)),
    **dict.fromkeys(("RGBA", "RGBa", "RGBX", "CMYK"), ("u1", 4)),
}


class MDSColumn(NamedTuple):
    """A column: its encoding has arguments, ``"ndarray:float32:3,4"``; its size is None if those of values differ."""

    name: str
    encoding: str
    size: int | None


class _WantedLayout(NamedTuple):
    """Columns, some of them decoded: name, size, and the function for wanted columns."""

    sizes: struct.Struct
    columns: tuple[tuple[str, int | None, Decode | None], ...]


def as_view(data: memoryview) -> memoryview:
    return data


def as_text(data: memoryview) -> str:
    return str(data, "utf-8")


def _int(data: memoryview) -> int:
    return int.from_bytes(data, "little", signed=True)


def pillow_parts(data: memoryview) -> tuple[str, tuple[int, int], memoryview]:
    """Return the mode, the size (width, height) and the pixels of an image as Pillow has them in memory."""
    width, height, length = struct.unpack_from("<III", data)
    return str(data[12 : 12 + length], "ascii"), (width, height), data[12 + length :]


def as_image(data: memoryview) -> NDArray[Any]:
    """Return the pixels of an image of Pillow: shape (height, width), or (height, width, bands)."""
    mode, (width, height), pixels = pillow_parts(data)
    if mode not in _MODES:
        raise Unsupported(f"the image has the mode {mode!r}, which arrays lack: leave its column out (fields=…)")
    kind, bands = _MODES[mode]
    if mode == "1":
        row = -(-width // 8)
        check_count(row * height, len(pixels))
        bits = np.unpackbits(np.frombuffer(pixels, np.uint8).reshape(height, row), axis=1, count=width)
        return bits.astype(bool)
    found = np.frombuffer(pixels, kind)
    check_count(width * height * bands, found.size)
    return found.reshape((height, width, bands) if bands > 1 else (height, width)).copy()


def check_count(stated: int, there: int) -> None:
    """Raise ``Damaged`` if a value has another number of elements than its header states."""
    if stated != there:
        raise Damaged(f"its header declares {stated} elements, but it has {there}")


def list_parts(data: memoryview, start: int) -> list[memoryview]:
    """Return the parts of a list: their number at byte ``start``, the bytes of each, and all parts."""
    (count,) = struct.unpack_from("<I", data, start)
    at = start + 4 + 4 * count
    if at > len(data):
        raise Damaged(f"it declares {count} elements in {len(data)} bytes")
    ends = np.cumsum(np.frombuffer(data[start + 4 : at], "<u4"), dtype=np.int64) + at
    if (ends[-1] if count else at) != len(data):
        raise Damaged(f"the sizes of its {count} elements are not those of its {len(data)} bytes")
    found = []
    for stop in ends.tolist():
        found.append(data[at:stop])
        at = stop
    return found


class _Array(NamedTuple):
    """The encoding of arrays, with the common element type and shape, if any."""

    kind: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int | None:
        return prod(self.shape) * np.dtype(self.kind).itemsize if self.kind and self.shape else None

    def decode(self, data: memoryview) -> NDArray[Any]:
        kind, shape, at = self.kind, self.shape, 0
        if not kind:
            kind, at = TYPES[data[0]], 1
        if not shape:
            axes, width = data[at] >> 2, 1 << (data[at] & 3)
            at += 1 + axes * width
            if at > len(data):
                raise Damaged(f"it declares {axes} axes in {len(data)} bytes")
            shape = tuple(np.frombuffer(data[at - axes * width : at], _SIZES[width.bit_length() - 1]).tolist())
        found = np.frombuffer(data[at:], f"<{np.dtype(kind).str[1:]}")
        check_count(prod(shape), found.size)
        # A copy may be written to, is aligned, and does not keep the block that was read.
        return found.reshape(shape).copy()


_DECODE: dict[str, Decode] = {
    "bytes": as_view,
    "jpeg": as_view,
    "png": as_view,
    "str": as_text,
    "int": _int,
    "str_int": lambda data: int(as_text(data)),
    "str_float": lambda data: float(as_text(data)),
    "str_decimal": lambda data: Decimal(as_text(data)),
    "json": lambda data: loads(as_text(data)),
    "pil": as_image,
    "jpeg_array": lambda data: [bytes(each) for each in list_parts(data, 0)],
    "jpegarray": lambda data: [bytes(each) for each in list_parts(data, 0)],
    # Four bytes are reserved.
    "list[jpeg]": lambda data: [bytes(each) for each in list_parts(data, 4)],
    "list[png]": lambda data: [bytes(each) for each in list_parts(data, 4)],
    "list[pil]": lambda data: [as_image(each) for each in list_parts(data, 4)],
}


@lru_cache(maxsize=256)
def _coder(encoding: str) -> tuple[Decode, int | None]:
    """Return the function that decodes values of an encoding, and their bytes, None if these differ."""
    if encoding == "int":
        return _int, 8
    if encoding in _DECODE:
        return _DECODE[encoding], None
    if encoding in SCALARS:
        scalar = np.dtype(encoding).newbyteorder("<")
        return lambda data: np.frombuffer(data, scalar)[0], scalar.itemsize
    name, _, rest = encoding.partition(":")
    if name == "ndarray":
        kind, _, shape = rest.partition(":")
        sizes = shape.split(",") if shape else []
        if (not kind or kind in SCALARS) and all(each.isdecimal() and len(each) < 20 and int(each) for each in sizes):  # noqa: PLR2004  digits of 64 bits
            array = _Array(kind, tuple(map(int, sizes)))
            return array.decode, array.size
    if name == "pkl":
        raise Unsupported("is a pickle, which can run any code when it is read")
    raise Unsupported(f"has the encoding {encoding!r}, which is unknown")


def decoder(encoding: str) -> Decode:
    return _coder(encoding)[0]


def stored(encoding: str) -> Decode:  # noqa: ARG001  as ``decoder``
    """Return the function that takes the raw bytes of a value, for any encoding."""
    return as_view


def refusal(encoding: str, coder: Decoder = decoder) -> str:
    """Return why values of an encoding cannot be read, as the end of a sentence; empty if readable."""
    try:
        coder(encoding)
    except Unsupported as error:
        return error.message
    return ""


def fixed_size(encoding: str) -> int | None:
    """Return the bytes of each value of an encoding that can be read; None if these differ."""
    return _coder(encoding)[1]


def columns_of_file(given: Any) -> tuple[MDSColumn, ...]:  # noqa: ANN401  may come from a file
    """Return columns, which may come from a file."""
    try:
        found: Any = tuple(MDSColumn(*each) for each in given)
        valid = all(
            isinstance(name, str) and isinstance(encoding, str) and (size is None or (type(size) is int and size > 0))
            for name, encoding, size in found
        )
    except TypeError:
        valid = False
    if not valid:
        raise Unusable(f"columns must be triples of name, encoding and size, got {given!r:.200}")
    return cast("tuple[MDSColumn, ...]", found)


@lru_cache(maxsize=256)
def _layout(columns: tuple[MDSColumn, ...], wanted: tuple[str, ...], coder: Decoder) -> _WantedLayout:
    names = {*wanted}
    return _WantedLayout(
        struct.Struct(f"<{sum(each.size is None for each in columns)}I"),
        tuple(
            (
                each.name,
                each.size,
                coder(each.encoding) if not names or each.name in names else None,
            )
            for each in columns
        ),
    )


def _make_column_error(column: MDSColumn, error: Exception) -> Exception:
    if isinstance(error, Unsupported):
        return error
    why = error.message if isinstance(error, Damaged) else repr(error)
    return Damaged(f"the column {column.name!r} ({column.encoding}) is damaged: {why}")


def value_of(column: MDSColumn, data: memoryview) -> Any:  # noqa: ANN401  as the column has it
    """Return the value that the bytes of a column stand for; bytes are a view of ``data``."""
    try:
        return _coder(column.encoding)[0](data)
    except _ERRORS as error:
        raise _make_column_error(column, error) from error


def decode_columns(
    data: memoryview, columns: tuple[MDSColumn, ...], wanted: tuple[str, ...], coder: Decoder = decoder
) -> dict[str, Any]:
    """Return the values of the wanted columns of a sample (none wanted: all), in their order; bytes are views."""
    heads, layout = _layout(columns, wanted, coder)
    at, end = heads.size, len(data)
    if at > end:
        raise Damaged(f"{end} bytes are fewer than the sizes of its columns")
    sizes = iter(heads.unpack_from(data))
    values = dict[str, Any]()
    name = ""
    try:
        for name, size, decode in layout:
            start = at
            at += next(sizes) if size is None else size
            if decode is not None:
                if at > end:
                    break
                values[name] = decode(data[start:at])
    except _ERRORS as error:
        raise _make_column_error(next(each for each in columns if each.name == name), error) from error
    if at > end:
        raise Damaged(f"the column {name!r} ends at byte {at} of a sample of {end}")
    if at != end:
        raise Damaged(f"the columns of a sample of {end} bytes end at byte {at}")
    return {name: values[name] for name in wanted} if wanted else values
