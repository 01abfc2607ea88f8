"""Cache entries: keys derived from store, object key, version and part, and the file format with checksums. Pure."""

from __future__ import annotations

import json
from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from xxhash import xxh3_64_digest, xxh3_64_intdigest

if TYPE_CHECKING:
    from collections.abc import Iterator

# Each page has its own checksum, so that a small part of a block can be verified alone.
PAGE_BYTES = 256 << 10
_MAGIC = b"PNSTCK01"
_SUM_BYTES = 8
# Fields: magic, name, size, start, object size, time written, bytes of checksums, bytes of JSON text.
_END = Struct("<8s16sQqqdII")
_CHECK = Struct("<Q")
FOOTER_BYTES = _END.size + _CHECK.size  # of the footer's fixed-size end


class About(NamedTuple):
    """The object and the offset that an entry belongs to; a negative ``start`` counts from the object's end.

    ``asked_s`` is the time at which the bytes were asked for, which may be long before they are kept; 0.0 for now.
    """

    url: str
    etag: str
    start: int
    object_bytes: int = -1
    asked_s: float = 0.0


class Footer(NamedTuple):
    """The fixed-size fields of a footer: ``words_bytes`` is the size of the JSON text with URL and ETag."""

    name: bytes
    size_bytes: int
    start: int
    object_bytes: int
    kept_s: float
    sums_bytes: int
    words_bytes: int

    @property
    def whole(self) -> bool:
        return self.start == 0 and self.size_bytes == self.object_bytes


def footer(name: bytes, data: bytes | memoryview, what: About, kept_s: float) -> bytes:
    view = memoryview(data)
    size = len(view)
    sums = b"".join([xxh3_64_digest(view[at : at + PAGE_BYTES]) for at in range(0, size, PAGE_BYTES)])
    words = json.dumps([what.url, what.etag]).encode()
    end = _END.pack(_MAGIC, name, size, what.start, what.object_bytes, kept_s, len(sums), len(words))
    body = sums + words + end
    return body + _CHECK.pack(xxh3_64_intdigest(body))


def begins(end: bytes, file_bytes: int) -> int:
    """Return the footer's offset in a file of that size, read from the file's end; -1 without a valid footer."""
    if len(end) < FOOTER_BYTES:
        return -1
    magic, _, size, _, _, _, sums, words = _END.unpack_from(end, len(end) - FOOTER_BYTES)
    fits = magic == _MAGIC and size + sums + words + FOOTER_BYTES == file_bytes
    return size if fits and sums == -(-size // PAGE_BYTES) * _SUM_BYTES else -1


def parse(text: bytes) -> Footer | None:
    body, check = text[: -_CHECK.size], text[-_CHECK.size :]
    if len(text) < FOOTER_BYTES or _CHECK.unpack(check)[0] != xxh3_64_intdigest(body):
        return None
    return Footer(*_END.unpack_from(body, len(body) - _END.size)[1:])


def about(text: bytes, found: Footer) -> About:
    url, etag = json.loads(text[found.sums_bytes : found.sums_bytes + found.words_bytes])
    return About(url, etag, found.start, found.object_bytes)


def intact(text: bytes, first_page: int, data: bytes | memoryview) -> bool:
    """Return whether ``data``, pages from ``first_page`` on, matches its checksums; the last may be shorter."""
    at = first_page * _SUM_BYTES
    if len(data) <= PAGE_BYTES:
        return not len(data) or text[at : at + _SUM_BYTES] == xxh3_64_digest(data)
    view = memoryview(data)
    sums = b"".join([xxh3_64_digest(view[low : low + PAGE_BYTES]) for low in range(0, len(view), PAGE_BYTES)])
    return text[at : at + len(sums)] == sums


NAME_BYTES = 16


class CachedPart(NamedTuple):
    """A part of an object, as an entry holds it; ``stop`` is None if the name does not depend on it.

    Its ``kind`` is ``b``: from the start of a block, as far as it was read; ``r``: another range within one block;
    ``e``: the last ``-start`` bytes; ``u``: a range, or all, of an object of unknown version.
    """

    kind: str
    start: int
    stop: int | None


class Namer:
    """Names of the entries of one store. Keys with nested paths (``a``, ``a/b``) have unrelated names."""

    __slots__ = ("_hash",)

    def __init__(self, store: object) -> None:
        """Name entries of ``store``, whose ``repr`` must identify it in every process and contain no secret."""
        self._hash = blake2b(repr(store).encode("utf-8", "surrogatepass"), digest_size=NAME_BYTES, person=b"store")

    def name(self, key: str, etag: str, part: CachedPart) -> bytes:
        made = blake2b(self._hash.digest(), digest_size=NAME_BYTES)
        text = f"{part.kind}{part.start}:{part.stop}:{len(etag)}:{etag}{key}"
        made.update(text.encode("utf-8", "surrogatepass"))
        return made.digest()


def parts(start: int, stop: int, block_bytes: int) -> Iterator[CachedPart]:
    while start < stop:
        end = min(stop, (start // block_bytes + 1) * block_bytes)
        yield CachedPart("r", start, end) if start % block_bytes else CachedPart("b", start, None)
        start = end
