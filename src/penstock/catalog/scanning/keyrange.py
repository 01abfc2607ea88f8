"""A key range of a listing: the keys between two bounds, taken in page by page, checked, and split on demand."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING

from penstock.catalog.scanning.keyspace import Seen
from penstock.catalog.select import selector
from penstock.catalog.storage.builder import TableBuilder
from penstock.catalog.storage.strings import decode, encode
from penstock.listing import Listing, columns

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.values import Page

__all__ = ["KeyRange"]

_SLASH = b"/"
_no_marker = selector()


@dataclass(slots=True, eq=False)
class KeyRange:
    """The keys below ``prefix`` in ``(after, until]``, in UTF-8 byte order (all bounds are UTF-8 bytes).

    Any string may serve as a bound between two pieces: together they always hold every key exactly once. So what a
    delimiter listing says is only advice on where to cut, and a wrong answer costs time, never a key.

    Attributes:
        prefix: What every key begins with.
        after: Exclusive.
        until: Inclusive; None is the end of the prefix.
        cuts: Good bounds in ``(last, until)``, in order: sub-directories of ``level``.
        level: A directory; ``prefix`` at first.
        asked: The deepest directory that has no other cuts to offer; None before the first was asked for.
        advised: A delimiter listing was asked about this range, or the one that it is a part of.
        last: The last key seen, ``after`` at first.
        first: The first key seen; empty before there is one.
        seen: How many keys were seen.
        over: Nothing more is to come.
        rows: What was seen and kept.

    """

    prefix: bytes
    after: bytes = b""
    until: bytes | None = None
    cuts: list[bytes] = field(default_factory=list)
    level: bytes = b""
    asked: bytes | None = None
    advised: bool = False
    last: bytes = field(init=False)
    first: bytes = b""
    seen: int = 0
    over: bool = False
    rows: TableBuilder = field(default_factory=TableBuilder)
    _recent: list[bytes] = field(default_factory=list)
    _listing: Listing = field(init=False)

    def __post_init__(self) -> None:
        """Stand before the first key."""
        self.last = self.after
        self._listing = Listing(decode(self.prefix), decode(self.after))

    def take(self, page: Page, keep: Callable[[str, int], bool] | None = None) -> int:
        """Take in the next page; returns how many keys of it were kept.

        ``keep`` says so of a key and a size; by default all are kept but directory markers.

        Raises:
            Damaged: The server repeats itself, or lists what was not asked for.

        """
        before = len(self.rows)
        names, sizes, etags = columns(self._listing.take(page).entries)
        keys = self._listing.keys
        if self.until is not None and keys and keys[-1] > self.until:
            self.over = True
            stop = bisect_right(keys, self.until)
            keys, sizes, etags = keys[:stop], sizes[:stop], etags[:stop]
        self._recent = keys
        if keys:
            self.first, self.last = self.first or keys[0], keys[-1]
            self.seen += len(keys)
        if keep is not None or 0 in sizes:
            wanted = [*map(keep or _no_marker, names, sizes)]  # names may be more, and then count no more
            keys, sizes = [*compress(keys, wanted)], [*compress(sizes, wanted)]
            etags = [*compress(etags, wanted)]
        self.rows.add_all(keys, sizes, etags)
        self.over = self.over or self._listing.over
        self.cuts = self.cuts[bisect_right(self.cuts, self.last) :]
        return len(self.rows) - before

    def directory(self) -> bytes | None:
        """Return the shallowest directory around ``last`` that was not asked yet; None where keys lie flat."""
        if self.asked is None:
            return self.prefix
        shared = self.asked
        while not self.last.startswith(shared):
            shared = shared[: shared.rfind(_SLASH, 0, -1) + 1]
        stop = self.last.find(_SLASH, max(len(shared), len(self.prefix))) + 1
        return self.last[:stop] if stop else None

    def advise(self, directory: bytes, page: Page) -> None:
        """Learn sub-directories of ``directory``; those outside ``(last, until)`` are of no use and are dropped."""
        cuts = {encode(cut) for cut in page.prefixes}
        self.cuts = sorted(cut for cut in cuts if cut > self.last and (self.until is None or cut < self.until))
        self.level, self.advised = directory, True
        if not (page.token and self.cuts):  # otherwise it is worth asking again, once these are used up
            self.asked = directory

    def split(self, most: int) -> list[KeyRange]:
        """Hand over up to ``most`` later parts, at cuts, none expected to be shorter than a page; returns them."""
        # How many sub-directories a page covers: with 50 keys in each, a part of fewer than 20 is not worth a request.
        start = len(self.level)
        width = len({key[: key.find(_SLASH, start) + 1] for key in self._recent if key.startswith(self.level)})
        parts = min(most, len(self.cuts) // max(width, 1))
        return self.cut([self.cuts[part * len(self.cuts) // (parts + 1)] for part in range(1, parts + 1)])

    def cut(self, bounds: list[bytes]) -> list[KeyRange]:
        """Hand over what lies beyond bounds in ``(last, until)``, in order, as parts of their own; returns them."""
        made = [
            KeyRange(self.prefix, after, until, self._between(after, until), self.level, self.asked, self.advised)
            for after, until in zip(bounds, [*bounds[1:], self.until], strict=False)
        ]
        if made:
            self.cuts = self.cuts[: bisect_left(self.cuts, bounds[0])]
            self.until = bounds[0]
        return made

    def view(self, *, latest: bool = False) -> Seen:
        """Return what was seen so far, or on the latest page, and where the range ends, as strings."""
        until = None if self.until is None else decode(self.until)
        first, count = (self._recent[0], len(self._recent)) if latest and self._recent else (self.first, self.seen)
        return Seen(decode(first), decode(self.last), count, until)

    def _between(self, after: bytes, until: bytes | None) -> list[bytes]:
        stop = len(self.cuts) if until is None else bisect_left(self.cuts, until)
        return self.cuts[bisect_right(self.cuts, after) : stop]

    @property
    def token(self) -> str:
        """What continues the listing; empty before the first page."""
        return self._listing.token

    def start_after(self) -> str:
        """Return the exclusive bound for the first page; empty once a token continues it."""
        return "" if self.token else decode(self.last)
