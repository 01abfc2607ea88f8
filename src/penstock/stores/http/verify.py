"""Verification of the answer to a read: version, range, length and the store's digest; running checksums. Pure."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from base64 import b64encode
from binascii import Error, a2b_base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.engine.contracts.driver import RANGE_IGNORED, Beginning, Ending
from penstock.errors import Changed, ChecksumMismatch, Damaged, Transient, Truncated, Unusable
from penstock.stores.http.headers import is_strong, parse_size, strip_quotes
from penstock.values import Checksum, Running, tag_of, version_id

if TYPE_CHECKING:
    from hashlib import _Hash

    from penstock.engine.buffer import Buffer
    from penstock.engine.contracts.exchange import Response
    from penstock.values import Span

REPLACED = "the object has changed since it was listed or opened"
Begin = Callable[[str], Running | None]
_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)").fullmatch
_QUOTED = 40  # characters of a foreign text
# libcurl treats an answer as complete if its connection ends within its headers.
_CUT = "no bytes came, and no header says how many there are: the connection ended within the headers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Checks that an answer of a dialect brings the expected bytes. All methods raise errors without a URL.

    Attributes:
        version: Header with the object's version: ``etag``, or a generation.
        size: Header with the size of the whole object, in bytes.
        digests: By header, a function that begins the comparison of bytes with the store's checksum of the whole
            object. It returns None if the checksum is not over the object's bytes.
    """

    version: str = "etag"
    size: str = "content-length"
    digests: Mapping[str, Begin] = field(default_factory=dict)

    @property
    def range_headers(self) -> tuple[str, ...]:
        return (self.version, "content-range")

    @property
    def whole_headers(self) -> tuple[str, ...]:
        return (self.version, *self.digests)

    @property
    def sized_headers(self) -> tuple[str, ...]:
        return (self.version, self.size, "transfer-encoding", *self.digests)

    @property
    def suffix_headers(self) -> tuple[str, ...]:
        return (self.version, "content-range", self.size, "transfer-encoding")

    def span(self, response: Response, span: Span, buffer: Buffer) -> int:
        """Return how many bytes of ``buffer`` are the span's; the answer is a 200 or 206 to GET (to HEAD, if empty).

        Raises:
            Changed: The answer has another version, or the object has another size than that of the span (if it is
                whole), or than ``most``.
            ChecksumMismatch: The bytes of a whole object do not match the store's digest.
            Damaged: The answer has another range than the span.
            Transient: The headers ended early.
            Truncated: The object ends before the range does.
            Unusable: With the code ``RANGE_IGNORED``: the answer is the whole object instead of the range.
            PenstockError: The answer broke off before it named its range.
        """
        headers, etag = response.headers, span.etag
        # Every read comes here: the common case needs no call.
        if not etag:
            self.note_version(response)
        elif headers.get(self.version) != f'"{etag}"':
            self.same_version(headers, etag)
        if span.whole:
            # Otherwise no length is known: the buffer was just filled.
            if self.size in headers or response.overflow:
                self._same_size(response, buffer.size)
            if response.received == buffer.size and not headers.keys().isdisjoint(self.digests):
                self.same_digest(headers, buffer.view())
        elif buffer.size:
            if response.fault is not None and "content-range" not in headers:
                raise response.fault
            if response.status == 206 or span.start:  # noqa: PLR2004  Partial Content
                _same_range(response, span.start, span.start + buffer.size, span.most)
        return response.received

    def whole(self, response: Response, etag: str) -> bytes:
        """Return the body of a successful answer, an object of unknown size, after a check that it is complete."""
        headers = response.headers
        self.same_version(headers, etag)
        self.note_version(response, etag)
        body = response.body if isinstance(response.body, bytes) else b""
        if "chunked" not in headers.get("transfer-encoding", "") and len(body) != self._length(headers, len(body)):
            raise Transient("the body ended early")
        self.same_digest(headers, body)
        return body

    def opened(self, response: Response, etag: str, buffer: Buffer) -> bytes | Beginning:
        """Return an object of unknown size from its buffer (``Buffer.cut``), or its beginning, from a 200 to GET."""
        headers = response.headers
        if etag:
            self.same_version(headers, etag)
        self.note_version(response, etag)
        chunked = "transfer-encoding" in headers and "chunked" in headers["transfer-encoding"]
        if response.overflow:
            size = 0 if chunked else self.length(headers)
            return Beginning(buffer.copy(response.received), size, response.version)
        if response.fault is not None:
            raise response.fault
        if not chunked and response.received != self._length(headers, response.received):
            raise Transient("the body ended early")
        body = buffer.cut(response.received)
        if not headers.keys().isdisjoint(self.digests):
            self.same_digest(headers, body)
        return body

    def suffix(self, response: Response, etag: str, size: int) -> Ending | None:
        """Return the part of an object's last ``size`` bytes that is in the buffer; the answer is a 200 or 206 to GET.

        None if the buffer holds the beginning of the whole object instead.
        """
        headers, received = response.headers, response.received
        self.same_version(headers, etag)
        self.note_version(response, etag)
        version = response.version
        named = headers.get("content-range", "")
        if named or (response.status == 206 and response.fault is None):  # noqa: PLR2004  Partial Content
            if not named and not received:
                raise Transient(_CUT)
            start, total = _end_of(named, size)
            if response.overflow or received > total - start:
                raise Damaged(f"the server sent more than the {total - start} bytes that it declared")
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
        length = parse_size(headers.get(self.size, ""))
        if length is None:
            # libcurl takes all bytes until the connection closes for the body.
            raise Damaged("the server does not report the object's size")
        return length

    def _length(self, headers: Mapping[str, str], received: int) -> int:
        """Return ``length``; raise ``Transient`` if the answer has neither a size nor a byte."""
        if not received and self.size not in headers:
            raise Transient(_CUT)
        return self.length(headers)

    def same_version(self, headers: Mapping[str, str], etag: str) -> None:
        """Raise ``Changed`` if the answer names another version than ``etag``; an empty ``etag`` matches any."""
        found = headers.get(self.version, "")
        if etag and strip_quotes(found) not in ("", tag_of(etag)):
            raise Changed(REPLACED)

    def note_version(self, response: Response, etag: str = "") -> None:
        """Set the version of an answer, if its header has one to which other reads can be pinned.

        An ``etag`` that holds a version id is the version of the answer: reads that go on need the id.
        """
        found = strip_quotes(response.headers.get(self.version, ""))
        response.version = etag if version_id(etag) else found if is_strong(found) else ""

    def same_digest(self, headers: Mapping[str, str], body: memoryview | bytes) -> None:
        """Raise ``ChecksumMismatch`` if the bytes of a whole object do not match a digest from the store."""
        for name, begin in self.digests.items():
            stored = headers.get(name, "")
            if stored and (running := begin(stored)) is not None:
                running.update(body)
                if not running.matches():
                    raise ChecksumMismatch(f"the bytes do not match the store's {name}")

    def checksum(self, headers: Mapping[str, str]) -> Checksum | None:
        """Return the checksum of the whole object that an answer names; None without one of a known kind."""
        named = ((name, headers[name], begin) for name, begin in self.digests.items() if headers.get(name))
        return next((Checksum(*each) for each in named), None)

    def _same_size(self, response: Response, size: int) -> None:
        length = parse_size(response.headers.get(self.size, ""))
        if response.overflow or length not in (None, size):
            raise Changed(f"the object has {'more' if length is None else length} bytes, but was listed with {size}")


def heeds_ranges(response: Response) -> bool | None:
    """Return whether a range's answer shows that the store honours ``Range``; None if it shows nothing."""
    if "content-range" in response.headers:
        return True
    return False if response.overflow else None


def _same_range(response: Response, start: int, stop: int, size: int) -> None:
    found = response.headers.get("content-range", "")
    # Almost every answer, at a third of the pattern's time: it is as long as was asked for.
    if not response.overflow and found.startswith(f"bytes {start}-{stop - 1}/"):
        if size and not found.endswith((f"/{size}", "/*")):
            raise Changed(f"the object has {found.rpartition('/')[2][:_QUOTED]} bytes, but was listed with {size}")
        return
    if not found and response.status == 200:  # noqa: PLR2004  the whole object instead of the range
        ignored = Unusable("this server ignores Range: objects can only be read whole")
        ignored.code = RANGE_IGNORED
        raise ignored
    if not found and not response.received:
        raise Transient(_CUT)
    match = _RANGE(found)
    if match is None or int(match[1]) != start:
        raise Damaged(f"bytes {start}-{stop - 1} were requested, but the server sent {found[:_QUOTED]!r}")
    if match[3] != "*" and int(match[3]) < stop:
        raise Truncated(f"the object has {match[3]} bytes, but bytes up to {stop} were requested")
    # A longer body than the header names may be the whole object, and begin at another byte.
    named = int(match[2]) + 1 - start
    if start and response.received + response.overflow > named:
        raise Damaged(f"the server sent more than the {named} bytes that it declared, {found[:_QUOTED]!r}")


def _end_of(named: str, size: int) -> tuple[int, int]:
    """Return where an object's last ``size`` bytes begin, and its size, from the range in an answer."""
    match = _RANGE(named)
    if match is not None and match[3] != "*":
        start, last, total = int(match[1]), int(match[2]), int(match[3])
        if start == max(0, total - size) and last == total - 1:
            return start, total
    raise Damaged(f"the last {size} bytes were requested, but the server sent {named[:_QUOTED]!r}")


class Crc(ABC):
    """Digest of a body, computed by a function of bytes and an initial value; ``digits`` are hexadecimal."""

    __slots__ = ("_compute", "_crc")

    digits: int

    def __init__(self) -> None:
        self._compute = self.library()
        self._crc = 0

    @staticmethod
    @abstractmethod
    def library() -> Callable[..., int]: ...

    def update(self, data: bytes | bytearray | memoryview, /) -> None:
        self._crc = self._compute(data, self._crc)

    def hexdigest(self) -> str:
        return f"{self._crc:0{self.digits}x}"


class RunningCrc:
    """Comparison of bytes with a CRC (``values.Running``)."""

    __slots__ = ("_compute", "_crc", "_expected")

    def __init__(self, compute: Callable[..., int], expected: int) -> None:
        """Begin with no bytes; ``compute(data, initial)`` returns the CRC, which must become ``expected``."""
        self._compute, self._crc, self._expected = compute, 0, expected

    def update(self, data: bytes | bytearray | memoryview, /) -> None:
        self._crc = self._compute(data, self._crc)

    def matches(self) -> bool:
        return self._crc == self._expected


class RunningHash:
    """Comparison of bytes with a digest in base64 (``values.Running``)."""

    __slots__ = ("_expected", "_hash", "update")

    def __init__(self, begun: _Hash, expected: str) -> None:
        self._hash, self._expected = begun, expected
        self.update = begun.update

    def matches(self) -> bool:
        return b64encode(self._hash.digest()).decode() == self._expected


def from_base64(stored: str) -> int:
    """Return a base64 CRC as a number; -1, which equals no CRC, for invalid text."""
    try:
        return int.from_bytes(a2b_base64(stored, strict_mode=True), "big")
    except (Error, ValueError):
        return -1
