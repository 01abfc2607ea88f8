"""Listing in key order, with requests for later pages in flight in parallel."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from penstock.engine.listing.keyspace import Keyspace, Part
from penstock.engine.listing.listing import columns
from penstock.errors import Damaged, PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterable, Iterator

    from penstock.engine.listing.keyspace import Seen
    from penstock.values import Page

__all__ = ["NoStartError", "Pages", "ordered"]

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
class _Part(Part):
    """A part, its pages that wait for those of earlier parts, and the error that comes after its pages."""

    pages: deque[Page] = field(default_factory=deque)
    error: PenstockError | None = None


def ordered(pager: Callable[[], Pages], prefix: str) -> Generator[Page]:
    """Yield the pages below ``prefix`` in order; each but the last has a token, which cannot continue a listing.

    At most as many pages are requested ahead as were yielded, and at most 64. ``pager`` returns the ``Pages`` of the
    calling process; if that changes, the requests in flight are sent again.

    Raises:
        Damaged: The server repeats itself, or lists out of order or outside the prefix.
        PenstockError: The error of a request, once the pages before it were yielded.
        NoStartError: The server ignores where a part must begin, or omits keys there that it has shown before.

    """
    work = _Ordered(prefix)
    while (page := work.next(pager())) is not None:
        yield page


class _Ordered:
    """Parts of a listing in key order: near ones have a few pages, and the last one reaches to the end."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._keyspace = Keyspace(prefix)
        self._parts = deque([_Part(prefix.encode("utf-8", "surrogateescape"))])
        self._flying: dict[Hashable, _Part] = {}
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
        """Return the next page; None after the last."""
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
            if page.entries[0].key.encode("utf-8", "surrogateescape") > self._awaited:
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

    def _accept(self, part: _Part, page: Page) -> None:
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
        self._keyspace.learn(columns(page.entries)[0])
        if count < len(page.entries):
            page = replace(page, entries=page.entries[:count])
        if count or not part.after:
            more = page.token or ("" if part is self._parts[-1] else part.last.decode("utf-8", "surrogateescape"))
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
        """Return how many more requests may be sent."""
        ahead = min(_AHEAD, self._yielded) - self._ready - len(self._flying)
        return min(_REQUESTS - len(self._flying), ahead)

    def _divide(self) -> None:
        """Divide the first part that seems to hold more than it should, for as many requests as may still be sent."""
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
                for later in reversed(part.divide([each.encode("utf-8", "surrogateescape") for each in bounds])):
                    self._parts.insert(at + 1, later)
                return

    def _views(self, part: _Part) -> Iterator[Seen]:
        """Yield what was seen of a part: on its latest page, in total and, for the last part, with all parts before it.

        The view with the least dense keys predicts best: a page shows a single folder, and not the gap that follows it,
        and a part that is longer than it should be is divided again.
        """
        latest = part.view(latest=True)
        yield latest
        yield part.view()
        if part is self._parts[-1]:
            yield latest._replace(first=self._first, keys=self._seen)

    def _send(self, part: _Part) -> None:
        if self._pages is not None:
            self._sent += 1
            request = self._pages.start(self._prefix, token=part.token, start_after=part.start_after())
            self._flying[request] = part
