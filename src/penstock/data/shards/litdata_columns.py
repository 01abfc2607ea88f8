"""Columns of LitData's samples: its serializers, from bytes to values. Pure.

Format: ``litdata/streaming/serializers.py`` of LitData 0.2.76. Serializers that can run code are refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache, partial
from json import loads
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.data.shards.mds_columns import as_image, as_text, as_view, check_count, list_parts
from penstock.errors import Damaged, Unsupported

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.data.shards.mds_columns import Decode

__all__ = ["decoder"]

# LitData's numbers of element types. Those of torch have synonyms, and bfloat16, 10, which NumPy lacks.
_NUMPY = dict(enumerate(("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", "?")))
_TORCH = {number: kind for kind, numbers in {
    "f4": (0, 1), "f8": (2, 3), "c8": (4, 5), "c16": (6, 7), "f2": (8, 9), "u1": (11,), "i1": (12,),
    "i2": (13, 14), "i4": (15, 16), "i8": (17, 18), "?": (19,), "u2": (20,),
}.items() for number in numbers}  # fmt: skip


def _kind(number: int, kinds: dict[int, str]) -> np.dtype[Any]:
    if number not in kinds:
        raise Unsupported(f"has elements of LitData's type {number}, which are no numbers of NumPy")
    return np.dtype(f"<{kinds[number]}")


def _array(kinds: dict[int, str], order: str, data: memoryview) -> NDArray[Any]:
    """Return an array behind its element type, number of axes and shape: uint32 each, in byte order ``order``."""
    number, axes = struct.unpack_from(f"{order}II", data)
    shape = struct.unpack_from(f"{order}{axes}I", data, 8)
    found = np.frombuffer(data[8 + 4 * axes :], _kind(number, kinds))
    check_count(prod(shape), found.size)
    # A copy may be written to, is aligned, and does not keep the block that was read.
    return found.reshape(shape).copy()


def _flat(kind: np.dtype[Any], data: memoryview) -> NDArray[Any]:
    return np.frombuffer(data, kind).copy()


def _bool(data: memoryview) -> bool:
    (found,) = struct.unpack("<?", data)
    return bool(found)


def _scalar(form: str, data: memoryview) -> Any:  # noqa: ANN401  a number
    (found,) = struct.unpack(form, data)
    return found


class _Nested:
    """Lists and dicts as LitData writes them: a byte that says what follows, and numbers of 32 bits.

    The numbers are not trusted: each element takes at least a byte, of which there are as many as the sample has.
    """

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def value(self) -> Any:  # noqa: ANN401  any value of JSON
        """Return the next value."""
        tag = self.number("<B")
        if tag in _SCALARS:
            return _SCALARS[tag](self)
        count = self.number("<I")
        if tag == 0:
            return loads(as_text(self._bytes(count)))
        if tag in (2, 3, 4):
            kind = np.dtype(("<i8", "<f8", "?")[tag - 2])
            return np.frombuffer(self._bytes(count * kind.itemsize), kind).tolist()
        if tag == 1:
            return [self.text() for _ in range(count)]
        if tag == 5:  # noqa: PLR2004  a dict
            return {self.text(): self.value() for _ in range(count)}
        if tag == 6:  # noqa: PLR2004  dicts with the same keys
            keys = [self.text() for _ in range(self.number("<I"))]
            if not keys:
                raise Damaged("its records have no keys")
            return [{key: _RECORDS[self.number("<B")](self) for key in keys} for _ in range(count)]
        raise Damaged(f"it has the tag {tag}, which is unknown")

    def text(self) -> str:
        """Return the next text, behind its length."""
        return as_text(self._bytes(self.number("<I")))

    def end(self) -> None:
        """Raise ``Damaged`` if bytes are left."""
        if self._at != len(self._data):
            raise Damaged(f"it ends at byte {self._at} of {len(self._data)}")

    def number(self, form: str) -> Any:  # noqa: ANN401  as ``form`` has it
        """Return the next number."""
        (found,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return found

    def _bytes(self, count: int) -> memoryview:
        found = self._data[self._at : self._at + count]
        if len(found) < count:
            raise Damaged(f"it states {count} bytes at byte {self._at}, and has {len(self._data)}")
        self._at += count
        return found


def _none(_: _Nested) -> None:
    pass


_Read = Callable[[_Nested], Any]
_PLAIN: tuple[_Read, ...] = (
    _Nested.text,
    partial(_Nested.number, form="<q"),
    partial(_Nested.number, form="<d"),
    partial(_Nested.number, form="<?"),
)
# By the tags of values, and of values of records.
_SCALARS: dict[int, _Read] = dict(enumerate((*_PLAIN, _none), 7))
_RECORDS: dict[int, _Read] = dict(enumerate((_none, *_PLAIN), 16))


def _nested(data: memoryview) -> Any:  # noqa: ANN401  any value of JSON
    # Older versions wrote JSON, which begins with none of the tags.
    if len(data) and data[0] > 0x20:  # noqa: PLR2004  the last byte that no text of JSON begins with
        return loads(as_text(data))
    nested = _Nested(data)
    found = nested.value()
    nested.end()
    return found


_DECODE: dict[str, Decode] = {
    **dict.fromkeys(("bytes", "jpeg", "image", "video", "audio", "file", "tiff", "tifffile"), as_view),
    **dict.fromkeys(("str", "text"), as_text),
    "bool": _bool,
    "int": partial(_scalar, "<q"),
    "float": partial(_scalar, "<d"),
    "json": _nested,
    "pil": as_image,
    "jpeg_array": lambda data: [bytes(each) for each in list_parts(data, 0)],
    "numpy": partial(_array, _NUMPY, "<"),
    "tensor": partial(_array, _TORCH, ">"),
}


@lru_cache(maxsize=256)
def decoder(encoding: str) -> Decode:
    """Return the function that decodes values of one of LitData's serializers: ``"jpeg"``, ``"no_header_numpy:9"``.

    Raises:
        Unsupported: The serializer is unknown, or runs code.

    """
    name, _, rest = encoding.partition(":")
    if name in ("no_header_numpy", "no_header_tensor") and rest.isdecimal() and len(rest) < 4:  # noqa: PLR2004  digits
        return partial(_flat, _kind(int(rest), _NUMPY if name == "no_header_numpy" else _TORCH))
    if name in _DECODE:
        return _DECODE[name]
    if name in ("pickle", "graph"):
        raise Unsupported("is a pickle, or holds one, which can run any code when it is read")
    raise Unsupported(f"has the serializer {encoding!r}, which is not read")
