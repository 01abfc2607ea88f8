"""Web server as a read-only store: each verb becomes a request, each response a result or an error.

Directories are listed from index pages of nginx (HTML and JSON), Apache, lighttpd, Python's ``http.server`` and similar
ones, as one sorted listing. The pages are not trusted: only names directly in the page's own directory count.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from functools import partial
from html import unescape
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit

from penstock.engine.contracts.driver import RANGE_IGNORED, UNKNOWN_BYTES, Abilities, Beginning, Ending
from penstock.engine.contracts.exchange import Exchange, Request
from penstock.errors import Damaged, NotFound, PenstockError, Unsupported
from penstock.stores.direct import item_bytes, key_bytes, split_items, too_large
from penstock.stores.http.answers import Ranged, make_beginning
from penstock.stores.http.headers import SIZE_LIMIT, is_strong, parse_date
from penstock.stores.http.listing import ListingWalks
from penstock.stores.http.verify import heeds_ranges
from penstock.stores.web.route import (
    BY_DATE,
    BY_ETAG,
    Way,
    WebRoute,
    canonical,
    check_encoding,
    escape_key,
    hide_query,
    make_moved_error,
    parse_meta,
    plain,
    verification,
    version_of,
)
from penstock.values import UNKNOWN_SIZE, ObjectMeta, Page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from urllib.parse import SplitResult

    from penstock.engine.buffer import Buffer
    from penstock.engine.contracts.exchange import Response
    from penstock.stores.http.verify import Verification
    from penstock.values import Span

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
                verify = _verification(response, key, etag)
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
                ending = _verification(response, key, etag).suffix(response, etag, target.size)
            self._learn_ranges(heeds_ranges(response))
            response.version = _pinnable(version_of(response.headers))
            return None if ending is None else ending._replace(etag=response.version)

        return Exchange(request, parse)

    def _request(
        self, method: str, key: str, lines: tuple[str, ...] = (), *, pinned: bool = False
    ) -> tuple[Request, Way]:
        way, fixed = self._route.next(key, pinned=pinned)
        return Request(method, way.url, fixed + lines, public=way.public), way


def _verification(response: Response, key: str, etag: str) -> Verification:
    check_encoding(response, key)
    return (BY_DATE if " " in etag else BY_ETAG) if etag else verification(response.headers)


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


_TITLE = re.compile(r"\s*(?:index of|directory listing for)\s", re.IGNORECASE).match
# nginx: "22-Nov-2026 10:00     1234", exact unless K, M or G follows. Other servers round sizes, or give none.
_EXACT = re.compile(r"\s+[0-9]{2}-[A-Z][a-z]{2}-[0-9]{4} [0-9]{2}:[0-9]{2}\s+([0-9]{1,19})\s*").fullmatch
_SIMPLE = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*/?").fullmatch  # a name that is its own link
# A path without dots that lead elsewhere, in characters without another meaning in a URL: most other links.
_PATH = re.compile(r"[^\s\x00-\x20\x7f-\xa0.:?#;\\][^\s\x00-\x20\x7f-\xa0:?#;\\]*").fullmatch
# Each match begins at the end of the previous one, and the search stops at a tag without end: one pass is enough.
_TAG = re.compile(r"<(?:(/?)([A-Za-z][^\s/>]*)|!--|[!?])")
_ATTRIBUTE = re.compile(r"""[\s/=]*(?:>|([^\s/>=]+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]*)))?)""")
# The rest of a tag whose attributes do not matter.
_REST = re.compile(r"""(?:[^>"'=]++|=\s*+(?:"[^"]*+"|'[^']*+')?+|["'])*+>""")
_RAW = {name: re.compile(f"</{name}", re.IGNORECASE) for name in ("script", "style")}  # their text has no tags
# Tags of a page: those of 180,000 names in Apache's largest form, of a million in nginx's.
_MOST_MARKS = 3 << 20
_MOST_LINKS = 400_000
# How nginx, Apache and lighttpd end a name that is longer than its column.
_SHORTENED = ("..>", "...", "…")


class IndexEntry(NamedTuple):
    """Entry of an index page.

    Attributes:
        name: The name in its canonical spelling, a single segment of a path; a directory's ends in ``/``.
        size: Bytes; ``UNKNOWN_SIZE`` if the page does not state them exactly.
        modified: Seconds since the epoch; None if the page does not state the time with its time zone.
    """

    name: str
    size: int = UNKNOWN_SIZE
    modified: float | None = None


def read_index(body: bytes, content_type: str, url: str) -> list[IndexEntry] | None:
    """Return the entries of an index page of the directory ``url``, in its order; None for any other page."""
    if content_type.partition(";")[0].strip().lower() == "application/json":
        return _from_json(body)
    page = _IndexPage(body.decode("utf-8", "surrogateescape"))
    if not _TITLE(page.title):
        return None
    if not page.whole:
        raise Damaged("the index page is truncated")
    here = urlsplit(url)
    folder, base = canonical(here.path), here.geturl()
    found = [_parse_link(link, here, folder, base) for link in page.links]
    return list({each.name: each for each in found if each is not None}.values())


class _Link:
    """Link: its target, the text on it, and the text after it."""

    __slots__ = ("after", "href", "text")

    def __init__(self, href: str) -> None:
        self.href, self.text, self.after = href, "", ""


class _IndexPage:
    """Title and links of a page, found in one pass: its time is proportional to the text's length."""

    def __init__(self, text: str) -> None:
        self.title = ""
        self.links: list[_Link] = []
        self.whole = False
        self._text = text
        self._left = _MOST_MARKS
        self._into = ""
        self._parts: list[str] = []
        at = 0
        while (tag := _TAG.search(text, at)) is not None:
            if self._into:
                self._parts.append(text[at : tag.start()])
            end = self._enter(tag)
            # A tag or comment without end is the last one.
            if end < 0:
                break
            at = end
        if self._into and tag is None:
            self._parts.append(text[at:])
        self._flush()

    def _enter(self, tag: re.Match[str]) -> int:
        """Process a tag; return where the text continues, or -1 at its end."""
        self._count()
        start, name = tag.end(), tag[2].lower() if tag[2] else ""
        if not name:
            mark = "-->" if tag[0] == "<!--" else ">"
            end = self._text.find(mark, start)
            return end + len(mark) if end >= 0 else -1
        if tag[1]:
            self._leave(name)
            return self._text.find(">", start) + 1 or -1
        if name == "a":
            href, end = self._attributes(start)
            self._flush("a" if href is not None else "")
            if href is not None:
                self.links.append(_Link(_unescape_entities(href)))
            if len(self.links) > _MOST_LINKS:
                raise Damaged(f"the index page has more than {_MOST_LINKS} links")
            return end
        rest = _REST.match(self._text, start)
        end = rest.end() if rest else -1
        if name in ("title", "head", "body"):
            self._flush(name)
        elif end >= 0 and name in _RAW:
            closing = _RAW[name].search(self._text, end)
            end = closing.start() if closing else -1
        return end

    def _attributes(self, at: int) -> tuple[str | None, int]:
        """Return the last ``href`` of a tag, and the end of the tag; -1 for a tag without end."""
        href = None
        while (found := _ATTRIBUTE.match(self._text, at)) is not None:
            at = found.end()
            if found[1] is None:
                return href, at
            self._count()
            if len(found[1]) == len("href") and found[1].lower() == "href" and found.lastindex != 1:
                href = found[found.lastindex or 0]
        return None, -1

    def _leave(self, name: str) -> None:
        if name == "a":
            self._flush("after" if self.links else "")
        elif name in ("title", "html", "pre", "table"):
            self.whole = self.whole or name == "html"
            self._flush()

    def _flush(self, into: str = "") -> None:
        """Assign the text since the last change to its element; the following text belongs to ``into``."""
        if self._parts and self._into in ("title", "a", "after"):
            text = _unescape_entities("".join(self._parts))
            link = self.links[-1] if self.links else None
            if self._into == "title":
                self.title = self.title or text
            elif link is not None and self._into == "a":
                link.text = text
            elif link is not None:
                link.after = link.after or text
        self._parts, self._into = [], into

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Damaged(f"the index page has more than {_MOST_MARKS} tags")


def _unescape_entities(text: str) -> str:
    try:
        return unescape(text) if "&" in text else text
    except ValueError:  # a number of thousands of digits
        raise Damaged("the index page names a character that does not exist") from None


def _parse_link(link: _Link, here: SplitResult, folder: str, base: str) -> IndexEntry | None:
    """Return the entry that a link names; None for other links: sorting, the parent, a link in a text, another host."""
    href = link.href
    if not link.text:
        return None
    if _SIMPLE(href):
        path = folder + href
    elif _PATH(href) and "//" not in href and "/." not in href:
        path = canonical(href) if href[0] == "/" else folder + canonical(href)
    else:
        path = _resolve_link(href, here, base)
    name = path[len(folder) :].removesuffix("/")
    if not path.startswith(folder) or "/" in name or name in ("", ".", "..") or not _says(link.text, name):
        return None
    if path.endswith("/"):
        return IndexEntry(f"{name}/")
    size = _EXACT(link.after)
    return IndexEntry(name, int(size[1]) if size and int(size[1]) <= SIZE_LIMIT else UNKNOWN_SIZE)


def _resolve_link(href: str, here: SplitResult, base: str) -> str:
    """Return the path that a link leads to; empty if it leads to another host, or not to a file."""
    try:
        there = urlsplit(urljoin(base, href.strip()))
    except ValueError:
        return ""
    same = (here.scheme, here.netloc) == (there.scheme, there.netloc)
    return canonical(there.path) if same and not (there.query or there.fragment) else ""


def _says(text: str, name: str) -> bool:
    """Return whether a link's text is its name, perhaps shortened: true of entries, not of links in a README."""
    if text == name or (text[-1:] == "/" and text[:-1] == name):  # nearly all
        return True
    text, name = (_normalize_text(each) for each in (text.strip().removesuffix("/").removesuffix("@"), unquote(name)))
    cut = next((text.removesuffix(end) for end in _SHORTENED if text.endswith(end)), None)
    return text == name or name.removesuffix("@") == text or (bool(cut) and name.startswith(str(cut)))


def _normalize_text(text: str) -> str:
    """Return a text without differences between servers: bytes that are not UTF-8 as one character, no outer spaces."""
    return re.sub(r"[\udc80-\udcff�]+", "�", text).strip()


def _from_json(body: bytes) -> list[IndexEntry] | None:
    if sum(map(body.count, (b"{", b"[", b","))) > _MOST_MARKS:
        raise Damaged(f"the index has more than {_MOST_MARKS} values")
    try:
        rows = json.loads(body.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise Damaged(f"the index is not JSON: {error}") from None
    if not isinstance(rows, list) or not all(isinstance(each, dict) and "name" in each for each in rows):
        return None
    if len(rows) > _MOST_LINKS:
        raise Damaged(f"the index has more than {_MOST_LINKS} files")
    found = [_row(each) for each in rows]
    return [each for each in found if each is not None]


def _row(row: dict[str, object]) -> IndexEntry | None:
    name, kind, size, date = (row.get(each) for each in ("name", "type", "size", "mtime"))
    if not isinstance(name, str) or "/" in name or "\0" in name or name in ("", ".", ".."):
        raise Damaged("the index names a file with an invalid name")
    try:
        name = canonical(quote(name, safe="", errors="surrogateescape"))
    except UnicodeEncodeError:
        raise Damaged("the index names a file with incomplete characters") from None
    if kind == "directory":
        return IndexEntry(f"{name}/")
    known = isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= SIZE_LIMIT
    modified = parse_date(date) if isinstance(date, str) else None
    return (
        IndexEntry(name, size if known and isinstance(size, int) else UNKNOWN_SIZE, modified)
        if kind == "file"
        else None
    )


# Nested directories; beyond that, a link leads back into itself.
_MOST_DEEP = 100


@dataclass(frozen=True, slots=True)
class _Rest:
    """Remaining items of a directory, followed by those of its parent; immutable, and shared by walks."""

    items: tuple[ObjectMeta | str, ...]
    at: int
    above: _Rest | None


@dataclass(frozen=True, slots=True)
class Walk:
    """State of a listing in progress. In key order, a directory's ``name/`` takes the place of its contents.

    Attributes:
        prefix: Prefix of every key.
        after: Keys up to this one are left out.
        flat: Directories are listed by name and not entered: ``delimiter="/"``.
        directory: Key of the next directory to read, empty or ending in ``/``.
        first: ``directory`` is the first one of the listing.
    """

    prefix: str
    after: str = ""
    flat: bool = False
    directory: str = ""
    first: bool = True
    _rest: _Rest | None = field(default=None, repr=False)

    @classmethod
    def begin(cls, prefix: str, after: str = "", *, flat: bool = False) -> Walk:
        return cls(prefix, after, flat, prefix[: prefix.rfind("/") + 1])

    def enter(self, found: Iterable[IndexEntry]) -> tuple[Page, Walk | None]:
        """Process the contents of the directory; return a page of items, and the walk to continue with, if any."""
        if self.directory.count("/") > _MOST_DEEP + self.prefix.count("/"):
            raise Damaged(f"directories are more than {_MOST_DEEP} deep: one of them is a link that leads back")
        items = sorted(self._wanted(found), key=item_bytes)
        if self.flat:
            return split_items(items), None
        return self._tell(_Rest(tuple(items), 0, self._rest))

    def _wanted(self, found: Iterable[IndexEntry]) -> Iterable[ObjectMeta | str]:
        asked = canonical(self.prefix[len(self.directory) :]) if self.first else ""
        bound = key_bytes(self.after)
        for name, size, modified in found:
            if not name.startswith(asked):
                continue
            key = self.prefix + name[len(asked) :] if self.first else self.directory + name  # in the spelling asked for
            if key_bytes(key) > bound or (key.endswith("/") and not self.flat and self.after.startswith(key)):
                yield key if key.endswith("/") else ObjectMeta(key, size, modified=modified)

    def _tell(self, rest: _Rest | None) -> tuple[Page, Walk | None]:
        """Return a page of files up to the next directory, here or above."""
        files: list[ObjectMeta] = []
        while rest is not None:
            for at in range(rest.at, len(rest.items)):
                item = rest.items[at]
                if isinstance(item, str):
                    left = _Rest(rest.items, at + 1, rest.above) if at + 1 < len(rest.items) else rest.above
                    return Page(tuple(files)), replace(self, directory=item, first=False, _rest=left)
                files.append(item)
            rest = rest.above
        return Page(tuple(files)), None
