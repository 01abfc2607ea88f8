"""Division of a listing by keys: a model of how keys are spread, parts of a listing, and pages in order from parts.

``Keyspace`` learns from a listing where bounds divide the rest of it evenly. ``KeySpan`` is the keys between two
bounds, taken page by page, and divided while it lasts. ``order_pages`` yields entries in key order, with requests for
later pages in flight.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from penstock.engine.listing.listing import Listing
from penstock.errors import Damaged, PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence

    from penstock.values import Page

_DEPTH = 96  # characters after the prefix that are considered
# Characters of a bound beyond the common start of a page's first and last key.
_DIGITS = 4
# Step between the keys of a page that are considered; prime, so that no digit of a counter is the same in all of them.
_STRIDE = 61
_HUGE = 1e300
# If this many times what was seen seems to be left, only the order of magnitude is guessed.
_FAR = 10_000.0


class Seen(NamedTuple):
    """The part of a range, which ends at ``until`` (None: open), that a listing has shown."""

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
        self._skip = len(prefix)
        self._seen: list[set[str]] = []
        self._kinds: list[str] = []

    def learn(self, keys: Sequence[bytes]) -> None:
        """Learn from a page: from about 20 of its keys."""
        some = map(decode_key, (*keys[::_STRIDE], *keys[-1:]))
        texts = [key[self._skip : self._skip + _DEPTH] for key in some]
        for place, characters in enumerate(zip_longest(*texts, fillvalue="")):
            if place == len(self._seen):
                self._seen.append(set())
            known = self._seen[place]
            if not known.issuperset(characters):
                known.update(characters)
                known.discard("")  # of shorter keys
                self._kinds = []

    def left(self, seen: Seen) -> float:
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
        """Return where the compared characters begin and how many they are; then first, last and end as numbers."""
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
        """Return a key's characters as digits; 0 is the end of a key, and an unseen digit counts as the next seen."""
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
    most = min(len(one), len(other))
    return next((at for at in range(most) if one[at] != other[at]), most)


def _between(texts: Iterable[str], low: str, high: str | None) -> list[str]:
    """Return texts between two keys, each above the one before it, in UTF-8 byte order."""
    found: list[str] = []
    last, stop = encode_key(low), None if high is None else encode_key(high)
    for text in texts:
        octets = encode_key(text)
        if octets > last and (stop is None or octets < stop):
            found.append(text)
            last = octets
    return found


def encode_key(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


def decode_key(key: bytes) -> str:
    return key.decode("utf-8", "surrogateescape")


@dataclass(slots=True, eq=False)
class KeySpan:
    """Keys below ``prefix`` in ``(after, until]``, in UTF-8 byte order (bounds are UTF-8 bytes; None is the end).

    Any string may serve as a bound between two parts: together they always hold every key exactly once. ``beyond`` is
    the first key after ``until`` that a page has shown.
    """

    prefix: bytes
    after: bytes = b""
    until: bytes | None = None
    last: bytes = field(init=False)
    first: bytes = b""
    seen: int = 0
    over: bool = False
    recent: Sequence[bytes] = ()
    beyond: bytes = b""
    _listing: Listing = field(init=False)

    def __post_init__(self) -> None:
        self.last = self.after
        self._listing = Listing(decode_key(self.prefix), decode_key(self.after))

    def accept(self, page: Page) -> int:
        self._listing.take(page)
        keys: Sequence[bytes] = self._listing.keys
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
        """Split off the ranges beyond bounds in ``(last, until)``, in order, as separate parts; return these."""
        ends = zip(bounds, [*bounds[1:], self.until], strict=False)
        made = [type(self)(self.prefix, after, until) for after, until in ends]
        if made:
            self.until = bounds[0]
        return made

    def view(self, *, latest: bool = False) -> Seen:
        """Return the range seen so far, or on the latest page, and the end of the part, as strings."""
        until = None if self.until is None else decode_key(self.until)
        first, count = (self.recent[0], len(self.recent)) if latest and self.recent else (self.first, self.seen)
        return Seen(decode_key(first), decode_key(self.last), count, until)

    @property
    def page(self) -> Sequence[bytes]:
        """The keys of the latest page, also those after ``until``."""
        return self._listing.keys

    @property
    def astray(self) -> bool:
        """Whether it begins after a key and has listed none yet: an error then concerns its start."""
        return bool(self.after) and not self.seen and not self.token

    @property
    def token(self) -> str:
        return self._listing.token

    def start_after(self) -> str:
        """Return the exclusive bound for the first page; empty once a token continues the listing."""
        return "" if self.token else decode_key(self.last)


# Pages listed one after another at first, so that a caller who wants a few keys pays for no others.
_PLAIN = 3
_REQUESTS = 16  # in flight at most
_AHEAD = 64  # pages in memory and in flight at most: some 300 KB each
_QUOTA = 6  # pages of one part that may wait for those before it
_WORTH = 6  # estimated pages left of a part that is divided
# Target size of a part in pages: a little less than a whole number, which would cost another, empty page.
_AIM = 2.8


class NoStartError(Exception):
    """Server that began a part elsewhere than requested: start-after is unreliable, so list page after page."""


class Pages(Protocol):
    """LIST requests in parallel: a ``Pager``."""

    def start(self, prefix: str, *, token: str = "", start_after: str = "") -> Hashable:
        """Send one LIST request; return its identifier."""

    def outcomes(self, *, wait: bool = True) -> Iterable[tuple[Hashable, Page | PenstockError]]:
        """Return the requests that have ended, each with its page or error; with ``wait``, at least one."""


@dataclass(slots=True, eq=False)
class _ListedRange(KeySpan):
    """A part, its pages that wait for those of earlier parts, and the error that comes after its pages."""

    pages: deque[Page] = field(default_factory=deque)
    error: PenstockError | None = None


def order_pages(pager: Callable[[], Pages], prefix: str) -> Generator[Page]:
    """Yield the pages below ``prefix`` in order; each but the last has a token, which cannot continue a listing.

    At most as many pages are requested ahead as were yielded, and at most 64. ``pager`` returns the ``Pages`` of the
    calling process; if that changes, the requests in flight are sent again. ``NoStartError`` if the server ignores
    where a part must begin, or omits keys there that it has shown before. The error of a request comes after the pages
    before it.
    """
    work = _Ordered(prefix)
    while (page := work.next(pager())) is not None:
        yield page


class _Ordered:
    """Parts of a listing in key order: near parts have a few pages, and the last one reaches to the end."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._keyspace = Keyspace(prefix)
        self._parts = deque([_ListedRange(encode_key(prefix))])
        self._flying: dict[Hashable, _ListedRange] = {}
        self._pages: Pages | None = None
        self._ready = 0  # pages that were taken and not yielded yet
        self._yielded = self._sent = self._seen = 0  # pages; requests; keys
        self._page_keys = 1
        # Whether a part has failed; later parts are not wanted any more.
        self._failed = False
        self._first = ""
        # Key behind its end that an earlier part has shown: the next key must not be greater.
        self._awaited = b""

    def next(self, pages: Pages) -> Page | None:
        if pages is not self._pages:  # another process, or an engine that broke
            # Requests that were in flight are sent again as their pages are wanted.
            self._flying, self._pages = {}, pages
        self._take(wait=False)
        while not (head := self._parts[0]).pages:
            if head.error is not None:
                raise head.error
            if not head.over:
                self._fill()
                self._take()
            elif len(self._parts) > 1:
                self._awaited = self._awaited or head.beyond
                self._parts.popleft()
            elif self._awaited:
                raise NoStartError
            else:
                return None
        page = head.pages.popleft()
        self._compare(page)
        self._ready -= 1
        self._yielded += 1
        if self._yielded >= _PLAIN:
            self._fill()
        return page

    def _compare(self, page: Page) -> None:
        if self._awaited and page.entries:
            if encode_key(page.entries[0].key) > self._awaited:
                raise NoStartError
            self._awaited = b""

    def _take(self, *, wait: bool = True) -> None:
        if self._pages is None or not self._flying:
            return
        for request, outcome in self._pages.outcomes(wait=wait):
            part = self._flying.pop(request)
            try:
                if isinstance(outcome, PenstockError):
                    raise outcome
                self._accept(part, outcome)
            except PenstockError as error:
                part.error, self._failed = error, True

    def _accept(self, part: _ListedRange, page: Page) -> None:
        before = part.seen
        try:
            count = part.accept(page)
        except Damaged as error:
            if part.astray:
                raise NoStartError from error
            raise
        self._seen += part.seen - before
        self._first = self._first or part.view().first
        self._page_keys = max(self._page_keys, len(page.entries))
        self._keyspace.learn(part.page)
        if count < len(page.entries):
            page = replace(page, entries=page.entries[:count])
        if count or not part.after:
            more = page.token or ("" if part is self._parts[-1] else decode_key(part.last))
            part.pages.append(replace(page, token=more))
            self._ready += 1

    def _fill(self) -> None:
        """Send the request that is wanted first and, once it is clear that much is wanted, requests for later pages."""
        flying = {*map(id, self._flying.values())}
        head = self._parts[0]
        if not (head.over or head.pages or id(head) in flying):
            self._send(head)
            flying.add(id(head))
        if self._yielded < _PLAIN or self._failed:
            return
        self._divide()
        for part in self._parts:
            if self._room() <= 0:
                break
            if not part.over and len(part.pages) < _QUOTA and id(part) not in flying:
                self._send(part)

    def _room(self) -> int:
        ahead = min(_AHEAD, self._yielded) - self._ready - len(self._flying)
        return min(_REQUESTS - len(self._flying), ahead)

    def _divide(self) -> None:
        """Divide the first part that is probably too large, for the requests that may still be sent."""
        plain = self._seen // self._page_keys  # requests that a plain listing would have made so far
        idle = sum(not part.over and not part.seen for part in self._parts)
        most = min(self._room() - idle, _REQUESTS + 2 * plain - self._sent)
        if most < max(1, min(_REQUESTS, self._yielded) // 2):
            # Dividing for a few requests at a time would leave the others waiting.
            return
        for at, part in enumerate(self._parts):
            if part.over or not part.seen:
                continue
            left, near = min((self._keyspace.left(seen), seen) for seen in self._views(part))
            if left > _WORTH * self._page_keys or part.until is None:
                bounds = self._keyspace.bounds(near, most, _AIM * self._page_keys)
                for later in reversed(part.divide([encode_key(each) for each in bounds])):
                    self._parts.insert(at + 1, later)
                return

    def _views(self, part: _ListedRange) -> Iterator[Seen]:
        """Yield ranges seen of a part: on its latest page, in total and, for the last part, with all parts before it.

        The view with the least dense keys predicts best: a page shows a single folder, and not the gap that follows it,
        and a part that is longer than it should be is divided again.
        """
        latest = part.view(latest=True)
        yield latest
        yield part.view()
        if part is self._parts[-1]:
            yield latest._replace(first=self._first, keys=self._seen)

    def _send(self, part: _ListedRange) -> None:
        if self._pages is not None:
            self._sent += 1
            request = self._pages.start(self._prefix, token=part.token, start_after=part.start_after())
            self._flying[request] = part
