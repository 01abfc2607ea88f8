"""A stretch of a listing: the keys between two bounds, taken in page by page, checked, and split on demand."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.catalog.columns import Growing, decode, encode
from penstock.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.values import ObjectMeta, Page

__all__ = ["Stretch"]

_SLASH = b"/"
# Stores may send empty pages while they skip deleted keys; a store that sends only those would hold us for ever.
_EMPTY_PAGES = 1000


@dataclass(slots=True, eq=False)
class Stretch:
    """The keys below ``prefix`` in ``(after, until]``, in UTF-8 byte order (all bounds are UTF-8 bytes).

    Any string may serve as a bound between two stretches: together they always hold every key exactly once. So what a
    delimiter listing says is only advice on where to cut, and a wrong answer costs time, never a key.

    Attributes:
        prefix: What every key begins with.
        after: Exclusive.
        until: Inclusive; None is the end of the prefix.
        cuts: Good bounds in ``(last, until)``, in order: sub-directories of ``level``.
        level: A directory; ``prefix`` at first.
        asked: The deepest directory that has no other cuts to offer; None before the first was asked for.
        last: The last key seen, ``after`` at first.
        token: Continues the listing; empty before the first page.
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
    token: str = ""
    over: bool = False
    rows: Growing = field(default_factory=Growing)
    _recent: list[bytes] = field(default_factory=list)
    _empty: int = 0

    def __post_init__(self) -> None:
        """Stand before the first key."""
        self.last = self.after

    def take(self, page: Page, keep: Callable[[ObjectMeta], bool]) -> int:
        """Take in the next page; returns how many keys of it were kept.

        Raises:
            Damaged: The server repeats itself, or lists keys out of order or outside the prefix.

        """
        before, self._recent = len(self.rows), []
        for meta in page.entries:
            key = encode(meta.key)
            self._check(key)
            if self.until is not None and key > self.until:
                self.over = True
                break
            self.last = key
            self._recent.append(key)
            if keep(meta):
                self.rows.add(key, meta.size, meta.etag)
        self._advance(page)
        return len(self.rows) - before

    def _advance(self, page: Page) -> None:
        self._empty = 0 if page.entries else self._empty + 1
        if page.token and (page.token == self.token or self._empty > _EMPTY_PAGES):
            raise Damaged("the listing does not advance: the server repeats a token or sends only empty pages")
        self.token = page.token
        self.over = self.over or not page.token
        self.cuts = self.cuts[bisect_right(self.cuts, self.last) :]

    def _check(self, key: bytes) -> None:
        if not key.startswith(self.prefix):
            raise Damaged(f"the listing went astray: asked for keys that begin with {self.prefix!r}, it gave {key!r}")
        if key <= self.last:
            raise Damaged(
                f"the listing does not advance in UTF-8 byte order: {key!r} came after {self.last!r}. A server that "
                "ignores start-after can still be listed with workers=1"
            )

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

    def split(self, most: int) -> list[Stretch]:
        """Hand over up to ``most`` later parts, at cuts, none expected to be shorter than a page; returns them."""
        # How many sub-directories a page covers: with 50 keys in each, a part of fewer than 20 is not worth a request.
        start = len(self.level)
        width = len({key[: key.find(_SLASH, start) + 1] for key in self._recent if key.startswith(self.level)})
        parts = min(most, len(self.cuts) // max(width, 1))
        bounds = [self.cuts[part * len(self.cuts) // (parts + 1)] for part in range(1, parts + 1)]
        made = [
            Stretch(self.prefix, after, until, self._between(after, until), self.level, self.asked)
            for after, until in zip(bounds, [*bounds[1:], self.until], strict=False)
        ]
        if made:
            self.cuts = self.cuts[: bisect_left(self.cuts, bounds[0])]
            self.until = bounds[0]
        return made

    def _between(self, after: bytes, until: bytes | None) -> list[bytes]:
        stop = len(self.cuts) if until is None else bisect_left(self.cuts, until)
        return self.cuts[bisect_right(self.cuts, after) : stop]

    def start_after(self) -> str:
        """Return the exclusive bound for the first page; empty once a token continues it."""
        return "" if self.token else decode(self.last)
