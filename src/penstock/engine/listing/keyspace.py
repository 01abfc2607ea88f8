"""Model of how keys are spread, learned from a listing: bounds that divide the rest of the listing evenly.

Part of a listing: the keys between two bounds, taken page by page, and divided at bounds while it lasts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple, Self

from penstock.engine.listing.listing import Listing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.values import Page


__all__ = ["Keyspace", "Part", "Seen"]

_DEPTH = 96  # characters after the prefix that are considered
# Characters of a bound beyond the common start of a page's first and last key.
_DIGITS = 4
# Step between the keys of a page that are considered; prime, so that no digit of a counter is the same in all of them.
_STRIDE = 61
_HUGE = 1e300
# If this many times what was seen seems to be left, only the order of magnitude is guessed.
_FAR = 10_000.0


class Seen(NamedTuple):
    """The part of a range that a listing has shown: ``keys`` keys from ``first`` to ``last``.

    ``until`` is the end of the range (None: open).
    """

    first: str
    last: str
    keys: int
    until: str | None


class Keyspace:
    """Characters at each position after a prefix, which convert keys to numbers, and numbers to bounds.

    No alphabet is given: positions that have a character in common are assumed to be of one kind (the digits of a
    counter, for example), and have all characters that were seen at any of them. The result is a guess. Bounds may be
    any strings, so a wrong guess costs a request, never a key.
    """

    def __init__(self, prefix: str) -> None:
        """Start without knowledge of the keys that begin with ``prefix``."""
        self._skip = len(prefix)
        self._seen: list[set[str]] = []
        self._kinds: list[str] = []

    def learn(self, keys: list[str]) -> None:
        """Learn from a page: from about 20 of its keys."""
        texts = [key[self._skip : self._skip + _DEPTH] for key in (*keys[::_STRIDE], *keys[-1:])]
        for place, characters in enumerate(zip_longest(*texts, fillvalue="")):
            if place == len(self._seen):
                self._seen.append(set())
            known = self._seen[place]
            if not known.issuperset(characters):
                known.update(characters)
                known.discard("")  # of shorter keys
                self._kinds = []

    def left(self, seen: Seen) -> float:
        """Return how many keys are left in the range, if they are as dense as those seen."""
        *_, low, at, high = self._measured(seen)
        return seen.keys * _ratio(high - at, at - low)

    def bounds(self, seen: Seen, count: int, most_keys: float = 0) -> list[str]:
        """Return at most ``count`` bounds between the last key seen and the end, in order, evenly spaced.

        With ``most_keys`` their distance is at most the space that this many keys seem to take. Without it, if far more
        seems to be left than was seen, mostly because nothing is known of where keys end, the distances grow by a
        factor instead: one round of requests then shows the order of magnitude.
        """
        start, depth, low, at, high = self._measured(seen)
        if at <= low or high <= at:
            return []
        ratio = _ratio(high - at, at - low)
        if most_keys and ratio * seen.keys > most_keys * (count + 1):
            step = max(int(most_keys * 16) * (at - low) // (seen.keys * 16), 1)
            numbers = [at + step * each for each in range(1, count + 1)]
        elif ratio > _FAR:
            numbers = [at + int(ratio ** (each / (count + 1)) * 16) * (at - low) // 16 for each in range(1, count + 1)]
        else:
            numbers = [at + (high - at) * each // (count + 1) for each in range(1, count + 1)]
        stem = seen.last[:start]
        return _between((stem + self._text(number, start, depth) for number in numbers), seen.last, seen.until)

    def _measured(self, seen: Seen) -> tuple[int, int, int, int, int]:
        """Return the first position and the number of characters that count; then first, last and end as numbers."""
        start = self._skip if seen.until is None else max(_common(seen.first, seen.until), self._skip)
        depth = min(_common(seen.first, seen.last) + _DIGITS, self._skip + _DEPTH) - start
        if depth <= 0:
            return start, 0, 0, 0, 0
        low, at = (self._number(key, start, depth) for key in (seen.first, seen.last))
        if seen.until is not None:
            return start, depth, low, at, self._number(seen.until, start, depth)
        high = 1
        for place in range(start, start + depth):
            high *= len(self._kind(place)) + 1
        return start, depth, low, at, high

    def _number(self, key: str, start: int, depth: int) -> int:
        """Return a key's characters as digits; 0 is the end of a key, and an unseen one counts as the next seen."""
        number, exact = 0, True
        for place in range(start, start + depth):
            kind, digit = self._kind(place), 0
            if exact and kind and place < len(key):
                digit = bisect_left(kind, key[place]) + 1
                exact = kind[digit - 1 : digit] == key[place]
            number = number * (len(kind) + 1) + digit
        return number

    def _text(self, number: int, start: int, depth: int) -> str:
        characters: list[str] = []
        for place in range(start + depth - 1, start - 1, -1):
            kind = self._kind(place)
            number, digit = divmod(number, len(kind) + 1)
            if digit:
                characters.append(kind[digit - 1])
            else:  # a key ends here
                characters.clear()
        return "".join(reversed(characters))

    def _kind(self, place: int) -> str:
        """Return the characters at a position of keys, in order."""
        if not self._kinds:
            self._kinds = _kinds(self._seen)
        at = place - self._skip
        return self._kinds[at] if at < len(self._kinds) else ""


def _ratio(part: int, whole: int) -> float:
    """Return the quotient of two integers of any length; 0 if the divisor is not positive."""
    try:
        return part / whole if whole > 0 else 0.0
    except OverflowError:
        return _HUGE


def _kinds(seen: list[set[str]]) -> list[str]:
    """Unite the sets that have a character in common; return the sorted characters of each position."""
    groups: list[set[str]] = []
    for each in seen:
        united = each.union(*(group for group in groups if not group.isdisjoint(each)))
        groups = [*(group for group in groups if group.isdisjoint(each)), united]
    return ["".join(sorted(next(group for group in groups if not group.isdisjoint(each)))) for each in seen]


def _common(one: str, other: str) -> int:
    """Return the length of the common prefix of two strings."""
    most = min(len(one), len(other))
    return next((at for at in range(most) if one[at] != other[at]), most)


def _between(texts: Iterable[str], low: str, high: str | None) -> list[str]:
    """Return the texts that lie between two keys, each above the one before it, in UTF-8 byte order."""
    found: list[str] = []
    last, stop = _octets(low), None if high is None else _octets(high)
    for text in texts:
        octets = _octets(text)
        if octets > last and (stop is None or octets < stop):
            found.append(text)
            last = octets
    return found


def _octets(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


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
