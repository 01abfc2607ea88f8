"""Columns of byte arrays in a Parquet file, cut into views of their pages without a copy. Pure.

Arrow copies each value into a buffer that grows: twice the memory, and most of it fresh. Pages that are not compressed
are cut in place; others are unpacked once. Only columns without nulls, in plain pages or with a dictionary:
pyarrow decodes all others, and refuses damaged ones.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

from penstock.data.parquet import libraries, read_varint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.data.parquet import ColumnPage

_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3  # types of pages
_PLAIN, _PLAIN_DICTIONARY, _RLE, _RLE_DICTIONARY = 0, 2, 3, 8  # encodings
_NONE, _SNAPPY, _ZSTD = 0, 1, 6  # codecs whose output has the stated size, or which can be compared with it
_MOST_BITS = 32


def byte_views(
    chunk: memoryview, pages: Iterable[ColumnPage], codec: int, levels: int, values: int
) -> list[memoryview] | None:
    """Return the values of a column of byte arrays; None if pyarrow must decode or refuse the column.

    ``chunk`` has the bytes of the column in a row group, and ``pages`` sizes that were checked for plausibility.
    ``levels`` is the definition level of a value that is there: the number of optional fields from the row down to it.
    """
    if codec not in (_NONE, _SNAPPY, _ZSTD):
        return None
    found: list[memoryview] = []
    try:
        dictionary: list[memoryview] = []
        for page in pages:
            body = chunk[page.start : page.stop]
            if len(body) < page.stop - page.start or not _intact(body, page):
                return None
            if page.header.get(1) == _DICTIONARY:
                dictionary = _decode_byte_arrays(_unpack_page(body, page.unpacked, codec), page.header[7][1])
            else:
                found += _values(body, page, codec, levels, dictionary)
    except Exception:  # noqa: BLE001  of the bytes, or of pyarrow's codecs: pyarrow says what is wrong
        return None
    return found if len(found) == values else None


def _intact(body: memoryview, page: ColumnPage) -> bool:
    crc = page.header.get(4)
    return crc is None or zlib.crc32(body) == crc & 0xFFFFFFFF


def _values(
    body: memoryview, page: ColumnPage, codec: int, levels: int, dictionary: list[memoryview]
) -> list[memoryview]:
    kind, header = page.header.get(1), page.header
    if kind == _DATA:
        about, body = header[5], _unpack_page(body, page.unpacked, codec)
        encoding, bits = about[2], body[:0]
        if levels:
            size = int.from_bytes(body[:4], "little")
            if about.get(3) != _RLE or size > len(body) - 4:
                raise ValueError("levels of an unknown encoding")
            bits, body = body[4 : 4 + size], body[4 + size :]
    elif kind == _DATA_V2:
        about = header[8]
        encoding, size = about[4], about[5]
        if about[2] or about[6] or not 0 <= size <= len(body):
            raise ValueError("nulls, or lists")
        bits, body = body[:size], body[size:]
        body = _unpack_page(body, page.unpacked - size, _NONE if about.get(7) is False else codec)
    else:
        raise ValueError("a page of an unknown kind")
    if levels and any(each != levels for each in _hybrid(bits, levels.bit_length(), page.values)):
        raise ValueError("nulls")
    if encoding == _PLAIN:
        return _decode_byte_arrays(body, page.values)
    if encoding not in (_PLAIN_DICTIONARY, _RLE_DICTIONARY):
        raise ValueError("another encoding")
    numbers = _hybrid(body[1:], body[0], page.values)
    return [dictionary[number] for number in numbers]


def _unpack_page(body: memoryview, size: int, codec: int) -> memoryview:
    """Return the bytes of a page, of the stated size."""
    if codec == _NONE:
        if len(body) != size:
            raise ValueError("a page of the wrong size")
        return body
    # Snappy would leave the rest as it was found, where its bytes are fewer than stated.
    if codec == _SNAPPY and read_varint(body, 0)[0] != size:
        raise ValueError("a page of the wrong size")
    if not size:
        return memoryview(b"")
    pa, _ = libraries("the file")
    # glibc's allocator uses pages of the process again; mimalloc, pyarrow's default, returns them and clears others.
    pool, name = pa.system_memory_pool(), "snappy" if codec == _SNAPPY else "zstd"
    # Arrow's buffers are signed bytes.
    return memoryview(pa.decompress(body, decompressed_size=size, codec=name, memory_pool=pool)).cast("B")


def _decode_byte_arrays(body: memoryview, count: int) -> list[memoryview]:
    """Return byte arrays, each preceded by its length."""
    body = body.toreadonly()
    found: list[memoryview] = []
    at, size = 0, len(body)
    number, add = int.from_bytes, found.append
    for _ in range(count):
        start = at + 4
        at = start + number(body[at:start], "little")
        if at > size:
            raise ValueError("a value that ends beyond its page")
        add(body[start:at])
    if at != size:
        raise ValueError("more bytes than values")
    return found


def _hybrid(data: memoryview | bytes, bits: int, count: int) -> list[int]:
    """Return ``count`` numbers of ``bits`` bits each, in runs of equal numbers and groups of eight others."""
    if bits > _MOST_BITS:
        raise ValueError("numbers of too many bits")
    found: list[int] = []
    at, width = 0, (bits + 7) // 8
    while len(found) < count:
        header, at = read_varint(data, at)
        left = count - len(found)
        if header & 1:
            groups = header >> 1
            if groups > (left + 7) // 8:
                raise ValueError("more numbers than values")
            packed = np.frombuffer(data, np.uint8, groups * bits, at)
            flags = np.unpackbits(packed, bitorder="little").reshape(-1, bits)
            found += (flags @ (1 << np.arange(bits, dtype=np.int64))).tolist()[:left]
            at += groups * bits
        else:
            if header >> 1 > left:
                raise ValueError("more numbers than values")
            found += [int.from_bytes(data[at : at + width], "little")] * (header >> 1)
            at += width
    return found
