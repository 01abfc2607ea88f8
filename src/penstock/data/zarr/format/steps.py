"""Decoding steps of single codecs, by numcodecs and the standard library, with checks of sizes.

A compressor receives the expected number of bytes before it allocates, so that a few bytes cannot become many
gigabytes. Claims about its own input (Blosc's size, the end of a stream) are verified; numcodecs does not verify them.

CRC-32C, the checksum of Zarr v3 (RFC 3720).
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple, cast

import numpy as np

from penstock.data.unpacking import streams
from penstock.errors import ChecksumMismatch, MissingExtra

# Codecs of numcodecs that are decoded here: bytes to bytes, and values to values.
COMPRESSORS = {"zstd", "blosc", "lz4", "zlib", "gzip", "bz2", "lzma"}
# Codecs of Zarr v3; only encoders need their configurations.
SPECIFIED = {"zstd", "gzip", "blosc"}
_CHECKSUMS = {"crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3"}
BYTES = COMPRESSORS | _CHECKSUMS | {"shuffle"}
_ITEMS = "biufcmM"  # kinds of dtypes of encoded values
VALUES = {"delta", "fixedscaleoffset", "quantize", "bitround", "astype", "packbits"}
_CHECKSUM_BYTES = 4
_ZSTD = b"\x28\xb5\x2f\xfd"  # RFC 8878, 3.1.1
_ZSTD_HEADER = 18  # bytes at most
_ZSTD_BLOCK = 128 << 10  # bytes that a block decodes to at most (3.1.1.2.3)
_RAW, _RLE, _RESERVED = 0, 1, 3  # types of blocks: uncompressed; one byte repeated
_LZMA_BYTES = 128 << 20  # memory of a decoder: 65 MiB at the highest preset
_MOST_BLOCK = 8 << 20  # bytes that a stream decodes to at once, before they are counted
_BLOSC_HEADER = 16  # bytes: https://github.com/Blosc/c-blosc/blob/main/README_CHUNK_FORMAT.rst


class Room(NamedTuple):
    """Limits of the bytes that a step may return."""

    least: int
    most: int

    def check(self, size: int, what: str = "decodes to") -> None:
        """Raise ``ValueError`` for a size outside the limits."""
        if not self.least <= size <= self.most:
            wanted = f"{self.most}" if self.least == self.most else f"{self.least} to {self.most}"
            raise ValueError(f"{what} {size} bytes, not {wanted}")


Encoded = bytes | bytearray | memoryview | np.ndarray[Any, Any]
Out = np.ndarray[Any, Any] | None
Codec = Any  # of numcodecs, which has no types
# Decodes bytes, into `out` if it is given (of as many bytes as the room); any exception means damage.
Decode = Callable[[Encoded, Room, Out], Encoded]


@dataclass(frozen=True, slots=True)
class DecodingStep:
    """Decoding step of one codec; ``encoded_size`` returns None for sizes that are not known beforehand.

    Errors of a step that ``verifies`` mean that a checksum does not match. ``into``: it writes into ``out``.
    """

    name: str
    decode: Decode
    encoded_size: Callable[[int], int | None]
    verifies: bool = False
    into: bool = False


def step_of(name: str, configuration: Mapping[str, Any]) -> DecodingStep | None:
    """Return a codec of numcodecs by its ``id`` and the other items of its JSON; None if it is unknown here.

    Any exception but ``MissingExtra`` means an invalid configuration.
    """
    if name not in BYTES | VALUES:
        return None
    try:
        from numcodecs import get_codec
    except ModuleNotFoundError as error:
        raise MissingExtra("chunks of Zarr need numcodecs to be decoded: pip install 'penstock[zarr]'") from error
    codec = get_codec({**configuration, "id": name})
    if name in COMPRESSORS:
        return _compressor(name, codec, configuration)
    if name in _CHECKSUMS:
        return DecodingStep(name, partial(_decode_bounded, codec), lambda size: size + _CHECKSUM_BYTES, verifies=True)
    if name == "packbits":
        return DecodingStep(name, partial(_decode_bounded, codec), lambda size: -(-size // 8) + 1)
    if name in {"shuffle", "bitround"}:
        return DecodingStep(name, partial(_decode_bounded, codec), lambda size: size)
    decoded, encoded = ("decode_dtype", "encode_dtype") if name == "astype" else ("dtype", "astype")
    dtypes = getattr(codec, decoded), getattr(codec, encoded)
    if not all(each.kind in _ITEMS and each.itemsize for each in dtypes):
        raise ValueError(f"cannot decode values of {dtypes[0]} as {dtypes[1]}")
    items = dtypes[0].itemsize, dtypes[1].itemsize
    return DecodingStep(name, partial(_decode_bounded, codec), lambda size: size // items[0] * items[1])


def _compressor(name: str, codec: Codec, configuration: Mapping[str, Any]) -> DecodingStep:
    if name in _DIRECT:
        return DecodingStep(name, partial(_DIRECT[name], codec), lambda _: None, into=True)
    decode = partial(_lzma, configuration) if name == "lzma" else partial(_stream, _STREAMS[name])
    return DecodingStep(name, decode, lambda _: None)


def _crc(data: Encoded, room: Room, out: Out) -> Encoded:
    del room, out
    return verify_crc32c(_flat(data), "the chunk")


# The codec ``crc32c`` of Zarr v3.
CRC_STEP = DecodingStep("crc32c", _crc, lambda size: size + _CHECKSUM_BYTES, verifies=True)


def _flat(data: Encoded) -> memoryview:
    """Return the bytes of a buffer, or of an array of any type."""
    return memoryview(data.reshape(-1).view("u1") if isinstance(data, np.ndarray) else data)  # type: ignore[arg-type]


def _decode_bounded(codec: Codec, data: Encoded, room: Room, out: Out) -> Encoded:
    """Decode a codec with a bounded result. Shuffle, Fletcher-32 and CRC-32C hold the GIL; delta and copies do not."""
    del room, out
    decoded: Encoded = codec.decode(data)
    return decoded


def _zstd(codec: Codec, data: Encoded, room: Room, out: Out) -> Encoded:
    """Decode one frame of Zstandard; releases the GIL."""
    size = _frame_size(data)
    if size is None and room.least == room.most:
        # numcodecs then fills `out` exactly.
        size = room.most
    # numcodecs decodes all blocks, whatever their number.
    if size is None:
        room.check(max(room.least, _most_of_blocks(data)), "may decode to")
        decoded: Encoded = codec.decode(data)
        return decoded
    room.check(size)
    return _decode_into(codec, data, size, out)


def _decode_into(codec: Codec, data: Encoded, size: int, out: Out) -> Encoded:
    out = np.empty(size, "u1") if out is None else out
    codec.decode(data, out=out)
    return out


def _frame_size(data: Encoded) -> int | None:
    """Return the decoded size in a frame's header; None if the header does not have it (RFC 8878, 3.1.1.1)."""
    head = bytes(_flat(data)[:_ZSTD_HEADER])
    at, width = _content_size(head)
    if not width:
        return None
    return int.from_bytes(head[at : at + width], "little") + (256 if width == 2 else 0)  # noqa: PLR2004  RFC 8878


def _content_size(head: bytes) -> tuple[int, int]:
    """Return offset and width of the content size in a frame's header; the blocks follow it."""
    if head[:4] != _ZSTD or len(head) < 5:  # noqa: PLR2004  magic number and flags
        raise ValueError("not a frame of Zstandard")
    flags = head[4]
    single = flags >> 5 & 1
    return 6 - single + (0, 1, 2, 4)[flags & 3], (single, 2, 4, 8)[flags >> 6]


def _most_of_blocks(data: Encoded) -> int:
    """Return the upper limit of the decoded size of a frame's blocks (RFC 8878, 3.1.1.2)."""
    flat, total, last = _flat(data), 0, 0
    at = sum(_content_size(bytes(flat[:_ZSTD_HEADER])))
    while not last:
        header = int.from_bytes(flat[at : at + 3], "little")
        if len(flat) < at + 3 or header >> 1 & 3 == _RESERVED:
            raise ValueError("the frame of Zstandard ends early, or has blocks of an unknown type")
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        total += size if kind in {_RAW, _RLE} else _ZSTD_BLOCK
        at += 3 + (1 if kind == _RLE else size)
    if at + _CHECKSUM_BYTES < len(flat):
        raise ValueError("several frames of Zstandard within another compression")
    return total


def _blosc(codec: Codec, data: Encoded, room: Room, out: Out) -> Encoded:
    """Decode Blosc; releases the GIL. numcodecs would decode truncated data to garbage, without an error."""
    flat = _flat(data)
    head = bytes(flat[:_BLOSC_HEADER])
    if len(head) < _BLOSC_HEADER:
        raise ValueError("too short for Blosc")
    size, stored = int.from_bytes(head[4:8], "little"), int.from_bytes(head[12:16], "little")
    room.check(size)
    if stored != len(flat):
        raise ValueError(f"Blosc's header declares {stored} bytes, got {len(flat)}")
    # Empty data has only a header.
    return _decode_into(codec, data, size, out) if size else b"" if out is None else out


def _lz4(codec: Codec, data: Encoded, room: Room, out: Out) -> Encoded:
    """Decode LZ4 after the four-byte header of numcodecs; releases the GIL."""
    size = int.from_bytes(bytes(_flat(data)[:4]), "little")
    room.check(size)
    return _decode_into(codec, data, size, out)


_DIRECT = {"zstd": _zstd, "blosc": _blosc, "lz4": _lz4}
_STREAMS: Mapping[str, Callable[[], Any]] = {
    "zlib": zlib.decompressobj,
    "gzip": partial(zlib.decompressobj, 31),  # with gzip's header and CRC-32: zlib.h, inflateInit2
    "bz2": bz2.BZ2Decompressor,
}


def _lzma(configuration: Mapping[str, Any], data: Encoded, room: Room, out: Out) -> Encoded:
    form = configuration.get("format", lzma.FORMAT_XZ)
    memory = None if form == lzma.FORMAT_RAW else _LZMA_BYTES + 2 * room.most  # a header may ask for 4 GiB
    make = partial(lzma.LZMADecompressor, form, memory, configuration.get("filters"))
    return _stream(make, data, room, out, ends=form != lzma.FORMAT_RAW)


def _stream(make: Callable[[], Any], data: Encoded, room: Room, out: Out, *, ends: bool = True) -> Encoded:
    """Decode one or several streams with the standard library, up to ``room``. Releases the GIL."""
    del out
    decoded = bytearray()
    for block in streams(make, _flat(data), block_bytes=min(room.most + 1, _MOST_BLOCK), ends=ends):
        decoded += block
        room.check(max(len(decoded), room.least))
    return decoded


CRC_BYTES = 4


def verify_crc32c(data: bytes | bytearray | memoryview, what: str, url: str = "") -> memoryview:
    """Verify the CRC-32C at the end of a buffer and return the bytes before it. Holds the GIL: 2 GB/s."""
    view = memoryview(data).cast("B")
    body, end = view[:-CRC_BYTES], view[-CRC_BYTES:]
    if len(end) < CRC_BYTES or _load_crc32c()(np.frombuffer(body, "u1")) != int.from_bytes(end, "little"):
        raise ChecksumMismatch(f"the CRC-32C of {what} does not match its {len(body)} bytes", url=url)
    return body


@cache
def _load_crc32c() -> Callable[[object], int]:
    try:
        from google_crc32c import value
    except ModuleNotFoundError as error:
        raise MissingExtra("checksums of Zarr need google-crc32c: pip install 'penstock[zarr]'") from error
    return cast("Callable[[object], int]", value)  # untyped
