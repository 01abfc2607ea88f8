"""How an entry lies in its file: the bytes, then a footer with their checksums and what they are."""

from __future__ import annotations

import json
from struct import Struct
from typing import NamedTuple

from xxhash import xxh3_64_digest, xxh3_64_intdigest

__all__ = ["FOOTER_BYTES", "PAGE_BYTES", "About", "Footer", "about", "begins", "footer", "intact", "parse"]

PAGE_BYTES = 256 << 10  # each has a checksum of its own, so that a small part of a block is compared alone
_MAGIC = b"PNSTCK01"
_SUM_BYTES = 8
_END = Struct("<8s16sQqqdII")  # magic, name, size, start, the object's size, kept since, bytes of checksums and words
_CHECK = Struct("<Q")
FOOTER_BYTES = _END.size + _CHECK.size  # of its end, which has one size


class About(NamedTuple):
    """What an entry is a part of.

    Attributes:
        url: The object's URL, as it may be shown.
        etag: Its version; empty where that is not known.
        start: Where in the object the entry begins; negative, of its last bytes: so many before its end.
        object_bytes: The object's size; -1 where that is not known.

    """

    url: str
    etag: str
    start: int
    object_bytes: int = -1


class Footer(NamedTuple):
    """What the end of a file says.

    Attributes:
        name: The entry's name.
        size_bytes: Of its bytes.
        start: As in ``About``.
        object_bytes: As in ``About``.
        kept_s: When it was written, in seconds since the epoch.
        sums_bytes: Of the checksums.
        words_bytes: Of the text that says what it is.

    """

    name: bytes
    size_bytes: int
    start: int
    object_bytes: int
    kept_s: float
    sums_bytes: int
    words_bytes: int

    @property
    def whole(self) -> bool:
        """Say whether it is all of its object."""
        return self.start == 0 and self.size_bytes == self.object_bytes


def footer(name: bytes, data: bytes | memoryview, what: About, kept_s: float) -> bytes:
    """Return what follows ``data`` in the file."""
    view = memoryview(data)
    size = len(view)
    sums = b"".join([xxh3_64_digest(view[at : at + PAGE_BYTES]) for at in range(0, size, PAGE_BYTES)])
    words = json.dumps([what.url, what.etag]).encode()
    end = _END.pack(_MAGIC, name, size, what.start, what.object_bytes, kept_s, len(sums), len(words))
    body = sums + words + end
    return body + _CHECK.pack(xxh3_64_intdigest(body))


def begins(end: bytes, file_bytes: int) -> int:
    """Return where the footer begins in a file of that size, by its end; -1 where there is no footer."""
    if len(end) < FOOTER_BYTES:
        return -1
    magic, _, size, _, _, _, sums, words = _END.unpack_from(end, len(end) - FOOTER_BYTES)
    fits = magic == _MAGIC and size + sums + words + FOOTER_BYTES == file_bytes
    return size if fits and sums == -(-size // PAGE_BYTES) * _SUM_BYTES else -1


def parse(text: bytes) -> Footer | None:
    """Return what a whole footer says; None where it is damaged."""
    body, check = text[: -_CHECK.size], text[-_CHECK.size :]
    if len(text) < FOOTER_BYTES or _CHECK.unpack(check)[0] != xxh3_64_intdigest(body):
        return None
    return Footer(*_END.unpack_from(body, len(body) - _END.size)[1:])


def about(text: bytes, found: Footer) -> About:
    """Return what an entry is a part of."""
    url, etag = json.loads(text[found.sums_bytes : found.sums_bytes + found.words_bytes])
    return About(url, etag, found.start, found.object_bytes)


def intact(text: bytes, first_page: int, data: bytes | memoryview) -> bool:
    """Say whether ``data``, whole pages from ``first_page`` on (the last page may be the file's), is what was kept."""
    at = first_page * _SUM_BYTES
    if len(data) <= PAGE_BYTES:
        return not len(data) or text[at : at + _SUM_BYTES] == xxh3_64_digest(data)
    view = memoryview(data)
    sums = b"".join([xxh3_64_digest(view[low : low + PAGE_BYTES]) for low in range(0, len(view), PAGE_BYTES)])
    return text[at : at + len(sums)] == sums
