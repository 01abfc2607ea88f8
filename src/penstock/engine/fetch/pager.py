"""Listing with many requests at once, all started and taken by one thread."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Self

from penstock.engine.contracts.driver import List
from penstock.engine.support import require
from penstock.engine.waiting import Inbox
from penstock.errors import PenstockError
from penstock.events import Listed, emit, listening, operation

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.engine.fetch.fetcher import Fetcher
    from penstock.engine.fetch.operation import Operation
    from penstock.events import Scope
    from penstock.values import Page

    # Returns a key's URL as the caller names it; below a profile the driver's URL differs.
    Address = Callable[[str], str]

__all__ = ["Pager"]


class Pager:
    """LIST requests in parallel; leaving the ``with`` block, also by Ctrl-C, cancels those in flight.

    Pages are returned as the server sent them: a ``penstock.engine.listing.listing.Listing`` compares them with the
    request.
    """

    def __init__(self, fetcher: Fetcher, url: Address | None = None, scope: Scope | None = None) -> None:
        """Start without requests. By default ``url`` is the driver's, and ``scope`` a new operation."""
        self._fetcher = fetcher
        self._url = url or fetcher.driver.url
        self._inbox = Inbox()
        self._flying: dict[Operation[Page], str] = {}
        self._scope = scope  # set by the first request, at the latest

    @property
    def seeks(self) -> bool:
        """Whether a listing can begin after any key without the pages before it."""
        return self._fetcher.driver.abilities.seeks

    @property
    def jumps(self) -> bool:
        """Whether beginning a listing after any key costs no more than any other page."""
        return self._fetcher.driver.abilities.jumps

    def start(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Operation[Page]:
        """Send one LIST request; return its operation, which identifies the page when it is taken."""
        verb = require(self._fetcher.driver, List, prefix).list
        make = partial(verb, prefix, token=token, start_after=start_after, delimiter=delimiter)
        if self._scope is None:
            self._scope = operation("list", self._url, prefix)
        listing = self._scope.run(self._fetcher.operation, make, self._inbox)
        self._flying[listing] = prefix
        self._fetcher.send((listing,))
        return listing

    def take(self) -> list[tuple[Operation[Page], Page]]:
        """Wait for a page; return all that have come, each with its request, or raise the error of one."""
        taken = []
        for listing, outcome in self.outcomes():
            if isinstance(outcome, PenstockError):
                raise outcome
            taken.append((listing, outcome))
        return taken

    def outcomes(self, *, wait: bool = True) -> list[tuple[Operation[Page], Page | PenstockError]]:
        """Return each request that has ended, with its page or error; with ``wait``, wait for one first."""
        if wait:
            self._inbox.wait_any(self._flying)
        ended: list[tuple[Operation[Page], Page | PenstockError]] = []
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
        """Return itself."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Cancel requests in flight."""
        self._fetcher.call_off(self._flying)
        if self._scope is not None:
            self._scope.end(next((each for each in raised if isinstance(each, BaseException)), None))
