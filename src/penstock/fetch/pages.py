"""Lists page after page, each held to what was asked for; those to come are requested ahead where that is cheap."""

from __future__ import annotations

import os
from bisect import bisect_right
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self

from penstock.errors import Damaged
from penstock.events import Listed, Scope, emit, listening
from penstock.fetch.pager import Pager
from penstock.listing import UploadListing, columns
from penstock.listing.ordered import NoStartError, ordered
from penstock.protocols.driver import List, Multipart
from penstock.support import require

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from penstock.fetch.fetcher import Fetcher
    from penstock.listing import Listing
    from penstock.values import Page, Upload

    Address = Callable[[str], str]  # a key's URL as the caller names it: below a profile the driver has another

__all__ = ["next_page", "pages", "uploads"]


def next_page(fetcher: Fetcher, listing: Listing, url: Address) -> Page:
    """List the next page: one request. ``Damaged``, with the prefix's URL, where it is not what was asked for."""
    prefix, delimiter = listing.prefix, listing.delimiter
    start_after = "" if listing.token else listing.start_after
    verb = require(fetcher.driver, List, prefix).list
    page = fetcher.run(partial(verb, prefix, token=listing.token, start_after=start_after, delimiter=delimiter))
    with _named(url(prefix)):
        page = listing.take(page)
    if listening():
        emit(Listed(url(prefix), len(page.entries)))
    return page


def pages(fetcher: Callable[[], Fetcher], listing: Listing, url: Address) -> Generator[Page]:
    """Yield the pages that are left of a listing, as ``next_page`` has them.

    ``fetcher`` returns the engine of the process that asks: a listing may be continued after a fork. Where a listing
    can begin after any key as cheaply as at a page, pages are requested ahead (``ordered``) from the fourth on.
    """
    while not listing.over:
        engine = fetcher()
        if listing.fresh and not listing.delimiter and engine.driver.abilities.jumps:
            yield from _ahead(fetcher, listing, url)
            return
        yield next_page(engine, listing, url)


def _ahead(fetcher: Callable[[], Fetcher], listing: Listing, url: Address) -> Generator[Page]:
    """Yield pages that are requested ahead; of a server that ignores where to begin, those that are left, plainly."""
    last = ""
    with _Pagers(fetcher, url) as pager:
        try:
            with _named(url(listing.prefix)):
                for page in ordered(pager, listing.prefix):
                    if page.entries:
                        last = columns(page.entries)[0][-1]
                    yield page
        except NoStartError:
            pass
        else:
            return
    before = _octets(last)
    while not listing.over:
        page = next_page(fetcher(), listing, url)
        start = bisect_right(listing.keys, before)
        if start < len(listing.keys) or not page.token:
            yield replace(page, entries=page.entries[start:])


class _Pagers:
    """What lists in the process that asks; leaving the block cancels what this process has in flight."""

    def __init__(self, fetcher: Callable[[], Fetcher], url: Address) -> None:
        self._fetcher, self._url = fetcher, url
        self._made: tuple[int, Fetcher, Pager] | None = None

    def __call__(self) -> Pager:
        """Return it: the same one until the engine is another."""
        engine = self._fetcher()
        if self._made is None or self._made[1] is not engine:
            self._made = os.getpid(), engine, Pager(engine, self._url, Scope())
        return self._made[2]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._made is not None and self._made[0] == os.getpid():
            self._made[2].__exit__(*raised)


def _octets(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


def uploads(fetcher: Callable[[], Fetcher], prefix: str, url: Address) -> Generator[Upload]:
    """Yield unfinished uploads to keys that begin with ``prefix``, one request a page; ``Damaged`` as ``next_page``."""
    listing = UploadListing(prefix)
    while not listing.over:
        engine = fetcher()
        page = engine.run(partial(require(engine.driver, Multipart, prefix).uploads, prefix, token=listing.token))
        with _named(url(prefix)):
            page = listing.take(page)
        yield from page.entries


@contextmanager
def _named(url: str) -> Iterator[None]:
    """Say of which listing a page was damaged."""
    try:
        yield
    except Damaged as error:
        error.url = url
        raise
