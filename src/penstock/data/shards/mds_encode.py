"""MDS files written: the bytes of a sample from its values, and those around the samples of a shard. Pure.

With the same columns, limit and hash, the bytes are those of mosaicml-streaming's ``MDSWriter``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

import numpy as np

from penstock.data.shards.mds_columns import SCALARS, TYPES, MDSColumn, decode_columns, fixed_size
from penstock.errors import Damaged, Unsupported, Unusable, add_article, kind_of

MDS_BYTES = 64 << 20  # MDSWriter's limit of a shard
MOST_BYTES = (1 << 32) - 1  # offsets have 32 bits
_RAW = ("bytes", "jpeg", "png")
_LISTS = {"jpeg_array": 0, "jpegarray": 0, "list[jpeg]": 4, "list[png]": 4}
_TEXTS: dict[str, type] = {"str": str, "str_int": int, "str_float": float, "str_decimal": Decimal}
_NUMBERS = {*SCALARS, "int"}
# Encodings of Python's types, of which the first that fits is taken.
_KINDS = ((bool, "json"), (int, "int"), (str, "str"), (Decimal, "str_decimal"), (float, "float64"))
_IMAGES = {"jpg": "jpeg", "jpeg": "jpeg", "png": "png"}
_WRITTEN = {*_RAW, *_LISTS, *_TEXTS, *_NUMBERS, "json"}
_Bytes = (bytes, bytearray, memoryview)


def columns_from(given: object) -> tuple[MDSColumn, ...]:
    """Return the columns that a mapping from names to encodings describes, sorted by name as ``MDSWriter`` does."""
    if not isinstance(given, Mapping) or not given or not all(isinstance(each, str) and each for each in given):
        raise Unusable(f'columns must be a mapping from names to encodings, {{"image": "jpeg"}}, got {given!r:.200}')
    found = []
    for name in sorted(given):
        encoding = given[name]
        written = isinstance(encoding, str) and (encoding in _WRITTEN or encoding.partition(":")[0] == "ndarray")
        try:
            size = fixed_size(encoding) if written else None
        except Unsupported:
            written = False
        if not written:
            raise Unusable(
                f"cannot write the column {name!r} as {encoding!r}: encodings are {', '.join(sorted(_WRITTEN))}, "
                "ndarray, ndarray:float32 and ndarray:float32:3,224"
            )
        found.append(MDSColumn(name, encoding, size))
    return tuple(found)


def encoding_of(name: str, value: object, known: str = "") -> str:
    """Return the encoding of a column, from one of its values and its encoding in other MDS shards."""
    if known in _WRITTEN or known.startswith("ndarray"):
        return known
    found = _infer_encoding(name, value)
    if not found:
        raise Unusable(
            f"the column {name!r} is {kind_of(value)}, which MDS cannot encode: leave it out "
            "(columns={…}), or turn it into bytes"
        )
    return found


def _infer_encoding(name: str, value: object) -> str:
    if isinstance(value, _Bytes):
        return _IMAGES.get(name.lower(), "bytes")
    if isinstance(value, (np.ndarray, np.generic)):
        kind, single = value.dtype.name, isinstance(value, np.generic)
        # Mosaic has no truth values.
        known = dict.fromkeys(SCALARS, kind if single else "ndarray") | ({"bool": "json"} if single else {})
        return known.get(kind, "")
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return "str_int"
    for kind, encoding in _KINDS:
        if isinstance(value, kind):
            return encoding
    with suppress(TypeError, ValueError):
        json.dumps(value)
        return "json"
    return ""


def encoded_row(values: Mapping[str, Any], columns: Sequence[MDSColumn]) -> bytes:
    sizes, parts = [], []
    for column in columns:
        name, encoding, size = column
        if name not in values:
            raise Unusable(
                f"the sample has no field {name!r}, only {', '.join(values)}: MDS needs the same fields in every sample"
            )
        value = values[name]
        try:
            data = _encode_value(value, encoding)
        except (TypeError, ValueError, ArithmeticError, Damaged) as error:
            raise Unusable(
                f"cannot write {value!r:.60} as {encoding!r}, which is the encoding of the column {name!r} ({error}): "
                "pass columns={…} with another"
            ) from None
        if size is None:
            sizes.append(len(data))
        parts.append(data)
    if sum(sizes) > MOST_BYTES:
        raise Unusable(f"the sample has {sum(sizes)} bytes, but MDS allows {MOST_BYTES}")
    return b"".join((struct.pack(f"<{len(sizes)}I", *sizes), *parts))


def _encode_value(value: Any, encoding: str) -> bytes:  # noqa: ANN401  any value
    if isinstance(value, _Bytes):
        return bytes(value) if encoding in _RAW else _from_text(bytes(value), encoding)
    if encoding in _RAW:
        raise TypeError("it must be bytes")
    if encoding == "json":
        return json.dumps(value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value).encode()
    if encoding in _TEXTS:
        kind = _TEXTS[encoding]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise TypeError(f"{add_article(kind.__name__)} is needed")
        return str(value).encode()
    if encoding in _LISTS:
        return _encode_list(value, _LISTS[encoding])
    return _encode_number(value, encoding) if encoding in _NUMBERS else _array(value, encoding)


def _encode_list(value: Sequence[Any], reserved: int) -> bytes:
    if not all(isinstance(each, _Bytes) for each in value):
        raise TypeError("a list of bytes is needed")
    parts = [*map(bytes, value)]
    return bytes(reserved) + struct.pack(f"<{len(parts) + 1}I", len(parts), *map(len, parts)) + b"".join(parts)


def _from_text(data: bytes, encoding: str) -> bytes:
    """Return the bytes of a column from its text, as objects store it."""
    if encoding in _NUMBERS:
        text = data.decode()
        return _encode_number(float(text) if encoding.startswith("float") else int(text), encoding)
    if encoding in _LISTS or encoding.startswith("ndarray"):
        raise TypeError("bytes have no type and no shape")
    # Whatever a reader would make of it must be possible.
    decode_columns(memoryview(struct.pack("<I", len(data)) + data), (MDSColumn("value", encoding, None),), ())
    return data


def _encode_number(value: object, encoding: str) -> bytes:
    kind = np.dtype("int64" if encoding == "int" else encoding)
    if not isinstance(value, (int, float, np.number)) or isinstance(value, bool):
        raise TypeError("a number is needed")
    if kind.kind == "f":
        with np.errstate(over="raise"):
            return np.array(value, kind.newbyteorder("<")).tobytes()
    if isinstance(value, (float, np.floating)):
        raise TypeError("a whole number is needed")
    return int(value).to_bytes(kind.itemsize, "little", signed=kind.kind == "i")


def _array(value: object, encoding: str) -> bytes:
    _, _, rest = encoding.partition(":")
    kind, _, shape = rest.partition(":")
    if not isinstance(value, np.ndarray):
        raise TypeError("an array is needed")
    name = value.dtype.name
    if name not in TYPES.values() or (kind and name != kind):
        raise TypeError(f"its type is {name}")
    if not value.size or not value.ndim or value.ndim > 63:  # noqa: PLR2004  six bits
        raise ValueError(f"its shape is {value.shape}")
    head = b"" if kind else bytes([next(number for number, each in TYPES.items() if each == name)])
    if not shape:
        width = next(width for width in range(4) if max(value.shape) < 1 << (8 << width))
        head += bytes([value.ndim << 2 | width]) + np.array(value.shape, f"<u{1 << width}").tobytes()
    elif ",".join(map(str, value.shape)) != shape:
        raise ValueError(f"its shape is {value.shape}")
    return head + value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes()


def _config(columns: Sequence[MDSColumn], size_limit: int | None) -> dict[str, Any]:
    return {
        "column_encodings": [each.encoding for each in columns],
        "column_names": [each.name for each in columns],
        "column_sizes": [each.size for each in columns],
        "compression": None,
        "format": "mds",
        "hashes": ["sha256"],
        "size_limit": size_limit,
        "version": 2,
    }


def header(columns: Sequence[MDSColumn], sizes: Sequence[int], size_limit: int | None) -> bytes:
    """Return the header of a shard whose samples have these sizes in bytes."""
    text = json.dumps(_config(columns, size_limit), sort_keys=True).encode()
    offsets = np.cumsum([8 + 4 * len(sizes) + len(text), *sizes], dtype=np.int64)
    if offsets[-1] > MOST_BYTES:
        raise Unusable(f"an MDS shard cannot have {int(offsets[-1])} bytes: at most {MOST_BYTES}")
    return len(sizes).to_bytes(4, "little") + offsets.astype("<u4").tobytes() + text


def index_json(
    columns: Sequence[MDSColumn], shards: Sequence[tuple[str, int, int, str]], size_limit: int | None
) -> bytes:
    """Return the index.json of shards: the name, the number of samples, the bytes and the SHA-256 of each."""
    described = [
        _config(columns, size_limit)
        | {
            "samples": samples,
            "zip_data": None,
            "raw_data": {"basename": name, "bytes": size, "hashes": {"sha256": digest}},
        }
        for name, samples, size, digest in shards
    ]
    return json.dumps({"version": 2, "shards": described}, sort_keys=True).encode()
