"""Verification of a read's answer: the version, the range, the length and the store's digest; pure functions of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.drivers.http.headers import is_strong, parse_size, unquoted
from penstock.errors import Changed, ChecksumMismatch, Damaged, Transient, Truncated, Unusable
from penstock.protocols.driver import RANGE_IGNORED, Beginning, Ending

if TYPE_CHECKING:
    from penstock.buffer import Buffer
    from penstock.protocols.exchange import Response
    from penstock.values import Span

__all__ = ["REPLACED", "Digest", "Verification", "heeds_ranges"]

REPLACED = "the object is no longer the one that was listed or opened"
Digest = Callable[[str, memoryview | bytes], bool]
_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)").fullmatch
_QUOTED = 40  # characters of a foreign text
# libcurl calls an answer whole whose connection ends within its headers.
_CUT = "no bytes came, and no header says how many there are: the connection ended within the headers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """How a dialect's answers show which bytes they bring. All methods raise errors without a URL.

    Attributes:
        version: The header with the object's version: ``etag``, or a generation.
        size: The header with the size of the whole object, in bytes.
        digests: By header, the function that says whether the store's digest of the whole object is that of the bytes;
            True for a digest that is not over the object's bytes.

    """

    version: str = "etag"
    size: str = "content-length"
    digests: Mapping[str, Digest] = field(default_factory=dict)

    @property
    def range_headers(self) -> tuple[str, ...]:
        """The headers that the verification of a range needs (``Request.wants``)."""
        return (self.version, "content-range")

    @property
    def whole_headers(self) -> tuple[str, ...]:
        """The headers that the verification of a whole object needs (``Request.wants``)."""
        return (self.version, *self.digests)

    @property
    def sized_headers(self) -> tuple[str, ...]:
        """The headers that the verification of an object of unknown size needs (``Request.wants``)."""
        return (self.version, self.size, "transfer-encoding", *self.digests)

    @property
    def suffix_headers(self) -> tuple[str, ...]:
        """The headers that the verification of an object's end needs (``Request.wants``)."""
        return (self.version, "content-range", self.size, "transfer-encoding")

    def span(self, response: Response, span: Span, buffer: Buffer) -> int:
        """Return how many bytes of ``buffer`` are the span's; the answer is a 200 or 206 to GET (to HEAD, if empty).

        Raises:
            Changed: Another version, or a whole object of another size than was asked for.
            ChecksumMismatch: A whole object whose bytes do not match the store's digest.
            Damaged: Another range than was asked for.
            Transient: The headers ended early.
            Truncated: The object ends before the range does.
            Unusable: With the code ``RANGE_IGNORED``: the whole object instead of the range.
            PenstockError: The answer broke off before it named its range.

        """
        headers, etag = response.headers, span.etag
        if etag and headers.get(self.version) != f'"{etag}"':  # the common case without a call: each read comes here
            self.same_version(headers, etag)
        if span.whole:
            if self.size in headers or response.overflow:  # else no length was asked for: the buffer was just filled
                self._same_size(response, buffer.size)
            if response.received == buffer.size and not headers.keys().isdisjoint(self.digests):
                self.same_digest(headers, buffer.view())
        elif buffer.size:
            if response.fault is not None and "content-range" not in headers:
                raise response.fault
            if response.status == 206 or span.start:  # noqa: PLR2004  Partial Content
                _same_range(response, span.start, span.start + buffer.size)
        return response.received

    def whole(self, response: Response, etag: str) -> bytes:
        """Return the collected body of a success, an object of unknown size, once all of it is shown to be there.

        Raises:
            Changed: Another version than ``etag``, unless that is empty.
            ChecksumMismatch: The bytes do not match the store's digest.
            Damaged: The server does not say how long the object is.
            Transient: The body ended early, or the headers did.

        """
        headers = response.headers
        self.same_version(headers, etag)
        body = response.body if isinstance(response.body, bytes) else b""
        if "chunked" not in headers.get("transfer-encoding", "") and len(body) != self._length(headers, len(body)):
            raise Transient("the body ended early")
        self.same_digest(headers, body)
        return body

    def opened(self, response: Response, etag: str, buffer: Buffer) -> bytes | Beginning:
        """Return an object of unknown size out of its buffer (``Buffer.cut``), or its beginning; a 200 to GET.

        Raises:
            PenstockError: As ``whole``; whatever broke the answer off.

        """
        headers = response.headers
        if etag:
            self.same_version(headers, etag)
        chunked = "transfer-encoding" in headers and "chunked" in headers["transfer-encoding"]
        if response.overflow:
            size = 0 if chunked else self.length(headers)
            found = unquoted(headers.get(self.version, ""))
            return Beginning(buffer.copy(response.received), size, found if is_strong(found) else "")
        if response.fault is not None:
            raise response.fault
        if not chunked and response.received != self._length(headers, response.received):
            raise Transient("the body ended early")
        body = buffer.cut(response.received)
        if not headers.keys().isdisjoint(self.digests):
            self.same_digest(headers, body)
        return body

    def suffix(self, response: Response, etag: str, size: int) -> Ending | None:
        """Return what is in the buffer of an object's last ``size`` bytes; the answer is a 200 or 206 to GET.

        None where it is the beginning of the whole object instead.

        Raises:
            Changed: Another version than ``etag``, unless that is empty.
            Damaged: The answer names other bytes than the object's last, or does not name its size.
            Transient: The body ended early, and it does not name its range.
            PenstockError: The answer broke off before it named its range.

        """
        headers, received = response.headers, response.received
        self.same_version(headers, etag)
        version = unquoted(headers.get(self.version, ""))
        version = version if is_strong(version) else ""
        named = headers.get("content-range", "")
        if named or (response.status == 206 and response.fault is None):  # noqa: PLR2004  Partial Content
            if not named and not received:
                raise Transient(_CUT)
            start, total = _end_of(named, size)
            if received > total - start:
                raise Damaged(f"the server sent more than the {total - start} bytes that it named")
            return Ending(start, total, version, received)
        if response.fault is not None:
            raise response.fault
        if response.overflow:
            return None
        chunked = "chunked" in headers.get("transfer-encoding", "")
        length = received if chunked else self._length(headers, received)
        if received != length:
            raise Transient("the body ended early")
        return Ending(0, length, version, length)

    def length(self, headers: Mapping[str, str]) -> int:
        """Return the object's size in bytes; ``Damaged`` where the answer does not say."""
        length = parse_size(headers.get(self.size, ""))
        if length is None:  # libcurl takes everything until the connection closes for the body then
            raise Damaged("the server does not say how long the object is")
        return length

    def _length(self, headers: Mapping[str, str], received: int) -> int:
        """Return ``length``; ``Transient`` where not a byte came either."""
        if not received and self.size not in headers:
            raise Transient(_CUT)
        return self.length(headers)

    def same_version(self, headers: Mapping[str, str], etag: str) -> None:
        """Raise ``Changed`` where the answer names another version than ``etag``; an empty one matches each."""
        found = headers.get(self.version, "")
        if etag and unquoted(found) not in ("", etag):
            raise Changed(REPLACED)

    def same_digest(self, headers: Mapping[str, str], body: memoryview | bytes) -> None:
        """Raise ``ChecksumMismatch`` where the bytes of a whole object do not match a digest that the store gives."""
        for name, matches in self.digests.items():
            stored = headers.get(name, "")
            if stored and not matches(stored, body):
                raise ChecksumMismatch(f"the bytes do not match the store's {name}")

    def _same_size(self, response: Response, size: int) -> None:
        length = parse_size(response.headers.get(self.size, ""))
        if response.overflow or length not in (None, size):
            raise Changed(f"the object has {'more' if length is None else length} bytes and was listed with {size}")


def heeds_ranges(response: Response) -> bool | None:
    """Return whether the answer to the read of a range shows that the store heeds ``Range``; None where it does not."""
    if "content-range" in response.headers:
        return True
    return False if response.overflow else None


def _same_range(response: Response, start: int, stop: int) -> None:
    found = response.headers.get("content-range", "")
    if not found and response.status == 200:  # noqa: PLR2004  the whole object instead of the range
        ignored = Unusable("this server ignores Range: objects can only be read whole")
        ignored.code = RANGE_IGNORED
        raise ignored
    if not found and not response.received:
        raise Transient(_CUT)
    match = _RANGE(found)
    if match is None or int(match[1]) != start:
        raise Damaged(f"asked for bytes {start}-{stop - 1}, the server sent {found[:_QUOTED]!r}")
    if match[3] != "*" and int(match[3]) < stop:
        raise Truncated(f"the object has {match[3]} bytes, {stop} were asked for")


def _end_of(named: str, size: int) -> tuple[int, int]:
    """Return where an object's last ``size`` bytes begin, and its size, by the range that an answer names."""
    match = _RANGE(named)
    if match is not None and match[3] != "*":
        start, last, total = int(match[1]), int(match[2]), int(match[3])
        if start == max(0, total - size) and last == total - 1:
            return start, total
    raise Damaged(f"asked for the last {size} bytes, the server sent {named[:_QUOTED]!r}")
