"""Cache keys derived from store, object key, version and part. Pure."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["NAME_BYTES", "Namer", "Part", "parts"]

NAME_BYTES = 16


class Part(NamedTuple):
    """A part of an object, as an entry holds it.

    Attributes:
        kind: ``b``: from the start of a block, as far as it was read; ``r``: another range within one block; ``e``: the
            last ``-start`` bytes; ``u``: a range, or all, of an object of unknown version.
        start: Its first byte in the object.
        stop: Offset behind its last byte; None if the name does not depend on it.

    """

    kind: str
    start: int
    stop: int | None


class Namer:
    """Names of the entries of one store. Keys that look alike as paths (``a``, ``a/b``) have unrelated names."""

    __slots__ = ("_hash",)

    def __init__(self, store: object) -> None:
        """Name entries of ``store``, whose ``repr`` must identify it in every process and contain no secret."""
        self._hash = blake2b(repr(store).encode("utf-8", "surrogatepass"), digest_size=NAME_BYTES, person=b"store")

    def name(self, key: str, etag: str, part: Part) -> bytes:
        """Return the name of a part of one version of an object."""
        made = blake2b(self._hash.digest(), digest_size=NAME_BYTES)
        text = f"{part.kind}{part.start}:{part.stop}:{len(etag)}:{etag}{key}"
        made.update(text.encode("utf-8", "surrogatepass"))
        return made.digest()


def parts(start: int, stop: int, block_bytes: int) -> Iterator[Part]:
    """Yield the parts of ``[start, stop)`` of an object, cut at multiples of ``block_bytes``."""
    while start < stop:
        end = min(stop, (start // block_bytes + 1) * block_bytes)
        yield Part("r", start, end) if start % block_bytes else Part("b", start, None)
        start = end
