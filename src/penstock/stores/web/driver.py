"""Web server as a read-only store: each verb becomes a request, each response a result or an error."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.engine.contracts.driver import RANGE_IGNORED, UNKNOWN_BYTES, Abilities, Beginning, Ending
from penstock.engine.contracts.exchange import Exchange, Request
from penstock.errors import NotFound, PenstockError, Unsupported
from penstock.stores.direct import too_large
from penstock.stores.http.answers import Ranged, make_beginning
from penstock.stores.http.headers import is_strong
from penstock.stores.http.listing import ListingWalks
from penstock.stores.http.verify import heeds_ranges
from penstock.stores.web.index import Walk, read_index
from penstock.stores.web.route import (
    BY_DATE,
    BY_ETAG,
    Way,
    WebRoute,
    check_encoding,
    escape_key,
    hide_query,
    make_moved_error,
    parse_meta,
    plain,
    verification,
    version_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.engine.buffer import Buffer
    from penstock.engine.contracts.exchange import Response
    from penstock.stores.web.index import IndexEntry
    from penstock.values import ObjectMeta, Page, Span

_INDEX_BYTES = 32 << 20  # some 350,000 names
_ENCODING = "content-encoding"


class WebDriver(Ranged):
    """Files of one web server, by the paths of their URLs; see ``contracts.driver`` for the verbs' contract.

    A version is the strong ETag, else the date of ``Last-Modified``. Reads send it in ``If-Match`` or
    ``If-Unmodified-Since``. The version in the answer is compared, too, because not every server honours these.
    """

    abilities = Abilities(digest=None, ranges=None)

    def __init__(self, root: str, headers: tuple[str, ...] = (), hint: Callable[[str], str] = lambda _url: "") -> None:
        """Read from ``root``; ``headers`` go to this host only, ``hint`` suggests the URL that was intended."""
        self._root = root
        self._route = WebRoute(root, headers, hint)
        self._lines, self._targets = self._route.lines, self._route.targets
        self._walks = ListingWalks(Walk.begin)
        self._headless = False  # HEAD does not work here
        self._by_etag = (*BY_ETAG.range_headers, _ENCODING), (*BY_ETAG.whole_headers, _ENCODING)
        self._by_date = (*BY_DATE.range_headers, _ENCODING), (*BY_DATE.whole_headers, _ENCODING)
        self._by_any = (*self._by_etag[0], BY_DATE.version), (*self._by_etag[1], BY_DATE.version)

    def url(self, key: str) -> str:
        """Return the URL without its query, which may hold a signature."""
        return self._root + (hide_query(key) if "?" in key else key)

    def prepare(self) -> None: ...

    def hint(self, key: str) -> str:
        # For ``engine.support.require``, too, which names it where a verb is missing.
        return self._route.hint(self.url(key))

    def head(self, key: str) -> Exchange[ObjectMeta]:
        """Describe one file by HEAD, or by a GET of its first byte if the server or a signed URL forbids HEAD."""
        by_get = self._headless or "?" in key
        request, way = self._request("GET" if by_get else "HEAD", key, ("range: bytes=0-0",) if by_get else ())

        def parse(response: Response) -> ObjectMeta:
            if not by_get and response.status in (405, 501):
                raise self._forget_heads(key)
            if not (by_get and response.status == 416):  # noqa: PLR2004  an empty file has no first byte
                self._route.check(response, "look up", key, way)
            with self._route.locating(key):
                found = parse_meta(key, response, by_get=by_get)
            if found is not None:
                return found
            if not by_get:
                raise self._forget_heads(key)
            message = "the server does not report the size of this, so it can only be read whole: from_objects"
            raise Unsupported(message, url=self.url(key))

        return Exchange(request, parse)

    def _forget_heads(self, key: str) -> PenstockError:
        self._headless = True
        return make_moved_error("this server does not answer HEAD", self.url(key))

    def list(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Exchange[Page]:
        """List one directory, from its index page; ``Unsupported`` if the server has none.

        A page holds everything before the next directory, without a limit. A size that the index does not state exactly
        is -1.
        """
        if not token:
            self._check_listable(prefix, delimiter)
        flat = bool(delimiter)
        walk = self._walks.find(token, prefix, flat=flat) if token else Walk.begin(prefix, start_after, flat=flat)
        request, way = self._request("GET", walk.directory)
        request.most_bytes, request.deferred = _INDEX_BYTES, True

        def parse(response: Response) -> Page:
            with self._route.locating(walk.directory):
                page, following = walk.enter(index_of(response, walk, way, self._route))
            last = page.entries[-1].key if page.entries else token.partition("\0")[2] or start_after
            return replace(page, token=self._walks.keep(following, last))

        return Exchange(request, parse)

    def _check_listable(self, prefix: str, delimiter: str) -> None:
        if delimiter not in ("", "/"):
            raise Unsupported("the delimiter must be '/' for a web server", url=self.url(prefix))
        if hint := self.hint(prefix):
            raise Unsupported(f"this host is an object store and lists no directories: {hint}", url=self.url(prefix))
        if "?" in prefix:
            message = f"a URL with a query is one object and cannot be listed: {_INSTEAD}"
            raise Unsupported(message, url=self.url(prefix))

    def read(self, span: Span, target: Buffer) -> Exchange[int]:
        """Read one span; send no ``Range`` for a whole file, and a HEAD for an empty span."""
        key, start, _, etag, whole, _, _ = span
        method, wants = "GET", self._by_etag if etag else self._by_any
        lines: tuple[str, ...] = ()
        if not whole:
            if target.size:
                lines = (f"range: bytes={start}-{start + target.size - 1}",)
            else:
                method = "HEAD"  # no Range means "nothing"
        if etag:
            if " " in etag:
                lines, wants = (*lines, f"if-unmodified-since: {etag}"), self._by_date
            elif is_strong(etag):
                lines = (*lines, f'if-match: "{etag}"')
        if self._targets:
            request, way = self._request(method, key, lines, pinned=bool(etag))
            request.wants, request.target = wants[whole], target
            return Exchange(request, partial(self._verified, span, target, way))
        url = self._root + (key if plain(key) else escape_key(key))
        request = Request(method, url, self._lines + lines, wants[whole], target)
        return Exchange(request, partial(self._verified, span, target, None))

    def _verified(self, span: Span, target: Buffer, way: Way | None, response: Response) -> int:
        """Verify the answer to ``read``; return how many bytes of the target belong to the span."""
        try:
            if response.status not in (200, 206):
                raise self._route.error(response, "read", span.key, way or self._route.straight(span.key))
            if _ENCODING in response.headers:
                check_encoding(response, span.key)
            received = (BY_DATE if " " in span.etag else BY_ETAG).span(response, span, target)
            response.version = _pinnable(version_of(response.headers))
        except PenstockError as error:
            error.url = error.url or self.url(span.key)
            if error.code == RANGE_IGNORED:
                self._learn_ranges(honoured=False)
            raise
        if target.size and not span.whole:
            self._learn_ranges(heeds_ranges(response))
        return received

    def get(
        self, key: str, etag: str, most_bytes: int = UNKNOWN_BYTES, buffer: Buffer | None = None
    ) -> Exchange[bytes | Beginning]:
        """Read a whole file of unknown size; with ``etag``, in that version only."""
        request, way = self._request("GET", key, _make_match_header(etag))
        bound = min(most_bytes, self.abilities.untold_bytes)
        request.target, request.shorter, request.most_bytes = buffer, True, bound

        def parse(response: Response) -> bytes | Beginning:
            if response.status != 200 or (response.fault is not None and not response.overflow):  # noqa: PLR2004  OK
                raise self._route.error(response, "read", key, way)
            with self._route.locating(key):
                check_encoding(response, key)
                verify = (BY_DATE if " " in etag else BY_ETAG) if etag else verification(response.headers)
                got: bytes | Beginning
                if buffer is not None:
                    got = verify.opened(response, etag, buffer)
                elif response.overflow:
                    got = make_beginning(verify, response, bound, most_bytes, self.url(key))
                else:
                    got = verify.whole(response, etag)
            response.version = _pinnable(version_of(response.headers))
            if not isinstance(got, Beginning):
                return got
            if got.size > most_bytes:
                raise too_large(most_bytes, self.url(key))
            return got._replace(etag=response.version)

        return Exchange(request, parse)

    def suffix(self, key: str, etag: str, target: Buffer) -> Exchange[Ending | None]:
        lines = (f"range: bytes=-{target.size}", *_make_match_header(etag))
        request, way = self._request("GET", key, lines, pinned=bool(etag))
        request.target, request.shorter = target, True

        def parse(response: Response) -> Ending | None:
            if response.status == 416:  # noqa: PLR2004  Range Not Satisfiable: an empty file has no last byte
                return None
            if response.status not in (200, 206):
                raise self._route.error(response, "read", key, way)
            with self._route.locating(key):
                check_encoding(response, key)
                verify = (BY_DATE if " " in etag else BY_ETAG) if etag else verification(response.headers)
                ending = verify.suffix(response, etag, target.size)
            self._learn_ranges(heeds_ranges(response))
            response.version = _pinnable(version_of(response.headers))
            return None if ending is None else ending._replace(etag=response.version)

        return Exchange(request, parse)

    def _request(
        self, method: str, key: str, lines: tuple[str, ...] = (), *, pinned: bool = False
    ) -> tuple[Request, Way]:
        way, fixed = self._route.next(key, pinned=pinned)
        return Request(method, way.url, fixed + lines, public=way.public), way


def _make_match_header(etag: str) -> tuple[str, ...]:
    """Return the header line that binds a request to a version; empty if the version cannot be sent."""
    if " " in etag:
        return (f"if-unmodified-since: {etag}",)
    return (f'if-match: "{etag}"',) if is_strong(etag) else ()


def _pinnable(version: str) -> str:
    return version if " " in version or is_strong(version) else ""


_REFUSED = {
    403: "HTTP 403, it has no index page or needs credentials (HTTPOptions)",
    404: "HTTP 404, no such directory (check the path), or no index page of it",
    405: "HTTP 405, the server takes no such request",
}
_INSTEAD = "name the objects instead, in a manifest (from_manifest) or a list (from_objects)"


def index_of(response: Response, walk: Walk, way: Way, route: WebRoute) -> list[IndexEntry]:
    """Return the entries on the index page of a walk's directory; empty if it was deleted while listing."""
    key = walk.directory
    if response.status in (404, 410) and not walk.first:
        return []
    if walk.first and response.status in (403, 404, 405):
        kind = NotFound if response.status == 404 and key else Unsupported  # noqa: PLR2004  Not Found
        raise _none(kind, _REFUSED[response.status], key, route)
    route.check(response, "list", key, way)
    if response.overflow:
        raise _none(Unsupported, "its index is too long", key, route)
    check_encoding(response, key)
    verification(response.headers).whole(response, "")
    body = response.body if isinstance(response.body, bytes) else b""
    found = read_index(body, response.headers.get("content-type", ""), way.url)
    if found is None:
        raise _none(Unsupported, "the server's page is not an index", key, route)
    return found


def _none(kind: type[PenstockError], why: str, key: str, route: WebRoute) -> PenstockError:
    return route.hinted(kind(f"cannot list this directory: {why}; {_INSTEAD}", url=route.url(key)), key)
