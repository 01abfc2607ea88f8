"""Parallel listing of a prefix, divided at directories or at bounds guessed from the keys seen.

Errors for a prefix without objects, with hints at the intended name, from two requests at most.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from heapq import heapify, heapreplace
from logging import getLogger
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

from penstock.data.catalog.columns.column import decode, encode
from penstock.data.catalog.columns.table import TableBuilder
from penstock.data.catalog.discovery.journal import Stretch, gaps, overlap_stretches
from penstock.data.catalog.discovery.links import check_links
from penstock.data.ranks import is_own, torch_store
from penstock.engine.listing.keyspace import Keyspace, KeySpan
from penstock.engine.listing.listing import pack_entries
from penstock.engine.listing.names import PackedEntries
from penstock.engine.listing.select import globs, selector, split_of, splits_of
from penstock.errors import ConfigError, Damaged, NotFound, PenstockError
from penstock.stores.urls import LOCAL_ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.data.catalog.columns.compact import Keys
    from penstock.data.catalog.columns.table import Table
    from penstock.data.catalog.discovery.journal import Beyond, Journal
    from penstock.data.shards.format import ShardFormat
    from penstock.engine.listing.names import Names
    from penstock.engine.listing.select import Leftovers
    from penstock.source import Source
    from penstock.values import Page

    # Returns a mask of the keys to keep, given keys and sizes.
    Keep = Callable[[Names, NDArray[np.int64]], NDArray[np.bool_]]

_LOG = getLogger("penstock")
_MANY_KEYS = 100_000
_WITHOUT_CATALOGS = ("mp4", "audio")  # formats of files that datasets open without a catalog
# Pages listed before bounds are guessed: a short listing costs no further request.
_PLAIN = 3
_WORTH = 1.5  # least pages of a part
_MOST_NAMES = 1000


class Pages(Protocol):
    """LIST requests in parallel; leaving the ``with`` block cancels those in flight."""

    @property
    def seeks(self) -> bool:
        """Whether a listing can begin after any key, without listing the pages before it."""

    @property
    def jumps(self) -> bool:
        """Whether beginning after a key costs the store no more than any other page."""

    def start(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Hashable:
        """Send one LIST request; return its identifier."""

    def take(self) -> Iterable[tuple[Hashable, Page]]:
        """Wait for at least one page; return all pages that have arrived, each with its request's identifier."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """Options of a listing.

    Attributes:
        include: Globs of which one must match; without any, every key matches.
        exclude: Globs of which none may match.
        workers: Most requests in flight, at least 1. With 1, pages are listed one after another. So are stores that
            cannot begin a listing after any key (Azure), and servers that turn out to ignore the key to begin after, or
            to leave keys out there. Parts overlap by a key to detect this.
        progress: Called on this thread after each page with the number of keys selected so far.
        known: Stretches that are not listed again; it records pages.
        leftovers: Of other tools, which are left out; None: globs alone choose, also among links.
        versions: Record version ids; ``Unusable`` if the bucket keeps no versions.
    """

    include: str | Iterable[str] = ()
    exclude: str | Iterable[str] = ()
    workers: int = 32
    progress: Callable[[int], None] | None = None
    known: Journal | Beyond | None = None
    leftovers: Leftovers | None = None
    versions: bool = False


def listed(source: Source, prefix: str, how: ScanOptions) -> tuple[str, Table]:
    """List every key that begins with the string ``prefix``, in UTF-8 byte order, each once, into a table.

    A key that is written or deleted meanwhile may or may not be in the result. Globs (see ``select``) are relative to
    the prefix up to its last ``/``, which is the first value returned; directory markers are left out. If no key is
    found, the table is empty; this is not an error.

    Costs: a prefix of one page costs one request. A longer one continues page by page. While fewer than ``workers``
    requests are in flight, each full page may also cause one delimiter listing; its sub-directories are bounds at which
    further requests take over part of the rest. Where directories do not suffice (a flat prefix of n pages), bounds are
    guessed from the keys seen, and the range that seems to hold most is divided first. Each part costs at most one page
    more than its share. No bound is guessed once ``workers`` plus twice as many requests as full pages came were sent.
    Stores where beginning after a key is expensive (local folders, web servers) are divided only at directories, so a
    flat prefix costs n + 1 requests there. All requests are started on this thread; an error or Ctrl-C cancels those in
    flight.
    """
    if how.workers < 1:
        raise ConfigError(f"workers must be at least 1, got {how.workers}")
    base = prefix[: prefix.rfind("/") + 1]
    chosen, left = selector(how.include, how.exclude), how.leftovers
    keep = make_filter(base, how)
    if how.versions:
        source.check_versioned(prefix)
    for plainly in (False, True):
        with source.pager(versions=how.versions) as pages:
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
        if left is not None:
            left.clear()
    if left is not None:
        report_left_out(source, prefix, lambda name: chosen(name, 1), left)
    return base, work.rows().freeze()


def make_filter(base: str = "", how: ScanOptions | None = None) -> Keep:
    """Return a filter by globs and leftovers of ``how``, by names below ``base``; directory markers are left out."""
    how = how or ScanOptions()
    include, exclude, left = globs(how.include), globs(how.exclude), how.leftovers
    chosen = selector(include, exclude) if include or exclude else None
    skip = len(encode(base))

    def keep(keys: Names, sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
        mask = np.ones(len(keys), np.bool_)
        for at in np.flatnonzero(sizes == 0).tolist():
            mask[at] = keys[at][skip:][-1:] not in (b"", _SLASH)
        if chosen is not None:
            names = (each[len(base) :] for each in keys.texts())
            mask &= np.fromiter(map(chosen, names, sizes.tolist()), np.bool_, len(keys))
        if left is not None and len(keys):
            for at in np.flatnonzero(mask & left.suspects(keys, skip)).tolist():
                mask[at] = left.wanted(decode(keys[at][skip:]))
        return mask

    return keep


class _NoStartError(Exception):
    """Signal that the server began a part at a wrong key: start-after is unreliable, so list page by page."""


class _Scan:
    """Key ranges of a listing, each with a request for its next page, and advice on where to divide them."""

    def __init__(self, pages: Pages, prefix: str, keep: Keep, how: ScanOptions, *, seeks: bool) -> None:
        self._pieces: list[KeyRange] = []
        self._waiting: list[KeyRange] = []  # until fewer than `workers` requests are in flight
        self._found = 0
        self._pages, self._prefix, self._keep = pages, prefix, keep
        self._seeks, self._workers = seeks, how.workers if seeks else 1
        self._progress, self._known = how.progress, how.known
        # The purpose of each request in flight: the next page of a piece, or (with a directory) where to divide it.
        self._flying: dict[Hashable, tuple[KeyRange, bytes | None]] = {}
        self._keyspace = Keyspace(prefix) if pages.jumps and seeks else None
        self._left: dict[KeyRange, float] = {}  # estimated pages left in a range; valid until its next page
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
        """Compare the first key of each part with the next key that the parts before it have shown.

        A missing key may just have been deleted, so the server is asked for it: by its name as a prefix, without a key
        to begin after. A key that was written meanwhile causes a listing page by page.
        """
        missing = [*_passed_over(sorted(self._pieces, key=attrgetter("after")))]
        while missing or self._flying:
            while missing and len(self._flying) < self._workers:
                key = missing.pop()
                self._flying[self._pages.start(decode(key))] = KeyRange(key), None
            for request, page in self._pages.take():
                piece, _ = self._flying.pop(request)
                if piece.prefix in (encode(each.key) for each in page.entries[:1]):
                    raise _NoStartError

    def _first(self) -> list[KeyRange]:
        """Return the ranges to list, and take over the known stretches."""
        prefix = encode(self._prefix)
        if self._known is None:
            return [KeyRange(prefix)]
        known = self._known.known
        if not self._seeks:
            # Everything has to be listed again; keys in stretches without entries (``Beyond``) are left out.
            unwanted, inner = [each for each in known if not each.keys], self._keep
            self._keep = lambda keys, sizes: inner(keys, sizes) & ~_within(keys, unwanted)
            return [KeyRange(prefix)]
        known = overlap_stretches(known)
        for each in known:
            piece = KeyRange(prefix, each.after, each.until, over=True, first=each.first, beyond=each.beyond)
            piece.rows.add_all(PackedEntries.of(map(decode, each.keys), each.sizes, each.etags))
            self._pieces.append(piece)
            self._found += len(piece.rows)
        return [KeyRange(prefix, after, until) for after, until in gaps(known)]

    def rows(self) -> TableBuilder:
        """Join the parts in key order; frees each one once it is copied."""
        rows = TableBuilder()
        self._pieces.sort(key=attrgetter("after"), reverse=True)
        while self._pieces:
            rows.extend(self._pieces.pop().rows)
        return rows

    def _take(self, piece: KeyRange, page: Page) -> None:
        before, after = piece.seen, piece.last
        try:
            taken = piece.take(page, self._keep)
        except Damaged as error:
            if piece.astray:
                raise _NoStartError from error
            raise
        self._found += len(taken.keys)
        if self._known is not None and self._seeks:
            until, seen = piece.until if piece.over else piece.last, (b"".join(piece.recent[:1]), piece.beyond)
            self._known.add(Stretch(after, until, [*taken.keys], taken.sizes.tolist(), taken.etags.texts(), *seen))
        if self._progress is not None:
            self._progress(self._found)
        self._seen += piece.seen - before
        self._left.pop(piece, None)
        self._page_keys = max(self._page_keys, len(page.entries))
        if self._keyspace is not None:
            self._keyspace.learn(piece.page)

    def _guess(self) -> None:
        """Divide the apparently largest ranges, at guessed bounds, for the requests that may still be sent."""
        plain = self._seen // self._page_keys  # requests that a listing page by page would have made
        most = min(self._workers - len(self._flying) - len(self._waiting), self._workers + 2 * plain - self._sent)
        if self._keyspace is None or most <= 0 or plain < _PLAIN:
            return
        asking = {piece for piece, directory in self._flying.values() if directory is not None}
        listed = [piece for piece, _ in self._flying.values() if piece.seen and piece.advised and piece not in asking]
        for piece, parts in _divide_ranges(most, [(piece, self._pages_left(piece)) for piece in listed]):
            made = piece.cut([encode(bound) for bound in self._keyspace.bounds(piece.view(latest=True), parts)])
            self._left.pop(piece, None)
            self._open(made)

    def _pages_left(self, piece: KeyRange) -> float:
        if piece not in self._left and self._keyspace is not None:
            # The latest page tells more about the keys nearby.
            seen = piece.view(), piece.view(latest=True)
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


def _divide_ranges(most: int, ranges: list[tuple[KeyRange, float]]) -> list[tuple[KeyRange, int]]:
    """Return how many further parts to divide each range into, ``most`` in total, to minimise the largest part."""
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
    """Yield the keys that a part has listed beyond its end and that later parts lack."""
    awaited = b""
    for piece in pieces:
        if awaited and piece.first:
            if piece.first > awaited:
                yield awaited
            awaited = b""
        awaited = awaited or piece.beyond
    if awaited:
        yield awaited


def _within(keys: Sequence[bytes], known: Sequence[Stretch]) -> NDArray[np.bool_]:
    """Return a mask of the keys in one of these stretches, which are in order."""
    found = np.zeros(len(keys), np.bool_)
    for number, key in enumerate(keys):
        at = bisect_left(known, key, key=attrgetter("after"))
        until = known[at - 1].until if at else b""
        found[number] = until is None or key <= until
    return found


_SLASH = b"/"


@dataclass(slots=True, eq=False)
class KeyRange(KeySpan):
    """A part that collects its rows and can also be divided at directories.

    Delimiter listings are only advice on where to divide: a wrong answer costs time, never a key.

    Attributes:
        cuts: Good bounds in ``(last, until)``, in order: sub-directories of ``level``.
        level: The directory of ``cuts``; empty at first.
        asked: The deepest directory that has no further cuts to offer; None before the first delimiter listing.
        advised: Whether a delimiter listing was made for this range, or for the range that it was cut from.
        rows: The rows kept.
    """

    cuts: list[bytes] = field(default_factory=list)
    level: bytes = b""
    asked: bytes | None = None
    advised: bool = False
    rows: TableBuilder = field(default_factory=TableBuilder)

    def take(self, page: Page, keep: Keep) -> PackedEntries:
        """Add the next page; return its entries that were kept: their number does not count other keys as unseen."""
        count = self.accept(page)
        found = pack_entries(page.entries).part(slice(count))
        mask = keep(found.keys, found.sizes)
        kept = found if mask.all() else found.take(mask)
        self.rows.add_all(kept)
        self.cuts = self.cuts[bisect_right(self.cuts, self.last) :]
        return kept

    def directory(self) -> bytes | None:
        """Return the shallowest directory around ``last`` that was not listed yet; None where keys are flat."""
        if self.asked is None:
            return self.prefix
        shared = self.asked
        while not self.last.startswith(shared):
            shared = shared[: shared.rfind(_SLASH, 0, -1) + 1]
        stop = self.last.find(_SLASH, max(len(shared), len(self.prefix))) + 1
        return self.last[:stop] if stop else None

    def advise(self, directory: bytes, page: Page) -> None:
        """Take the sub-directories of ``directory`` as cuts; those outside ``(last, until)`` are dropped."""
        cuts = {encode(cut) for cut in page.prefixes}
        self.cuts = sorted(cut for cut in cuts if cut > self.last and (self.until is None or cut < self.until))
        self.level, self.advised = directory, True
        if not (page.token and self.cuts):
            # Otherwise another delimiter listing is worth a request once these cuts are used up.
            self.asked = directory

    def split(self, most: int) -> list[KeyRange]:
        """Split off up to ``most`` later parts, at cuts, each expected to fill a page; return them."""
        if most <= 0:
            return []
        # Sub-directories on a page: with 50 keys in each, a part of fewer than 20 is not worth a request.
        start = len(self.level)
        width = len({key[: key.find(_SLASH, start) + 1] for key in self.recent if key.startswith(self.level)})
        parts = min(most, len(self.cuts) // max(width, 1))
        return self.cut([self.cuts[part * len(self.cuts) // (parts + 1)] for part in range(1, parts + 1)])

    def cut(self, bounds: list[bytes]) -> list[KeyRange]:
        """Divide as ``divide`` does; each part gets the cuts within it."""
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


_SHOWN = 3
_CLOSE = 0.5  # least ratio of difflib: one or two letters of a short name differ
_GLOB = re.compile(r"[*?\[]")


def absent(source: Source, prefix: str, given: str, *, chosen: bool, instead: str = "") -> NotFound:
    """Return the error for an empty listing of ``prefix``; the message suggests a replacement.

    At most two LIST requests look for objects that globs have left out (if ``chosen``), and for prefixes that exist.
    ``given`` is the URL as the caller wrote it, and ``instead`` a further suggestion. Errors of these requests are
    ignored.
    """
    hints: list[str] = []
    with suppress(PenstockError):
        hints.append(_left_out(source, prefix) if chosen else "")
    if not any(hints):
        if "://" not in given and not given.startswith(("/", "./", "../")):
            hints.append(f"{given!r} has no scheme, so it is a path of this machine: write s3://{given} for a bucket")
        hints.append(_glob(given))
        with suppress(PenstockError):
            hints.append(_nearest(source, prefix, 1 if chosen else 2))
    said = "; ".join(filter(None, [*hints, instead]))
    return NotFound(f"no objects there: {said}" if said else "no objects there", url=source.url(prefix))


def _left_out(source: Source, prefix: str) -> str:
    page = _page(source, prefix)
    if not page.entries:
        return ""
    count = f"{len(page.entries)} or more" if page.token else len(page.entries)
    return f"{count} objects are there, and include= and exclude= leave none of them"


def _glob(given: str) -> str:
    """Return how to write a URL that looks like a glob; empty for other URLs."""
    literal = _GLOB.split(given, maxsplit=1)[0]
    folder = literal[: literal.rfind("/") + 1]
    return "" if literal == given else f"a URL is literal: write {folder!r} with include={given[len(folder) :]!r}"


def _nearest(source: Source, prefix: str, requests: int) -> str:
    """Return a hint at names in the innermost existing folder of ``prefix``: similar names, or else the first few.

    Makes at most ``requests`` LIST requests; returns "" if they reach no such folder.
    """
    path = prefix.rstrip("/")
    while path and requests:
        path = path.rpartition("/")[0]
        folder = f"{path}/" if path else ""
        page = _page(source, folder, "/")
        found = [*page.prefixes, *(entry.key for entry in page.entries)]
        if prefix in found:  # a directory, or a marker of one
            return "the folder is there, and empty"
        if close := _alike(prefix[len(folder) :], {name[len(folder) :]: name for name in found}):
            return f"the nearest that exist are {', '.join(map(source.url, close))}"
        if found:
            more = ", …" if page.token or len(found) > _SHOWN else ""
            return f"{source.url(folder)} holds {', '.join(map(source.url, found[:_SHOWN]))}{more}"
        requests -= 1
    return "" if path else f"{source.url('')} holds no objects"


def _alike(wanted: str, found: dict[str, str]) -> list[str]:
    """Return the keys of the names in ``found`` spelled like the first component of ``wanted``, ignoring case."""
    first, slash, _ = wanted.partition("/")
    names = {name.casefold(): key for name, key in found.items()}
    return [names[each] for each in get_close_matches(f"{first}{slash}".casefold(), names, _SHOWN, _CLOSE)]


def _page(source: Source, prefix: str, delimiter: str = "") -> Page:
    with source.pager() as pages:
        pages.start(prefix, delimiter=delimiter)
        while True:
            for _, page in pages.take():
                return page


def report_left_out(source: Source, prefix: str, chosen: Callable[[str], bool], left: Leftovers) -> None:
    """Log the leftovers of a listing and links to folders; broken links raise: see ``check_links``."""
    if source.url("") == LOCAL_ROOT:
        check_links(prefix, chosen, left)
    if len(left):
        _LOG.warning("left out below %s: %s", source.url(prefix), left)


def warn_of_splits(source: Source, base: str, names: Sequence[str]) -> None:
    """Log the splits of ``names``, objects and folders below ``base``, if there are several."""
    found = splits_of(names)
    if len(found) < 2:  # noqa: PLR2004  several
        return
    held = ", ".join(f"{split} ({count:,})" for split, (count, _) in found.items())
    first = next(iter(found.values()))[1]
    one = source.url(base + first) + ("/" if any(name.startswith(f"{first}/") for name in names) else "*")
    _LOG.warning("several splits are read as one below %s: %s; for one of them pass %s", source.url(base), held, one)


def suggest_saving(source: Source, base: str, count: int, form: ShardFormat | None = None) -> None:
    """Log that ``count`` keys were listed, if they are many and no process group shares the listing."""
    if form is not None and form.name in _WITHOUT_CATALOGS:
        return
    if count > _MANY_KEYS and torch_store() is None and not is_own([source.url(base)]):
        _LOG.warning(
            "listed %s keys below %s, as each process and each run does: save the catalog once (Catalog.save), and "
            "open it without a listing (from_catalog)",
            f"{count:,}",
            source.url(base),
        )


def report_scanned(source: Source, base: str, keys: Keys) -> None:
    """Log the splits of the keys that were listed below ``base``, and how to list fewer if they are many."""
    warn_of_splits(source, base, first_names(keys, base))
    suggest_saving(source, base, len(keys))


def first_names(keys: Keys, base: str) -> list[str]:
    """Return names below ``base`` that show its splits: folders, and files; keys are in order.

    What follows a folder or the word of a split is skipped by a search, and at most 1,000 names are looked at.
    """
    names: list[str] = []
    at, start = 0, encode(base)
    while at < len(keys) and len(names) < _MOST_NAMES:
        name = decode(keys[at][len(start) :])
        folder, slash, _ = name.partition("/")
        names.append(folder + slash)
        end = split_of(name)[1]
        if slash:
            # The character after a slash.
            at = bisect_left(keys, start + encode(f"{folder}0"), at)
        else:
            at = bisect_left(keys, start + encode(name[:end]) + b"\xff", at) if end else at + 1
    if len(names) == 1 and names[0].endswith("/") and not split_of(names[0])[0]:
        return [names[0] + each for each in first_names(keys, base + names[0])]
    return names
