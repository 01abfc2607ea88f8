"""Zarr's byte requests as spans of objects. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest

from penstock.values import Span

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest

    from penstock.values import ObjectMeta

__all__ = ["checked", "clipped", "direct"]


def checked(request: ByteRequest | None) -> ByteRequest | None:
    """Return a byte request as it is; one from byte 0 on is None, the whole.

    Raises:
        TypeError: It is none of zarr's three.
        ValueError: It begins before byte 0, or ends before it begins.

    """
    match request:
        case None | OffsetByteRequest(offset=0):
            return None
        case RangeByteRequest(start=start, end=stop) if 0 <= start <= stop:
            return request
        case OffsetByteRequest(offset=length) | SuffixByteRequest(suffix=length) if length >= 0:
            return request
        case RangeByteRequest() | OffsetByteRequest() | SuffixByteRequest():
            message = f"Unexpected byte_range, got {request}: it begins before byte 0, or ends before it begins"
            raise ValueError(message)
    message = f"Unexpected byte_range, got {request}."  # type: ignore[unreachable]  # zarr's own words
    raise TypeError(message)


def direct(key: str, request: ByteRequest, most_bytes: int) -> Span | None:
    """Return the span that a request asks for; None where the object's size has to be known before.

    That is an offset, an empty request, and one of more than ``most_bytes``, which is read in parts of one version.
    """
    match request:
        case RangeByteRequest(start=start, end=stop) if 0 < stop - start <= most_bytes:
            return Span(key, start, stop)
        case SuffixByteRequest(suffix=length) if 0 < length <= most_bytes:
            return Span(key, -length)
    return None


def clipped(request: ByteRequest, meta: ObjectMeta) -> Span:
    """Return the span that a request asks for of the object that ``meta`` describes, and held to that version.

    What lies behind the object's end is left out, as zarr has it: the span may be empty.
    """
    size = meta.size
    match request:
        case RangeByteRequest(start=start, end=stop):
            low, high = min(start, size), min(stop, size)
        case OffsetByteRequest(offset=offset):
            low, high = min(offset, size), size
        case SuffixByteRequest(suffix=length):
            low, high = max(0, size - length), size
    return Span(meta.key, low, high, meta.etag, whole=(low, high) == (0, size))
