"""Lists with many requests at once, all started and taken by one thread."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Self

from penstock.errors import PenstockError
from penstock.events import Listed, emit, listening, operation
from penstock.protocols.driver import List
from penstock.support import require
from penstock.waiting import Inbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.events import Scope
    from penstock.fetch.fetcher import Fetcher
    from penstock.fetch.operation import Operation
    from penstock.values import Page

    Address = Callable[[str], str]  # a key's URL as the caller names it: below a profile the driver has another

__all__ = ["Pager"]


class Pager:
    """LIST requests in parallel; leaving the ``with`` block, by Ctrl-C too, cancels those in flight.

    Pages come as the server gave them: whether they are what was asked for a ``penstock.listing.Listing`` says.
    """

    def __init__(self, fetcher: Fetcher, url: Address | None = None, scope: Scope | None = None) -> None:
        """Nothing is under way yet; ``url`` is the driver's by default, and ``scope`` an operation that begins here."""
        self._fetcher = fetcher
        self._url = url or fetcher.driver.url
        self._inbox = Inbox()
        self._flying: dict[Operation[Page], str] = {}
        self._scope = scope  # from the first request on

    @property
    def seeks(self) -> bool:
        """Whether a listing can begin after any key without the pages before it."""
        return self._fetcher.driver.abilities.seeks

    @property
    def jumps(self) -> bool:
        """Whether beginning a listing after any key costs no more than any other page."""
        return self._fetcher.driver.abilities.jumps

    def start(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Operation[Page]:
        """Send one LIST request on its way; what is returned names it when its page is taken."""
        verb = require(self._fetcher.driver, List, prefix).list
        make = partial(verb, prefix, token=token, start_after=start_after, delimiter=delimiter)
        if self._scope is None:
            self._scope = operation("list", self._url, prefix)
        listing = self._scope.run(self._fetcher.operation, make, self._inbox)
        self._flying[listing] = prefix
        self._fetcher.send((listing,))
        return listing

    def take(self) -> list[tuple[Operation[Page], Page]]:
        """Wait for a page; return those that have come, each with its request, or raise what one met with."""
        taken = []
        for listing, outcome in self.outcomes():
            if isinstance(outcome, PenstockError):
                raise outcome
            taken.append((listing, outcome))
        return taken

    def outcomes(self, *, wait: bool = True) -> list[tuple[Operation[Page], Page | PenstockError]]:
        """Return each request that has ended, with its page or what it met with; waits for one, if it is to."""
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
