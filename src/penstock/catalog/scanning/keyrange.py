"""A key range of a scan: a part of a listing that collects its rows, and is split at directories on demand."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING

from penstock.catalog.select import selector
from penstock.catalog.storage.builder import TableBuilder
from penstock.catalog.storage.strings import encode
from penstock.listing import columns
from penstock.listing.part import Part

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.values import Page

__all__ = ["KeyRange"]

_SLASH = b"/"
_no_marker = selector()


@dataclass(slots=True, eq=False)
class KeyRange(Part):
    """A part whose rows are collected, and which is divided at directories, too.

    What a delimiter listing says is only advice on where to cut, and a wrong answer costs time, never a key.

    Attributes:
        cuts: Good bounds in ``(last, until)``, in order: sub-directories of ``level``.
        level: A directory; ``prefix`` at first.
        asked: The deepest directory that has no other cuts to offer; None before the first was asked for.
        advised: A delimiter listing was asked about this range, or the one that it is a part of.
        rows: What was seen and kept.

    """

    cuts: list[bytes] = field(default_factory=list)
    level: bytes = b""
    asked: bytes | None = None
    advised: bool = False
    rows: TableBuilder = field(default_factory=TableBuilder)

    def take(self, page: Page, keep: Callable[[str, int], bool] | None = None) -> int:
        """Take in the next page; returns how many keys of it were kept.

        ``keep`` says so of a key and a size; by default all are kept but directory markers.

        Raises:
            Damaged: The server repeats itself, or lists what was not asked for.

        """
        before, count = len(self.rows), self.accept(page)
        names, sizes, etags = columns(page.entries)
        keys = self.recent
        if count < len(sizes):
            sizes, etags = sizes[:count], etags[:count]
        if keep is not None or 0 in sizes:
            wanted = [*map(keep or _no_marker, names, sizes)]  # names may be more, and then count no more
            keys, sizes = [*compress(keys, wanted)], [*compress(sizes, wanted)]
            etags = [*compress(etags, wanted)]
        self.rows.add_all(keys, sizes, etags)
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
        width = len({key[: key.find(_SLASH, start) + 1] for key in self.recent if key.startswith(self.level)})
        parts = min(most, len(self.cuts) // max(width, 1))
        return self.cut([self.cuts[part * len(self.cuts) // (parts + 1)] for part in range(1, parts + 1)])

    def cut(self, bounds: list[bytes]) -> list[KeyRange]:
        """Divide as ``divide`` does; each part has the cuts that lie in it."""
        made = self.divide(bounds)
        for part in made:
            part.cuts = self._between(part.after, part.until)
            part.level, part.asked, part.advised = self.level, self.asked, self.advised
        if made:
            self.cuts = self.cuts[: bisect_left(self.cuts, bounds[0])]
        return made

    def _between(self, after: bytes, until: bytes | None) -> list[bytes]:
        stop = len(self.cuts) if until is None else bisect_left(self.cuts, until)
        return self.cuts[bisect_right(self.cuts, after) : stop]
