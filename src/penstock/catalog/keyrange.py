"""A key range of a listing: the keys between two bounds, taken in page by page, checked, and split on demand."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.catalog.storage.builder import TableBuilder
from penstock.catalog.storage.strings import decode, encode
from penstock.listing import Listing

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.values import ObjectMeta, Page

__all__ = ["KeyRange"]

_SLASH = b"/"


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
        last: The last key seen, ``after`` at first.
        over: Nothing more is to come.
        rows: What was seen and kept.

    """

    prefix: bytes
    after: bytes = b""
    until: bytes | None = None
    cuts: list[bytes] = field(default_factory=list)
    level: bytes = b""
    asked: bytes | None = None
    last: bytes = field(init=False)
    over: bool = False
    rows: TableBuilder = field(default_factory=TableBuilder)
    _recent: list[bytes] = field(default_factory=list)
    _listing: Listing = field(init=False)

    def __post_init__(self) -> None:
        """Stand before the first key."""
        self.last = self.after
        self._listing = Listing(decode(self.prefix), decode(self.after))

    def take(self, page: Page, keep: Callable[[ObjectMeta], bool]) -> int:
        """Take in the next page; returns how many keys of it were kept.

        Raises:
            Damaged: The server repeats itself, or lists what was not asked for.

        """
        before, self._recent = len(self.rows), []
        for meta in self._listing.take(page).entries:
            key = encode(meta.key)
            if self.until is not None and key > self.until:
                self.over = True
                break
            self.last = key
            self._recent.append(key)
            if keep(meta):
                self.rows.add(key, meta.size, meta.etag)
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
        self.level = directory
        if not (page.token and self.cuts):  # otherwise it is worth asking again, once these are used up
            self.asked = directory

    def split(self, most: int) -> list[KeyRange]:
        """Hand over up to ``most`` later parts, at cuts, none expected to be shorter than a page; returns them."""
        # How many sub-directories a page covers: with 50 keys in each, a part of fewer than 20 is not worth a request.
        start = len(self.level)
        width = len({key[: key.find(_SLASH, start) + 1] for key in self._recent if key.startswith(self.level)})
        parts = min(most, len(self.cuts) // max(width, 1))
        bounds = [self.cuts[part * len(self.cuts) // (parts + 1)] for part in range(1, parts + 1)]
        made = [
            KeyRange(self.prefix, after, until, self._between(after, until), self.level, self.asked)
            for after, until in zip(bounds, [*bounds[1:], self.until], strict=False)
        ]
        if made:
            self.cuts = self.cuts[: bisect_left(self.cuts, bounds[0])]
            self.until = bounds[0]
        return made

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
