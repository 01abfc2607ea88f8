"""Objects of one store in the cache: which entries have what is asked for, and which entries keep what came."""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING, NamedTuple

from penstock.cache.entry import About
from penstock.cache.files import EVERY, WHOLE
from penstock.cache.key import Namer, Part, parts
from penstock.errors import public_url
from penstock.values import UNKNOWN_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.cache.files import Hit
    from penstock.cache.reads import Request
    from penstock.cache.tiers import Cache
    from penstock.values import ObjectMeta, Span

    Stat = Callable[[Sequence[str]], list[ObjectMeta | None]]

__all__ = ["ALL", "CachedObjects", "Place"]

ALL = Part("b", 0, None)  # an object that is no longer than a block; or the beginning of one that is


class Place(NamedTuple):
    """Where the objects of a store lie.

    Attributes:
        store: What tells the store from all others, by its ``repr``.
        root: Its URL, ending in ``/``.
        base: What its keys begin with there.
        stat: Describes objects; None for each that it cannot. One request each.

    """

    store: object
    root: str
    base: str
    stat: Stat


class CachedObjects:
    """Entries of one store's objects, by key, version and place."""

    def __init__(self, cache: Cache, place: Place) -> None:
        """Look nowhere yet."""
        self._cache, self._place = cache, place
        self._namer = Namer(place.store)
        self._block_bytes = cache.options.block_bytes
        self._ttl_s = cache.options.ttl_s if cache.options.mode == "ttl" else 0.0

    def parts(self, start: int, stop: int) -> list[Part]:
        """Return the parts that bytes ``[start, stop)`` of an object lie in; of an empty object all of it."""
        return [*parts(start, stop, self._block_bytes)] or [ALL]

    def part(self, key: str, etag: str, part: Part, size: int, into: memoryview | None) -> Hit | None:
        """Return the first ``size`` bytes of a part, or fill ``into``; None where the cache does not have them."""
        hit = self._cache.read(self._name(key, etag, part), 0, size, into)
        if (hit is None or not hit.filled) and part.kind == "r":
            low, block = self._block(part)
            hit = self._cache.read(self._name(key, etag, block), low, low + size, into)
        return hit if hit is not None and hit.filled else None

    def unsized(self, key: str, etag: str, part: Part) -> tuple[Hit | None, int]:
        """Return a whole object, or its last bytes, of unknown size; or None, and its size where that is known."""
        ends = part.kind == "e"
        hit = self._cache.read(self._name(key, etag, part), 0, EVERY if ends else WHOLE)
        if hit is not None and hit.filled:
            return hit, UNKNOWN_SIZE
        if ends:
            return None, self.size(key, etag)
        return None, UNKNOWN_SIZE if hit is None else hit.found.object_bytes

    def lately(self, span: Span, into: memoryview | None) -> Hit | None:
        """Return what was read of an object of unknown version within ``ttl_s``; None where that was nothing."""
        key, start, stop, _, _, _ = span
        name, now_s = self._name(key, "", Part("u", start, stop)), time()
        hit = self._cache.read(name, 0, EVERY if stop is None else stop - start, into, since_s=now_s - self._ttl_s)
        return hit if hit is not None and hit.filled and hit.found.kept_s <= now_s else None  # else the clock was wrong

    def size(self, key: str, etag: str) -> int:
        """Return an object's size, if its beginning is in the cache and says it; -1 if not."""
        found = self._cache.look(self._name(key, etag, ALL))
        return UNKNOWN_SIZE if found is None else found.object_bytes

    def contains(self, span: Span) -> bool:
        """Say whether a read of ``span`` would need no request for its bytes, at present; nothing is compared."""
        key, start, stop, etag, _, _ = span
        look = self._cache.look
        if not etag:
            found = look(self._name(key, "", Part("u", start, stop))) if self._ttl_s else None
            return found is not None and 0 <= time() - found.kept_s <= self._ttl_s
        if stop is None and start < 0 and look(self._name(key, etag, Part("e", start, None))) is not None:
            return True
        if stop is None:
            size = self.size(key, etag)
            if size < 0:
                return False
            start, stop = max(0, size + start) if start < 0 else 0, size
        wanted = self.parts(start, stop)
        ends = [*(part.start for part in wanted[1:]), stop]
        return all(self._has(key, etag, part, end - part.start) for part, end in zip(wanted, ends, strict=True))

    def _has(self, key: str, etag: str, part: Part, size: int) -> bool:
        found, low = self._cache.look(self._name(key, etag, part)), 0
        if (found is None or found.size_bytes < size) and part.kind == "r":
            low, block = self._block(part)
            found = self._cache.look(self._name(key, etag, block))
        return found is not None and found.size_bytes >= low + size

    def keep(self, request: Request, data: memoryview | bytes) -> None:
        """Keep what a request has brought."""
        span, wanted, etag, object_bytes = request
        key, size = span.key, len(data)
        if span.stop is None and wanted[0] is ALL:  # its size is known by now
            wanted, object_bytes = tuple(self.parts(0, size)), size
        url = self.url(key)
        for number, part in enumerate(wanted):
            low, high = 0, size
            if part.kind in "br":
                low = part.start - span.start
                high = wanted[number + 1].start - span.start if number + 1 < len(wanted) else size
            piece = data if (low, high) == (0, size) else memoryview(data)[low:high]
            what = About(url, etag, part.start, object_bytes)
            self._cache.store(self._name(key, etag, part), piece, what, replace=part.kind == "u")

    def url(self, key: str) -> str:
        """Return an object's URL, as it may be shown."""
        return public_url(f"{self._place.root}{self._place.base}{key}")

    def _block(self, part: Part) -> tuple[int, Part]:
        """Return the block that a part lies in, and where it begins there."""
        low = part.start % self._block_bytes
        return low, Part("b", part.start - low, None)

    def _name(self, key: str, etag: str, part: Part) -> bytes:
        return self._namer.name(self._place.base + key, etag, part)
