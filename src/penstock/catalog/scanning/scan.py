"""Listing a prefix with many requests in parallel: bounds between them are directories, or guessed from keys seen."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from heapq import heapify, heapreplace
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, Self

from penstock.catalog.scanning.journal import Stretch, gaps, overlapping
from penstock.catalog.scanning.keyrange import KeyRange
from penstock.catalog.select import globs, selector
from penstock.catalog.storage.builder import TableBuilder
from penstock.catalog.storage.strings import decode, encode
from penstock.errors import ConfigError, Damaged
from penstock.listing import columns
from penstock.listing.keyspace import Keyspace

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from penstock.catalog.storage.table import Table
    from penstock.values import Page

__all__ = ["Listable", "Listing", "listed", "scan"]

_PLAIN = 3  # pages that are listed before bounds are guessed: a short listing costs nothing more
_WORTH = 1.5  # pages that a part is to have


class Known(Protocol):
    """What was listed before, and is told what is listed now: ``Journal``, ``Beyond``."""

    @property
    def known(self) -> Sequence[Stretch]:
        """What need not be listed, in order and without overlap."""

    def add(self, stretch: Stretch) -> None:
        """Take note of a page."""

    def forget(self) -> None:
        """Leave nothing of what was taken note of: it cannot be relied on."""


class Pages(Protocol):
    """LIST requests in parallel; leaving the ``with`` block cancels those in flight."""

    @property
    def seeks(self) -> bool:
        """Whether a listing can begin after any key without the pages before it."""

    @property
    def jumps(self) -> bool:
        """Whether that costs the store no more than any other page."""

    def start(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Hashable:
        """Send one LIST request; return its name."""

    def take(self) -> Iterable[tuple[Hashable, Page]]:
        """Wait until a page has come; returns all that have, each with its request's name."""

    def __enter__(self) -> Self:
        """Return itself."""

    def __exit__(self, *_: object) -> None:
        """Cancel requests in flight."""


class Listable(Protocol):
    """What scanning needs of a ``Source``."""

    def pager(self) -> Pages:
        """Return a sender of requests in parallel."""

    def url(self, key: str) -> str:
        """Return the URL of a key."""


def scan(
    source: Listable,
    prefix: str,
    *,
    include: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    workers: int = 32,
    progress: Callable[[int], None] | None = None,
) -> tuple[str, Table]:
    """List every key that begins with the string ``prefix``, in UTF-8 byte order, each once, into a table.

    A key written or deleted meanwhile is in the result or not. Globs (see ``select``) are relative to the prefix up to
    its last ``/``, which is returned first; directory markers are left out. Nothing found is an empty table, no error.

    Costs: a prefix of one page is one request. Beyond it the plain listing continues, and while fewer than ``workers``
    requests are in flight each full page may cause one delimiter listing beside it, whose sub-directories are bounds at
    which others take over part of the rest. Where directories do not suffice (a flat prefix of n pages), bounds are
    guessed from the keys seen, and the range that seems to hold most is divided first. Each part costs at most one page
    more than its share, and none is guessed while there are twice as many requests as full pages came, and ``workers``.
    Stores where beginning after a key is dear (local folders, web servers) are divided at directories alone, so a flat
    prefix costs n + 1 requests there. All are started on this thread; an error or Ctrl-C cancels those in flight.

    Args:
        source: Where.
        prefix: Exactly what keys begin with: ``train`` matches ``train2/x`` too.
        include: Globs of which one must match; none given is everything.
        exclude: Globs of which none may match.
        workers: Requests in flight at most, at least 1; 1 lists plainly, and so are stores listed that cannot begin a
            listing after any key (Azure), and servers that turn out to ignore where it should begin, or to leave keys
            out there: parts overlap by a key.
        progress: Called on this thread after each page with the number of keys chosen so far.

    Raises:
        Damaged: The server repeats itself, or lists out of order or outside the prefix.
        ConfigError: A glob is impossible, or ``workers`` is less than 1.
        PenstockError: What a request raised.

    """
    return listed(source, prefix, Listing(include, exclude, workers, progress))


@dataclass(frozen=True, slots=True)
class Listing:
    """How to list: see ``scan``. What ``known`` has is not listed again, and it is told of each page."""

    include: str | Iterable[str] = ()
    exclude: str | Iterable[str] = ()
    workers: int = 32
    progress: Callable[[int], None] | None = None
    known: Known | None = None


def listed(source: Listable, prefix: str, how: Listing) -> tuple[str, Table]:
    """List as ``scan`` does; see there."""
    if how.workers < 1:
        raise ConfigError(f"workers must be at least 1, not {how.workers}")
    base = prefix[: prefix.rfind("/") + 1]
    include, exclude = globs(how.include), globs(how.exclude)
    chosen = selector(include, exclude)
    keep = (lambda key, size: chosen(key[len(base) :], size)) if include or exclude else None
    for plainly in (False, True):
        with source.pager() as pages:
            work = _Scan(pages, prefix, keep, how, seeks=pages.seeks and not plainly)
            try:
                work.run()
                break
            except _NoStartError:
                if how.known is not None:
                    how.known.forget()
            except Damaged as error:
                error.url = error.url or source.url(prefix)
                raise
    return base, work.rows().freeze()


class _NoStartError(Exception):
    """The server began a part elsewhere than it was asked to: start-after is nothing to rely on, so list it plainly."""


class _Scan:
    """Key ranges of a listing, each with its next page under way, and advice on where to cut them."""

    def __init__(
        self, pages: Pages, prefix: str, keep: Callable[[str, int], bool] | None, how: Listing, *, seeks: bool
    ) -> None:
        self._pieces: list[KeyRange] = []
        self._waiting: list[KeyRange] = []  # until fewer than `workers` requests are in flight
        self._found = 0
        self._pages, self._prefix, self._keep = pages, prefix, keep
        self._seeks, self._workers = seeks, how.workers if seeks else 1
        self._progress, self._known = how.progress, how.known
        # What each request in flight is for: the next page of a piece, or (with a directory) advice for it.
        self._flying: dict[Hashable, tuple[KeyRange, bytes | None]] = {}
        self._keyspace = Keyspace(prefix) if pages.jumps and seeks else None
        self._left: dict[KeyRange, float] = {}  # pages that seem to be left of a range, until its next one comes
        self._sent = self._seen = 0  # requests; keys of this listing, each once
        self._page_keys = 1

    def run(self) -> None:
        self._open(self._first())
        while self._flying:
            for request, page in self._pages.take():
                piece, directory = self._flying.pop(request)
                if directory is None:
                    self._take(piece, page)
                    self._next(piece)
                elif not piece.over:
                    piece.advise(directory, page)
                    self._share(piece)
            self._open([])
            self._guess()
        self._check()

    def _check(self) -> None:
        """Compare where each part began with the key that the parts before it have shown next.

        A key that was deleted since is no sign of anything, so the server is asked for it: by its name as a prefix,
        without a key to begin after. One that was written since costs a plain listing.
        """
        missing = [*_passed_over(sorted(self._pieces, key=attrgetter("after")))]
        while missing or self._flying:
            while missing and len(self._flying) < self._workers:
                key = missing.pop()
                self._flying[self._pages.start(decode(key))] = KeyRange(key), None
            for request, page in self._pages.take():
                piece, _ = self._flying.pop(request)
                if piece.prefix in map(encode, columns(page.entries)[0][:1]):
                    raise _NoStartError

    def _first(self) -> list[KeyRange]:
        """Return what to list, and take over what is known."""
        prefix = encode(self._prefix)
        if self._known is None:
            return [KeyRange(prefix)]
        known = self._known.known
        if not self._seeks:  # all of it has to be listed again: only what is not wanted stays away
            unwanted, inner = [each for each in known if not each.keys], self._keep or selector()
            self._keep = lambda key, size: not _within(encode(key), unwanted) and inner(key, size)
            return [KeyRange(prefix)]
        known = overlapping(known)
        for each in known:
            piece = KeyRange(prefix, each.after, each.until, over=True, first=each.first, beyond=each.beyond)
            piece.rows.add_all([*each.keys], [*each.sizes], [*each.etags])
            self._pieces.append(piece)
            self._found += len(piece.rows)
        return [KeyRange(prefix, after, until) for after, until in gaps(known)]

    def rows(self) -> TableBuilder:
        """Join the parts in key order, letting go of each as it is copied."""
        rows = TableBuilder()
        self._pieces.sort(key=attrgetter("after"), reverse=True)
        while self._pieces:
            rows.extend(self._pieces.pop().rows)
        return rows

    def _take(self, piece: KeyRange, page: Page) -> None:
        before, after, rows = piece.seen, piece.last, len(piece.rows)
        try:
            self._found += piece.take(page, self._keep)
        except Damaged as error:
            if piece.astray:
                raise _NoStartError from error
            raise
        if self._known is not None and self._seeks:
            until, seen = piece.until if piece.over else piece.last, (b"".join(piece.recent[:1]), piece.beyond)
            self._known.add(Stretch(after, until, *piece.rows.since(rows), *seen))
        if self._progress is not None:
            self._progress(self._found)
        self._seen += piece.seen - before
        self._left.pop(piece, None)
        self._page_keys = max(self._page_keys, len(page.entries))
        if self._keyspace is not None:
            self._keyspace.learn(columns(page.entries)[0])

    def _guess(self) -> None:
        """Divide the ranges that seem to hold most, at guessed bounds, for as many requests as may be in flight yet."""
        plain = self._seen // self._page_keys  # requests that a plain listing would have made by now
        most = min(self._workers - len(self._flying) - len(self._waiting), self._workers + 2 * plain - self._sent)
        if self._keyspace is None or most <= 0 or plain < _PLAIN:
            return
        asking = {piece for piece, directory in self._flying.values() if directory is not None}
        listed = [piece for piece, _ in self._flying.values() if piece.seen and piece.advised and piece not in asking]
        for piece, parts in _divided(most, [(piece, self._pages_left(piece)) for piece in listed]):
            made = piece.cut([encode(bound) for bound in self._keyspace.bounds(piece.view(latest=True), parts)])
            self._left.pop(piece, None)
            self._open(made)

    def _pages_left(self, piece: KeyRange) -> float:
        if piece not in self._left and self._keyspace is not None:
            seen = piece.view(), piece.view(latest=True)  # the latest page tells more of what is near
            self._left[piece] = max(map(self._keyspace.left, seen)) / self._page_keys
        return self._left[piece]

    def _open(self, pieces: list[KeyRange]) -> None:
        self._pieces += pieces
        self._waiting += pieces
        while self._waiting and len(self._flying) < self._workers:
            self._request(self._waiting.pop())

    def _request(self, piece: KeyRange) -> None:
        self._sent += 1
        request = self._pages.start(self._prefix, token=piece.token, start_after=piece.start_after())
        self._flying[request] = piece, None

    def _next(self, piece: KeyRange) -> None:
        if piece.over:
            return
        self._request(piece)
        if piece.cuts:
            self._share(piece)
        elif len(self._flying) < self._workers and not self._asking(piece):
            self._ask(piece)

    def _share(self, piece: KeyRange) -> None:
        self._open(piece.split(self._workers - len(self._flying)))

    def _asking(self, piece: KeyRange) -> bool:
        return any(each is piece and directory is not None for each, directory in self._flying.values())

    def _ask(self, piece: KeyRange) -> None:
        directory = piece.directory()
        if directory is not None:
            self._sent += 1
            request = self._pages.start(decode(directory), start_after=decode(piece.last), delimiter="/")
            self._flying[request] = piece, directory


def _divided(most: int, ranges: list[tuple[KeyRange, float]]) -> list[tuple[KeyRange, int]]:
    """Return into how many parts more to divide ranges, ``most`` in all, so that the largest part is the smallest."""
    parts = [1] * len(ranges)
    largest = [(-pages, at) for at, (_, pages) in enumerate(ranges)]
    heapify(largest)
    for _ in range(most if ranges else 0):
        at = largest[0][1]
        smaller = ranges[at][1] / (parts[at] + 1)
        if smaller < _WORTH:
            break
        parts[at] += 1
        heapreplace(largest, (-smaller, at))
    return [(piece, count - 1) for (piece, _), count in zip(ranges, parts, strict=True) if count > 1]


def _passed_over(pieces: Iterable[KeyRange]) -> Iterator[bytes]:
    """Yield keys that a part has shown beyond its end, and that those after it begin behind or do not have."""
    awaited = b""
    for piece in pieces:
        if awaited and piece.first:
            if piece.first > awaited:
                yield awaited
            awaited = b""
        awaited = awaited or piece.beyond
    if awaited:
        yield awaited


def _within(key: bytes, known: Sequence[Stretch]) -> bool:
    """Say whether a key lies in one of these stretches, which are in order."""
    at = bisect_left(known, key, key=attrgetter("after"))
    until = known[at - 1].until if at else b""
    return until is None or key <= until
