"""Listing page by page, each page verified; later pages are requested ahead where that is cheap."""

from __future__ import annotations

import os
from bisect import bisect_right
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self

from penstock.engine.contracts.driver import List, Multipart, Versions
from penstock.engine.listing.keyspace import NoStartError, encode_key, order_pages
from penstock.engine.listing.listing import UploadListing
from penstock.engine.support import require
from penstock.engine.waiting import Inbox
from penstock.errors import Damaged, PenstockError
from penstock.events import Listed, Scope, emit, listening, operation

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from penstock.engine.fetch.fetcher import Fetcher
    from penstock.engine.listing.listing import Listing
    from penstock.engine.operations.operation import VerbOperation
    from penstock.values import Page, Upload

    # Returns a key's URL as the caller names it; below a profile the driver's URL differs.
    Address = Callable[[str], str]


def next_page(fetcher: Fetcher, listing: Listing, url: Address) -> Page:
    """List the next page in one request; ``Damaged``, with the prefix's URL, if it does not match the request."""
    prefix, delimiter = listing.prefix, listing.delimiter
    start_after = "" if listing.token else listing.start_after
    verb = require(fetcher.driver, List, prefix).list
    page = fetcher.run(partial(verb, prefix, token=listing.token, start_after=start_after, delimiter=delimiter))
    with _add_url(url(prefix)):
        page = listing.take(page)
    if listening():
        emit(Listed(url(prefix), len(page.entries)))
    return page


def pages(fetcher: Callable[[], Fetcher], listing: Listing, url: Address) -> Generator[Page]:
    """Yield the remaining pages of a listing, verified as in ``next_page``.

    ``fetcher`` returns the engine of the calling process: a listing may be continued after a fork. If a listing can
    begin after any key as cheaply as at a page, pages are requested ahead (``order_pages``) from the fourth on.
    """
    while not listing.over:
        engine = fetcher()
        if listing.fresh and not listing.delimiter and engine.driver.abilities.jumps:
            yield from _ahead(fetcher, listing, url)
            return
        yield next_page(engine, listing, url)


def _ahead(fetcher: Callable[[], Fetcher], listing: Listing, url: Address) -> Generator[Page]:
    """Yield pages that are requested ahead; if the server ignores start-after, yield the rest one after another."""
    last = ""
    with _Pagers(fetcher, url) as pager:
        try:
            with _add_url(url(listing.prefix)):
                for page in order_pages(pager, listing.prefix):
                    if page.entries:
                        last = page.entries[-1].key
                    yield page
        except NoStartError:
            pass
        else:
            return
    before = encode_key(last)
    while not listing.over:
        page = next_page(fetcher(), listing, url)
        start = bisect_right(listing.keys, before)
        if start < len(listing.keys) or not page.token:
            yield replace(page, entries=page.entries[start:])


class _Pagers:
    """Pager of the calling process; leaving the block cancels the requests that this process has in flight."""

    def __init__(self, fetcher: Callable[[], Fetcher], url: Address) -> None:
        self._fetcher, self._url = fetcher, url
        self._made: tuple[int, Fetcher, Pager] | None = None

    def __call__(self) -> Pager:
        engine = self._fetcher()
        if self._made is None or self._made[1] is not engine:
            self._made = os.getpid(), engine, Pager(engine, self._url, Scope())
        return self._made[2]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._made is not None and self._made[0] == os.getpid():
            self._made[2].__exit__(*raised)


def uploads(fetcher: Callable[[], Fetcher], prefix: str, url: Address) -> Generator[Upload]:
    """Yield unfinished uploads to keys with this prefix, one request a page; raises ``Damaged`` as ``next_page``."""
    listing = UploadListing(prefix)
    while not listing.over:
        engine = fetcher()
        page = engine.run(partial(require(engine.driver, Multipart, prefix).uploads, prefix, token=listing.token))
        with _add_url(url(prefix)):
            page = listing.take(page)
        yield from page.entries


@contextmanager
def _add_url(url: str) -> Iterator[None]:
    try:
        yield
    except Damaged as error:
        error.url = url
        raise


class Pager:
    """LIST requests in parallel; leaving the ``with`` block, also by Ctrl-C, cancels those in flight.

    Pages are returned as the server sent them: a ``penstock.engine.listing.listing.Listing`` compares them with the
    request.
    """

    def __init__(
        self, fetcher: Fetcher, url: Address | None = None, scope: Scope | None = None, *, versions: bool = False
    ) -> None:
        """Start without requests. By default ``url`` is the driver's, and ``scope`` a new operation."""
        self._fetcher, self._versions = fetcher, versions
        self._url = url or fetcher.driver.url
        self._inbox = Inbox()
        self._flying: dict[VerbOperation[Page], str] = {}
        self._scope = scope  # set by the first request, at the latest

    @property
    def seeks(self) -> bool:
        return self._fetcher.driver.abilities.seeks

    @property
    def jumps(self) -> bool:
        return self._fetcher.driver.abilities.jumps

    def start(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> VerbOperation[Page]:
        driver = self._fetcher.driver
        verb = require(driver, Versions, prefix).list_versions if self._versions else require(driver, List, prefix).list
        make = partial(verb, prefix, token=token, start_after=start_after, delimiter=delimiter)
        if self._scope is None:
            self._scope = operation("list", self._url, prefix)
        listing = self._scope.run(self._fetcher.operation, make, self._inbox)
        self._flying[listing] = prefix
        self._fetcher.send((listing,))
        return listing

    def take(self) -> list[tuple[VerbOperation[Page], Page]]:
        taken = []
        for listing, outcome in self.outcomes():
            if isinstance(outcome, PenstockError):
                raise outcome
            taken.append((listing, outcome))
        return taken

    def outcomes(self, *, wait: bool = True) -> list[tuple[VerbOperation[Page], Page | PenstockError]]:
        """Return each request that has ended, with its page or error; with ``wait``, wait for one first."""
        if wait:
            self._inbox.wait_any(self._flying)
        ended: list[tuple[VerbOperation[Page], Page | PenstockError]] = []
        for listing in [each for each in self._flying if each.complete]:
            prefix = self._flying.pop(listing)
            try:
                page = listing.result()
            except PenstockError as error:
                ended.append((listing, error))
                continue
            ended.append((listing, page))
            if listening():
                emit(Listed(self._url(prefix), len(page.entries)))
        return ended

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._fetcher.call_off(self._flying)
        if self._scope is not None:
            self._scope.end(next((each for each in raised if isinstance(each, BaseException)), None))
