"""Part of a listing: the keys between two bounds, taken page by page, and divided at bounds while it lasts."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from penstock.engine.listing.keyspace import Seen
from penstock.engine.listing.listing import Listing

if TYPE_CHECKING:
    from penstock.values import Page

__all__ = ["Part"]


@dataclass(slots=True, eq=False)
class Part:
    """Keys below ``prefix`` in ``(after, until]``, in UTF-8 byte order (all bounds are UTF-8 bytes).

    Any string may serve as a bound between two parts: together they always hold every key exactly once.

    Attributes:
        prefix: Prefix of every key.
        after: Exclusive lower bound.
        until: Inclusive upper bound; None is the end of the prefix.
        last: The last key seen, ``after`` at first.
        first: The first key seen; empty before that.
        seen: How many keys were seen.
        over: Whether no more keys follow.
        recent: The keys of the latest page.
        beyond: The first key after ``until`` that a page has shown; empty before that.

    """

    prefix: bytes
    after: bytes = b""
    until: bytes | None = None
    last: bytes = field(init=False)
    first: bytes = b""
    seen: int = 0
    over: bool = False
    recent: list[bytes] = field(default_factory=list)
    beyond: bytes = b""
    _listing: Listing = field(init=False)

    def __post_init__(self) -> None:
        """Start before the first key."""
        self.last = self.after
        self._listing = Listing(_decode(self.prefix), _decode(self.after))

    def accept(self, page: Page) -> int:
        """Take the next page; return how many of its entries, from the first on, lie within the part.

        Raises:
            Damaged: The server repeats itself, or lists what was not requested.

        """
        self._listing.take(page)
        keys = self._listing.keys
        if self.until is not None and keys and keys[-1] > self.until:
            stop = bisect_right(keys, self.until)
            self.over, self.beyond = True, keys[stop]
            keys = keys[:stop]
        self.recent = keys
        if keys:
            self.first, self.last = self.first or keys[0], keys[-1]
            self.seen += len(keys)
        self.over = self.over or self._listing.over
        return len(keys)

    def divide(self, bounds: list[bytes]) -> list[Self]:
        """Hand over what lies beyond bounds in ``(last, until)``, in order, as separate parts; return these."""
        ends = zip(bounds, [*bounds[1:], self.until], strict=False)
        made = [type(self)(self.prefix, after, until) for after, until in ends]
        if made:
            self.until = bounds[0]
        return made

    def view(self, *, latest: bool = False) -> Seen:
        """Return what was seen so far, or on the latest page, and the end of the part, as strings."""
        until = None if self.until is None else _decode(self.until)
        first, count = (self.recent[0], len(self.recent)) if latest and self.recent else (self.first, self.seen)
        return Seen(_decode(first), _decode(self.last), count, until)

    @property
    def astray(self) -> bool:
        """Whether it begins after a key and has shown none yet: an error then concerns where it began."""
        return bool(self.after) and not self.seen and not self.token

    @property
    def token(self) -> str:
        """Token that continues the listing; empty before the first page."""
        return self._listing.token

    def start_after(self) -> str:
        """Return the exclusive bound for the first page; empty once a token continues the listing."""
        return "" if self.token else _decode(self.last)


def _decode(key: bytes) -> str:
    return key.decode("utf-8", "surrogateescape")
