"""Lists one page after another, each held to what was asked for."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import Damaged
from penstock.events import Listed, emit, listening
from penstock.listing import UploadListing
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

    ``fetcher`` returns the engine of the process that asks: a listing may be continued after a fork.
    """
    while not listing.over:
        yield next_page(fetcher(), listing, url)


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
