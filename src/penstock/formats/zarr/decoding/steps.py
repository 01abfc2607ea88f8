"""One codec's decoding each, bytes to bytes or values, by numcodecs and the standard library; sizes are checked.

A compressor is told how many bytes there should be before it allocates any, so that a few bytes cannot become many
gigabytes; and what it says of its own input (Blosc's size, the end of a stream) is compared, which numcodecs does not.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from penstock.errors import MissingExtra
from penstock.formats.zarr.decoding.crc import checked

__all__ = ["BYTES", "VALUES", "Encoded", "Room", "Step", "crc_step", "step_of"]

# Codecs of numcodecs that are decoded here: bytes to bytes, and values to values.
_COMPRESSORS = {"zstd", "blosc", "lz4", "zlib", "gzip", "bz2", "lzma"}
_CHECKSUMS = {"crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3"}
BYTES = _COMPRESSORS | _CHECKSUMS | {"shuffle"}
VALUES = {"delta", "fixedscaleoffset", "quantize", "bitround", "astype", "packbits"}
_CHECKSUM_BYTES = 4
_ZSTD = b"\x28\xb5\x2f\xfd"  # RFC 8878, 3.1.1
_ZSTD_HEADER = 18  # bytes at most
_BLOSC_HEADER = 16  # bytes: https://github.com/Blosc/c-blosc/blob/main/README_CHUNK_FORMAT.rst


class Room(NamedTuple):
    """How many bytes a step may return."""

    least: int
    most: int

    def check(self, size: int, what: str = "decodes to") -> None:
        """Raise ``ValueError`` for another size."""
        if not self.least <= size <= self.most:
            wanted = f"{self.most}" if self.least == self.most else f"{self.least} to {self.most}"
            raise ValueError(f"{what} {size} bytes, not {wanted}")


Encoded = bytes | bytearray | memoryview | np.ndarray[Any, Any]
Out = np.ndarray[Any, Any] | None
# Decodes bytes, into `out` (as many bytes as the room has) where it is given; any exception is damage.
Decode = Callable[[Encoded, Room, Out], Encoded]


class Codec(Protocol):
    """What numcodecs has many of."""

    def decode(self, data: Encoded, out: Out = None) -> Encoded:
        """Return what was encoded."""


@dataclass(frozen=True, slots=True)
class Step:
    """One codec of an array.

    Attributes:
        name: The codec's, for errors.
        decode: See ``Decode``.
        encoded_size: Bytes that so many bytes are encoded as; None where that is not known beforehand.
        verifies: Its errors are checksums that do not match.
        into: It writes into ``out``.

    """

    name: str
    decode: Decode
    encoded_size: Callable[[int], int | None]
    verifies: bool = False
    into: bool = False


def step_of(name: str, configuration: Mapping[str, Any]) -> Step | None:
    """Return a codec of numcodecs, by its ``id`` and the other items of its JSON; None where it is not known here.

    Raises:
        ValueError: Or any other exception: the configuration cannot be.
        MissingExtra: There is no numcodecs.

    """
    if name not in BYTES | VALUES:
        return None
    try:
        from numcodecs import get_codec
    except ModuleNotFoundError as error:
        raise MissingExtra("chunks of Zarr are decoded by numcodecs: pip install 'penstock[zarr]'") from error
    codec = get_codec({**configuration, "id": name})
    if name in _COMPRESSORS:
        return _compressor(name, codec, configuration)
    if name in _CHECKSUMS:
        return Step(name, partial(_plain, codec), lambda size: size + _CHECKSUM_BYTES, verifies=True)
    if name == "packbits":
        return Step(name, partial(_plain, codec), lambda size: -(-size // 8) + 1)
    if name in {"shuffle", "bitround"}:
        return Step(name, partial(_plain, codec), lambda size: size)
    decoded, encoded = ("decode_dtype", "encode_dtype") if name == "astype" else ("dtype", "astype")
    items = getattr(codec, decoded).itemsize, getattr(codec, encoded).itemsize
    return Step(name, partial(_plain, codec), lambda size: size // items[0] * items[1])


def _compressor(name: str, codec: Codec, configuration: Mapping[str, Any]) -> Step:
    if name in _DIRECT:
        return Step(name, partial(_DIRECT[name], codec), lambda _: None, into=True)
    decode = partial(_lzma, configuration) if name == "lzma" else partial(_stream, _STREAMS[name])
    return Step(name, decode, lambda _: None)


def crc_step() -> Step:
    """Return the codec ``crc32c`` of Zarr v3."""
    return Step("crc32c", _crc, lambda size: size + _CHECKSUM_BYTES, verifies=True)


def _crc(data: Encoded, room: Room, out: Out) -> Encoded:
    del room, out
    return checked(_flat(data), "the chunk")


def _flat(data: Encoded) -> memoryview:
    """Return the bytes of a buffer, or of an array of any type."""
    return memoryview(data.reshape(-1).view("u1") if isinstance(data, np.ndarray) else data)  # type: ignore[arg-type]


def _plain(codec: Codec, data: Encoded, room: Room, out: Out) -> Encoded:
    """Decode what cannot grow. Shuffle, Fletcher-32 and CRC-32C hold Python's lock; delta and copies release it."""
    del room, out
    return codec.decode(data)


def _zstd(codec: Codec, data: Encoded, room: Room, out: Out) -> Encoded:
    """Decode one frame of Zstandard; releases Python's lock."""
    size = _frame_size(data)
    if size is None and room.least == room.most:
        size = room.most  # numcodecs fills `out` then, neither more nor less
    if size is None:
        raise ValueError("a frame within another compression does not say its size")
    room.check(size)
    out = np.empty(size, "u1") if out is None else out
    codec.decode(data, out=out)
    return out


def _frame_size(data: Encoded) -> int | None:
    """Return what a frame's header says it decodes to; None where it does not say it (RFC 8878, 3.1.1.1)."""
    head = bytes(_flat(data)[:_ZSTD_HEADER])
    if head[:4] != _ZSTD:
        raise ValueError("this is no frame of Zstandard")
    flags = head[4]
    single = flags >> 5 & 1
    at = 6 - single + (0, 1, 2, 4)[flags & 3]
    width = (single, 2, 4, 8)[flags >> 6]
    if not width:
        return None
    return int.from_bytes(head[at : at + width], "little") + (256 if width == 2 else 0)  # noqa: PLR2004  RFC 8878


def _blosc(codec: Codec, data: Encoded, room: Room, out: Out) -> Encoded:
    """Decode Blosc; releases Python's lock. numcodecs itself decodes a truncated one to garbage, without an error."""
    flat = _flat(data)
    head = bytes(flat[:_BLOSC_HEADER])
    if len(head) < _BLOSC_HEADER:
        raise ValueError("too short for Blosc")
    size, stored = int.from_bytes(head[4:8], "little"), int.from_bytes(head[12:16], "little")
    room.check(size)
    if stored != len(flat):
        raise ValueError(f"Blosc's header says that there are {stored} bytes, not {len(flat)}")
    out = np.empty(size, "u1") if out is None else out
    if size:  # of nothing there is only a header
        codec.decode(data, out=out)
    return out


def _lz4(codec: Codec, data: Encoded, room: Room, out: Out) -> Encoded:
    """Decode LZ4, after numcodecs' own header of four bytes; releases Python's lock."""
    size = int.from_bytes(bytes(_flat(data)[:4]), "little")
    room.check(size)
    out = np.empty(size, "u1") if out is None else out
    codec.decode(data, out=out)
    return out


_DIRECT = {"zstd": _zstd, "blosc": _blosc, "lz4": _lz4}
_STREAMS: Mapping[str, Callable[[], Any]] = {
    "zlib": zlib.decompressobj,
    "gzip": partial(zlib.decompressobj, 31),  # with gzip's header and CRC-32: zlib.h, inflateInit2
    "bz2": bz2.BZ2Decompressor,
}


def _lzma(configuration: Mapping[str, Any], data: Encoded, room: Room, out: Out) -> Encoded:
    form = configuration.get("format", lzma.FORMAT_XZ)
    make = partial(lzma.LZMADecompressor, form, filters=configuration.get("filters"))
    return _stream(make, data, room, out, ends=form != lzma.FORMAT_RAW)


def _stream(make: Callable[[], Any], data: Encoded, room: Room, out: Out, *, ends: bool = True) -> Encoded:
    """Decode with the standard library, one stream or several; never more than ``room``. Releases Python's lock."""
    del out
    decoded, rest = b"", _flat(data)
    while len(rest):
        stream = make()
        decoded += stream.decompress(rest, room.most + 1 - len(decoded))
        room.check(max(len(decoded), room.least))
        if not stream.eof and ends:
            raise ValueError("the compressed data ends early, or decodes to more than there should be")
        rest = memoryview(stream.unused_data)
    return decoded
