"""A web server as a store that is read: each verb becomes a request, each response a result or an error."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.drivers.direct import too_large
from penstock.drivers.http.headers import is_strong
from penstock.drivers.http.reads import Ranged
from penstock.drivers.http.verify import heeds_ranges
from penstock.drivers.http.walks import Walks
from penstock.drivers.web.answers import BY_DATE, BY_ETAG, check_encoding, described, moved, verification, version_of
from penstock.drivers.web.directory import check_listable, index_of
from penstock.drivers.web.paths import escaped, plain, shown
from penstock.drivers.web.route import Route, Way
from penstock.drivers.web.walk import Walk
from penstock.errors import PenstockError, Unsupported
from penstock.protocols.driver import RANGE_IGNORED, UNKNOWN_BYTES, Abilities, Beginning, Ending
from penstock.protocols.exchange import Exchange, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.buffer import Buffer
    from penstock.protocols.exchange import Response
    from penstock.values import ObjectMeta, Page, Span

__all__ = ["Web"]

_INDEX_BYTES = 32 << 20  # some 350,000 names: they are read on the I/O thread, which does nothing else meanwhile
_ENCODING = "content-encoding"


class Web(Ranged):
    """The files of one web server, by the paths of their URLs; see ``protocols.driver`` for the verbs' contract.

    A version is the strong ETag, else the date of ``Last-Modified``. Reads are held to it by ``If-Match`` and
    ``If-Unmodified-Since``, and what the answer says is compared, for not every server heeds these.
    """

    abilities = Abilities(digest=None, ranges=None)

    def __init__(self, root: str, headers: tuple[str, ...] = (), hint: Callable[[str], str] = lambda _url: "") -> None:
        """Read from ``root``, ``scheme://host[:port]/``.

        ``headers`` are lines that go to this host and to no other. ``hint`` says of a URL that was refused what may
        have been meant.
        """
        self._root = root
        self._route = Route(root, headers, hint)
        self._lines, self._targets = self._route.lines, self._route.targets
        self._walks = Walks(Walk.begin)
        self._headless = False  # HEAD gives nothing here
        self._by_etag = (*BY_ETAG.range_headers, _ENCODING), (*BY_ETAG.whole_headers, _ENCODING)
        self._by_date = (*BY_DATE.range_headers, _ENCODING), (*BY_DATE.whole_headers, _ENCODING)

    def url(self, key: str) -> str:
        """Return the URL without its query, which may hold a signature."""
        return self._root + (shown(key) if "?" in key else key)

    def prepare(self) -> None:
        """Nothing blocks here."""

    def hint(self, key: str) -> str:
        """Return what the URL of ``key`` may have been meant to be; empty where it may well be a web server's."""
        return self._route.hint(self.url(key))

    def head(self, key: str) -> Exchange[ObjectMeta]:
        """Describe one file: by HEAD, or by a GET of its first byte where the server or a signature takes no HEAD."""
        by_get = self._headless or "?" in key
        request, way = self._request("GET" if by_get else "HEAD", key, ("range: bytes=0-0",) if by_get else ())

        def parse(response: Response) -> ObjectMeta:
            if not by_get and response.status in (405, 501):
                raise self._forget_heads(key)
            if not (by_get and response.status == 416):  # noqa: PLR2004  an empty file has no first byte
                self._route.check(response, "look up", key, way)
            with self._route.locating(key):
                found = described(key, response, by_get=by_get)
            if found is not None:
                return found
            if not by_get:
                raise self._forget_heads(key)
            message = "the server does not say how long this is, so it can only be read whole: from_objects"
            raise Unsupported(message, url=self.url(key))

        return Exchange(request, parse)

    def _forget_heads(self, key: str) -> PenstockError:
        self._headless = True
        return moved("this server does not answer HEAD", self.url(key))

    def list(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Exchange[Page]:
        """List what one directory adds to a listing, by its index page; ``Unsupported`` where the server has none.

        A page holds all that comes before the next directory, however much. A size that the index does not say exactly
        is -1.
        """
        if not token:
            check_listable(self, prefix, delimiter)
        flat = bool(delimiter)
        walk = self._walks.find(token, prefix, flat=flat) if token else Walk.begin(prefix, start_after, flat=flat)
        request, way = self._request("GET", walk.directory)
        request.most_bytes = _INDEX_BYTES

        def parse(response: Response) -> Page:
            with self._route.locating(walk.directory):
                page, following = walk.enter(index_of(response, walk, way, self._route))
            last = page.entries[-1].key if page.entries else token.partition("\0")[2] or start_after
            return replace(page, token=self._walks.keep(following, last))

        return Exchange(request, parse)

    def read(self, span: Span, target: Buffer) -> Exchange[int]:
        """Read one span; no ``Range`` is sent where it is the whole file, and a HEAD where it is empty."""
        key, start, _, etag, whole, _ = span
        method, wants = "GET", self._by_etag
        lines: tuple[str, ...] = ()
        if not whole:
            if target.size:
                lines = (f"range: bytes={start}-{start + target.size - 1}",)
            else:
                method = "HEAD"  # no Range says "nothing"
        if etag:
            if " " in etag:
                lines, wants = (*lines, f"if-unmodified-since: {etag}"), self._by_date
            elif is_strong(etag):
                lines = (*lines, f'if-match: "{etag}"')
        if self._targets:
            request, way = self._request(method, key, lines, pinned=bool(etag))
            request.wants, request.target = wants[whole], target
            return Exchange(request, partial(self._verified, span, target, way))
        url = self._root + (key if plain(key) else escaped(key))
        request = Request(method, url, self._lines + lines, wants[whole], target)
        return Exchange(request, partial(self._verified, span, target, None))

    def _verified(self, span: Span, target: Buffer, way: Way | None, response: Response) -> int:
        """Verify the answer to ``read``; returns how many bytes of the target are the span's."""
        try:
            if response.status not in (200, 206):
                raise self._route.error(response, "read", span.key, way or self._route.straight(span.key))
            if _ENCODING in response.headers:
                check_encoding(response, span.key)
            received = (BY_DATE if " " in span.etag else BY_ETAG).span(response, span, target)
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
        """Read a whole file whose size is not known; with a version, held to it."""
        request, way = self._request("GET", key, _held(etag))
        request.target, request.shorter, request.most_bytes = buffer, True, most_bytes

        def parse(response: Response) -> bytes | Beginning:
            if response.status != 200 or (response.fault is not None and not response.overflow):  # noqa: PLR2004  OK
                raise self._route.error(response, "read", key, way)
            with self._route.locating(key):
                check_encoding(response, key)
                verify = (BY_DATE if " " in etag else BY_ETAG) if etag else verification(response.headers)
                if buffer is None:
                    if response.overflow:
                        raise too_large(most_bytes, self.url(key))
                    return verify.whole(response, etag)
                got = verify.opened(response, etag, buffer)
            if not isinstance(got, Beginning):
                return got
            if got.size > most_bytes:
                raise too_large(most_bytes, self.url(key))
            return got._replace(etag=_pinnable(version_of(response.headers)))

        return Exchange(request, parse)

    def suffix(self, key: str, etag: str, target: Buffer) -> Exchange[Ending | None]:
        """Read a file's last bytes."""
        lines = (f"range: bytes=-{target.size}", *_held(etag))
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
            return None if ending is None else ending._replace(etag=_pinnable(version_of(response.headers)))

        return Exchange(request, parse)

    def _request(
        self, method: str, key: str, lines: tuple[str, ...] = (), *, pinned: bool = False
    ) -> tuple[Request, Way]:
        way, fixed = self._route.next(key, pinned=pinned)
        return Request(method, way.url, fixed + lines), way


def _held(etag: str) -> tuple[str, ...]:
    """Return the header line that holds a request to a version; none where the version cannot be sent."""
    if " " in etag:
        return (f"if-unmodified-since: {etag}",)
    return (f'if-match: "{etag}"',) if is_strong(etag) else ()


def _pinnable(version: str) -> str:
    return version if " " in version or is_strong(version) else ""
