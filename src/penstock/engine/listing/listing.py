"""Verified pages of a listing: every listing is checked against its request; no server is trusted.

If a server ignores ``prefix``, ``rm -r`` would delete other objects; if it repeats its pages, they would be listed
forever. This module only does arithmetic on pages and makes no request.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from operator import lt
from typing import TYPE_CHECKING, overload

from penstock.errors import Damaged
from penstock.values import UNKNOWN_SIZE, ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.engine.listing.names import Names, PackedEntries
    from penstock.values import Page, Uploads

    _Lists = tuple[list[str], list[int], list[str], list[str]]

# Stores may send empty pages while they skip deleted keys; with a store that sends only those, no listing would end.
_EMPTY_PAGES = 1000
_MOST_BYTES = 1 << 63  # sizes are signed 64-bit integers in catalogs, and in every server


class Entries(Sequence[ObjectMeta]):
    """Objects of a page as columns: an ``ObjectMeta`` is created only on access.

    Attributes:
        packed: The columns without a Python object for each entry; None if they are lists.
    """

    __slots__ = ("_lists", "_seconds", "packed")

    def __init__(
        self, lists: _Lists | None, seconds: Callable[[str], float | None], packed: PackedEntries | None = None
    ) -> None:
        """Take keys, sizes, ETags and dates, which ``seconds`` reads, as lists or ``packed``."""
        self._lists, self._seconds, self.packed = lists, seconds, packed

    @property
    def lists(self) -> _Lists:
        """Keys, sizes, ETags and dates."""
        if self._lists is None and self.packed is not None:
            self._lists = self.packed.lists()
        return self._lists or ([], [], [], [])

    def below(self, base: str) -> Entries:
        """Return the entries without ``base`` at the start of their keys; keys that begin otherwise stay."""
        keys = None if self.packed is None else self.packed.keys.without(base.encode())
        if self.packed is not None and keys is not None:
            return Entries(None, self._seconds, self.packed._replace(keys=keys))
        names, sizes, etags, dates = self.lists
        return Entries(([each.removeprefix(base) for each in names], sizes, etags, dates), self._seconds)

    def __len__(self) -> int:
        return len(self.lists[0] if self.packed is None else self.packed.keys)

    @overload
    def __getitem__(self, index: int) -> ObjectMeta: ...
    @overload
    def __getitem__(self, index: slice) -> Entries: ...
    def __getitem__(self, index: int | slice) -> ObjectMeta | Entries:
        if isinstance(index, slice):
            if self.packed is not None:
                return Entries(None, self._seconds, self.packed.part(index))
            keys, sizes, etags, dates = self.lists
            return Entries((keys[index], sizes[index], etags[index], dates[index]), self._seconds)
        keys, sizes, etags, dates = self.lists
        return ObjectMeta(keys[index], sizes[index], etags[index], self._seconds(dates[index]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # unhashable, as a list

    def __repr__(self) -> str:
        return f"<{len(self)} entries>"


def columns(entries: Sequence[ObjectMeta]) -> tuple[list[str], list[int], list[str]]:
    if isinstance(entries, Entries):
        return entries.lists[:3]
    return [each.key for each in entries], [each.size for each in entries], [each.etag for each in entries]


def pack_entries(entries: Sequence[ObjectMeta]) -> PackedEntries:
    from penstock.engine.listing.names import PackedEntries

    packed = entries.packed if isinstance(entries, Entries) else None
    return PackedEntries.of(*columns(entries)) if packed is None else packed


class _EndingPages:
    """Guarantee that a listing ends: no token comes twice, and not all pages are empty."""

    __slots__ = ("_empty", "_seen", "over", "prefix", "token")

    def __init__(self, prefix: str, token: str = "") -> None:
        self.prefix = prefix
        self.token = token
        self.over = False
        self._seen = {token}  # since the last page that was not empty
        self._empty = 0

    def _turn(self, token: str, *, empty: bool) -> None:
        self._empty = self._empty + 1 if empty else 0
        if token and (token in self._seen or self._empty > _EMPTY_PAGES):
            raise Damaged("the listing does not advance: the server repeats a token or sends only empty pages")
        if not empty:
            self._seen.clear()
        self._seen.add(token)
        self.token, self.over = token, not token


class Listing(_EndingPages):
    """Objects and common prefixes below ``prefix``, page by page, in UTF-8 byte order."""

    __slots__ = ("_last", "_start", "delimiter", "keys", "start_after")

    def __init__(self, prefix: str, start_after: str = "", delimiter: str = "", token: str = "") -> None:
        """Begin after ``start_after`` (exclusive) or, with a ``token``, where an earlier page ended."""
        super().__init__(prefix, token)
        self.start_after = start_after
        self.delimiter = delimiter
        self.keys: list[bytes] | Names = []
        self._start = b"" if token else _octets(start_after)
        self._last = self._start  # everything to come lies after it

    @property
    def fresh(self) -> bool:
        return not (self.start_after or self.token or self._last or self.over)

    def take(self, page: Page) -> Page:
        """Take the next page; return it if it matches the request, or raise ``Damaged``."""
        packed = page.entries.packed if isinstance(page.entries, Entries) else None
        if packed is None:
            names, sizes, _ = columns(page.entries)
            keys: list[bytes] | Names = [*map(str.encode if "".join(names).isascii() else _octets, names)]
            least, most = min(sizes, default=0), max(sizes, default=0)
        else:
            keys, least, most = packed.keys, int(packed.sizes.min(initial=0)), 0
        groups = [_octets(each) for each in page.prefixes]
        # Servers differ in whether they list a common prefix that contains start_after.
        rolled = bool(groups) and self._last is self._start and self._start.startswith(groups[0])
        self.keys = keys
        self._check(keys)
        self._check(groups, rolled=rolled)
        if self.delimiter:
            self._check_delimited(keys, groups)
        if not UNKNOWN_SIZE <= least <= most < _MOST_BYTES:
            wrong = next(each for each in page.entries if not UNKNOWN_SIZE <= each.size < _MOST_BYTES)
            raise Damaged(f"the listing declares for {wrong.key!r} a size of {wrong.size} bytes")
        self._turn(page.token, empty=not (keys or groups or page.advanced))
        if keys or groups:
            self._last = max(*list(keys[-1:]), *groups[-1:], self._last)
        return page

    def _check(self, names: list[bytes] | Names, *, rolled: bool = False) -> None:
        """Check the order and the prefix of names.

        Comparing the first and the last name with the prefix is enough: names with one prefix are adjacent in byte
        order.
        """
        if not names:
            return
        at = _first_disorder(names) if isinstance(names, list) else names.first_disorder()
        if at >= 0:
            self._refuse_order(names[at], names[at + 1])
        prefix = _octets(self.prefix)
        for name in (names[0], names[-1]):
            if not name.startswith(prefix):
                raise Damaged(f"the listing went astray: it contains {name!r}, which does not begin with {prefix!r}")
        if names[0] <= self._last and not rolled:
            self._refuse_order(self._last, names[0])

    def _refuse_order(self, before: bytes, after: bytes) -> None:
        what = f"the listing does not advance in UTF-8 byte order: {after!r} came after {before!r}"
        if before is self._start and before:
            raise Damaged(f"{what}: the server ignores start-after")
        raise Damaged(f"{what}; stores with unsorted listings (S3 directory buckets) are not supported")

    def _check_delimited(self, keys: Iterable[bytes], groups: Iterable[bytes]) -> None:
        start, mark = len(_octets(self.prefix)), _octets(self.delimiter)
        for key in keys:
            if mark in key[start:]:
                raise Damaged(f"the listing went astray: {key!r} is beyond the delimiter {mark!r}")
        for group in groups:
            if group.find(mark, start) != len(group) - len(mark) or len(group) < start + len(mark):
                raise Damaged(f"the listing went astray: {group!r} is not a common prefix up to the delimiter {mark!r}")


class UploadListing(_EndingPages):
    """Unfinished uploads to keys below ``prefix``, page by page, in any order: Ceph sorts ``a-b`` before ``a``."""

    __slots__ = ("_found",)

    def __init__(self, prefix: str) -> None:
        super().__init__(prefix)
        self._found: set[tuple[str, str]] = set()

    def take(self, page: Uploads) -> Uploads:
        """Take the next page; return it if it matches the request, or raise ``Damaged``."""
        for each in page.entries:
            if not each.key.startswith(self.prefix) or not each.key:
                what = f"asked for uploads to keys that begin with {self.prefix!r}, it gave one to {each.key!r}"
                raise Damaged(f"the listing went astray: {what}")
            if (each.key, each.id) in self._found:
                raise Damaged(f"the listing does not advance: an upload to {each.key!r} is listed twice")
            self._found.add((each.key, each.id))
        self._turn(page.token, empty=not page.entries)
        return page


def _first_disorder(names: list[bytes]) -> int:
    rising = all(map(lt, names, names[1:]))
    return -1 if rising else next(at for at, (a, b) in enumerate(pairwise(names)) if a >= b)


def _octets(key: str) -> bytes:
    try:
        return key.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise Damaged(f"the listing contains {key!r}, which is not a key: it cannot be encoded in UTF-8") from None
