"""Listing a prefix with many requests in parallel where its directories allow it, and one by one where they do not."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, Self

from penstock.catalog.keyrange import KeyRange
from penstock.catalog.select import selector
from penstock.catalog.storage.builder import TableBuilder
from penstock.catalog.storage.strings import decode, encode
from penstock.errors import ConfigError, Damaged

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from penstock.catalog.storage.table import Table
    from penstock.values import ObjectMeta, Page

__all__ = ["Listable", "scan"]


class Pages(Protocol):
    """LIST requests in parallel; leaving the ``with`` block cancels those in flight."""

    @property
    def seeks(self) -> bool:
        """Whether a listing can begin after any key without the pages before it."""

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
    workers: int = 16,
    progress: Callable[[int], None] | None = None,
) -> tuple[str, Table]:
    """List every key that begins with the string ``prefix``, in UTF-8 byte order, each once, into a table.

    A key written or deleted meanwhile is in the result or not. Globs (see ``select``) are relative to the prefix up to
    its last ``/``, which is returned first; directory markers are left out. Nothing found is an empty table, no error.

    Costs: a prefix of one page is one request. Beyond it the plain listing continues, and while fewer than ``workers``
    requests are in flight each full page may cause one delimiter listing beside it, whose sub-directories are bounds at
    which others take over part of the rest; each part costs at most one page more than its share. A flat prefix of n
    pages costs n + 1 requests. All are started on this thread; an error or Ctrl-C cancels those in flight.

    Args:
        source: Where.
        prefix: Exactly what keys begin with: ``train`` matches ``train2/x`` too.
        include: Globs of which one must match; none given is everything.
        exclude: Globs of which none may match.
        workers: Requests in flight at most, at least 1; 1 lists plainly, and so do stores that cannot begin a listing
            after any key (Azure).
        progress: Called on this thread after each page with the number of keys chosen so far.

    Raises:
        Damaged: The server repeats itself, or lists out of order or outside the prefix.
        ConfigError: A glob is impossible, or ``workers`` is less than 1.
        PenstockError: What a request raised.

    """
    if workers < 1:
        raise ConfigError(f"workers must be at least 1, not {workers}")
    base = prefix[: prefix.rfind("/") + 1]
    chosen = selector(include, exclude)
    with source.pager() as pages:
        most = workers if pages.seeks else 1
        work = _Scan(pages, prefix, lambda meta: chosen(meta.key[len(base) :], meta.size), most)
        try:
            work.run(progress or (lambda _: None))
        except Damaged as error:
            error.url = error.url or source.url(prefix)
            raise
    return base, work.rows().freeze()


class _Scan:
    """Key ranges of a listing, each with its next page under way, and advice on where to cut them."""

    def __init__(self, pages: Pages, prefix: str, keep: Callable[[ObjectMeta], bool], workers: int) -> None:
        self._pieces: list[KeyRange] = []
        self._found = 0
        self._pages, self._prefix, self._keep, self._workers = pages, prefix, keep, workers
        # What each request in flight is for: the next page of a piece, or (with a directory) advice for it.
        self._flying: dict[Hashable, tuple[KeyRange, bytes | None]] = {}

    def run(self, progress: Callable[[int], None]) -> None:
        self._open([KeyRange(encode(self._prefix))])
        while self._flying:
            for request, page in self._pages.take():
                piece, directory = self._flying.pop(request)
                if directory is None:
                    self._found += piece.take(page, self._keep)
                    progress(self._found)
                    self._next(piece)
                elif not piece.over:
                    piece.advise(directory, page)
                    self._share(piece)

    def rows(self) -> TableBuilder:
        """Join the parts in key order, letting go of each as it is copied."""
        rows = TableBuilder()
        self._pieces.sort(key=attrgetter("after"), reverse=True)
        while self._pieces:
            rows.extend(self._pieces.pop().rows)
        return rows

    def _open(self, pieces: list[KeyRange]) -> None:
        self._pieces += pieces
        for piece in pieces:
            self._request(piece)

    def _request(self, piece: KeyRange) -> None:
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
            request = self._pages.start(decode(directory), start_after=decode(piece.last), delimiter="/")
            self._flying[request] = piece, directory
