"""Route of requests to one web server: forms of its URLs, redirects, properties of its answers, errors for refusals."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from socket import inet_aton, inet_ntoa
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from penstock.engine.contracts.driver import MOVED
from penstock.engine.endpoint import is_public
from penstock.errors import Changed, ConfigError, Denied, Forbidden, NotFound, PenstockError, Unauthenticated, Unusable
from penstock.stores.http.answers import STATUSES, Codes, Meaning
from penstock.stores.http.headers import is_strong, parse_date, parse_size, strip_quotes
from penstock.stores.http.verify import REPLACED, Verification
from penstock.values import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from urllib.parse import SplitResult

    from penstock.engine.contracts.exchange import Response

plain = re.compile(r"[A-Za-z0-9/_.~-]+").fullmatch  # whether a key is sent unchanged
_BARE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_RUNS = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
# RFC 3986: characters that a path may hold unescaped, beside letters, digits and "-._~"; and the "%" of escapes.
_PATH = "/!$&'()*+,;=:@%"
# A signature may depend on the exact characters of a query.
_QUERY = "".join(chr(code) for code in range(33, 127) if chr(code) not in '"<>#')
# Characters that stay escaped in a listing: their meaning would change on some servers ("+" is a space on S3).
_TELLING = "%?#+;/"


def escape_key(key: str) -> str:
    """Return the sent form of a key: characters that a URL cannot hold are escaped, ``%XX`` and a query are kept."""
    if plain(key):
        return key
    path, mark, query = key.partition("?")
    sent = quote(_BARE.sub("%25", path), safe=_PATH)
    return f"{sent}?{quote(query, safe=_QUERY)}" if mark else sent


def hide_query(key: str) -> str:
    """Return the form of a key for messages, without its query, which may hold a signature."""
    path, mark, _ = key.partition("?")
    return f"{path}?…" if mark else path


def canonical(path: str) -> str:
    """Return the spelling of a path in listings: readable, with only the necessary escapes.

    All spellings that RFC 3986 treats as one path give the same result; ``escape_key`` sends it as that path.
    """
    text = _RUNS.sub(lambda run: _unescape_bytes(bytes.fromhex(run[0].replace("%", ""))), _BARE.sub("%25", path))
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _percent(each.encode("utf-8", "surrogateescape")) for each in text)


def _unescape_bytes(data: bytes) -> str:
    """Return escaped bytes as text, still escaped where necessary or where they are not UTF-8."""
    text = data.decode("utf-8", "surrogateescape")
    return "".join(
        _percent(each.encode("utf-8", "surrogateescape")) if each in _TELLING or not each.isprintable() else each
        for each in text
    )


def _percent(data: bytes) -> str:
    return "".join(f"%{byte:02X}" for byte in data)


_PUBLIC = ("Accept-Encoding: identity",)
_REDIRECTS = (301, 302, 303, 307, 308)
_S3 = "the server answers as S3 does: write s3://bucket/key and pass S3Options(endpoint=…)"


class Way(NamedTuple):
    """Path of one request.

    Attributes:
        path: The key's own path, escaped.
        url: Target of the request; it may hold a signature.
        hops: Number of redirects that led there.
        reused: An earlier request was redirected there.
        public: The request may only connect to a public address.
    """

    path: str
    url: str
    hops: int = 0
    reused: bool = False
    public: bool = False


class WebRoute:
    """Address of one web server, the header lines of each request to it, and the targets of its redirects."""

    def __init__(self, root: str, headers: tuple[str, ...], hint: Callable[[str], str]) -> None:
        """Begin at ``root``, ``scheme://host[:port]/``; ``headers`` are sent only there."""
        self._root = root
        self.hint = hint
        self.lines = _PUBLIC + headers
        self.targets = Targets()

    def url(self, key: str) -> str:
        return self._root + hide_query(key)

    def straight(self, key: str) -> Way:
        path = escape_key(key)
        return Way(path, self._root + path)

    def next(self, key: str, *, pinned: bool) -> tuple[Way, tuple[str, ...]]:
        way = self.straight(key)
        target = self.targets.take(way.path, pinned=pinned) if self.targets else None
        if target is None:
            return way, self.lines
        way = Way(way.path, target.url, target.hops, target.tried, target.public)
        target.tried = True
        return way, self.lines if _origin(target.url) == _origin(self._root) else _PUBLIC

    @contextmanager
    def locating(self, key: str) -> Iterator[None]:
        try:
            yield
        except PenstockError as error:
            error.url = error.url or self.url(key)
            raise

    def check(self, response: Response, action: str, key: str, way: Way) -> None:
        whole = response.fault is None or response.overflow
        if not whole or not 200 <= response.status < 300:  # noqa: PLR2004  success
            raise self.error(response, action, key, way)

    def error(self, response: Response, action: str, key: str, way: Way) -> PenstockError:
        """Return the error for an answer; for a redirect, an error that makes the verb run again at its target."""
        url = self.url(key)
        if response.fault is not None and response.status < 300:  # noqa: PLR2004  no refusal
            response.fault.url = response.fault.url or url
            return response.fault
        if response.status in _REDIRECTS:
            return self._redirected(response, action, key, way)
        if way.reused:  # perhaps an expired signature
            self.targets.drop(way.path)
            return make_moved_error(f"cannot {action}: where it was redirected to answers HTTP {response.status}", url)
        if response.status == 412:  # noqa: PLR2004  a condition
            return Changed(REPLACED, url=url)
        error = WEB_CODES.refusal(response, action, url).error
        words = f" (redirected to {urlsplit(way.url).netloc})" if way.hops else ""
        return self.hinted(error, key, words) if isinstance(error, Unusable | Denied | NotFound) else error

    def hinted(self, error: PenstockError, key: str, words: str = "") -> PenstockError:
        """Return an error with ``words`` and a suggestion of the intended URL."""
        hint = self.hint(self.url(key)) or (_S3 if error.code else "")
        full = type(error)(f"{error.message}{words}{f'; {hint}' if hint else ''}", url=error.url)
        full.code, full.retry_after_s = error.code, error.retry_after_s
        return full

    def _redirected(self, response: Response, action: str, key: str, way: Way) -> PenstockError:
        url, location = self.url(key), response.headers.get("location", "")
        if way.hops >= MOST_HOPS:
            return ConfigError(f"cannot {action}: more than {MOST_HOPS} redirects, one to the next", url=url)
        target = target_of(way.url, location)
        if not target:
            where = f"HTTP {response.status} to {_host(location)}"
            message = f"cannot {action}: refused a redirect without TLS or into a private network ({where})"
            return self.hinted(ConfigError(message, url=url), key)
        if target.partition("?")[0] == f"{way.url.partition('?')[0]}/":
            return NotFound(f"cannot {action}: this is a directory: write '/' at its end", url=url)
        public = way.public or asked_from(way.url, response.address)
        self.targets.add(way.path, target, way.hops + 1, public=public)
        return make_moved_error(f"cannot {action}: redirected to {_host(target)}", url)


def _origin(url: str) -> str:
    return "/".join(url.split("/", 3)[:3]).lower()


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "another path")[:80]
    except ValueError:
        return "no address"


_STATUSES: Mapping[int, Meaning] = {
    **STATUSES,
    401: Meaning(Unauthenticated, "; pass HTTPOptions(token=…) or HTTPOptions(username=…, password=…)"),
    403: Meaning(
        Forbidden, "; it needs credentials (HTTPOptions) or has no index; a signed URL may have expired or be cut short"
    ),
    404: Meaning(NotFound, "; no such file: check the path"),
    410: Meaning(NotFound, "; it is gone for good"),
    451: Meaning(Forbidden, "; it may not be shown for legal reasons"),
}

# Only stores like S3 and Azure send codes, which explain the refusal; web servers have no codes.
WEB_CODES = Codes(service="HTTP", codes={}, statuses=_STATUSES, where="the URL")


MOST_HOPS = 10
# Signed targets are valid for minutes at least; pinned reads of one object share a target.
_KEPT_S = 60.0
_MOST_TARGETS = 1024
_SCHEMES = ("http", "https")


@dataclass(slots=True)
class RedirectTarget:
    """Target of a redirect. It may hold a signature, so its repr shows the host only.

    Attributes:
        url: Absolute, without a fragment.
        hops: Number of redirects that led to it.
        since: Time of the redirect, by the monotonic clock.
        public: Connect to public addresses only, because a public server named the target.
    """

    url: str
    hops: int
    since: float
    public: bool = False
    tried: bool = False

    def __repr__(self) -> str:
        return f"Target({urlsplit(self.url).netloc!r}, {self.hops})"


class Targets:
    """Targets of the next requests, by the paths of their keys on the server itself."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._targets: dict[str, RedirectTarget] = {}

    def __bool__(self) -> bool:
        return bool(self._targets)

    def add(self, path: str, url: str, hops: int, *, public: bool = False) -> None:
        if len(self._targets) >= _MOST_TARGETS:
            # A request that loses its target is redirected again.
            self._targets.clear()
        self._targets[path] = RedirectTarget(url, hops, self._clock(), public)

    def take(self, path: str, *, pinned: bool) -> RedirectTarget | None:
        """Return the target of the next request for ``path``, or None.

        A target serves one request. For requests ``pinned`` to a version it serves for a minute, because the version
        shows whether the target is still the right one.
        """
        target = self._targets.get(path) if pinned else self._targets.pop(path, None)
        if target is None or self._clock() - target.since > _KEPT_S:
            self._targets.pop(path, None)
            return None
        return target

    def drop(self, path: str) -> None:
        self._targets.pop(path, None)


def target_of(url: str, location: str) -> str:
    """Return the absolute URL that a redirect of ``url`` leads to; empty if it must not be followed.

    Redirects to any host are followed, except from TLS to none, with user information, or into a network that the
    redirecting host is not in itself: to this machine, a private or link-local address. A host name may resolve to
    such an address, too: for a host named by a public server, the transport connects to public addresses only
    (``asked_from``).
    """
    try:
        here, there = urlsplit(url), urlsplit(urljoin(url, location.strip()))
        sound = there.scheme in _SCHEMES and bool(there.hostname) and there.port != 0
    except ValueError:
        return ""
    unsafe = "@" in there.netloc or not location.isascii() or not location.isprintable() or " " in location.strip()
    if not sound or unsafe or (here.scheme == "https" and there.scheme != "https"):
        return ""
    return "" if _inward(here, there) else there._replace(fragment="").geturl()


def asked_from(url: str, address: str) -> bool:
    """Return whether a redirect came from a public server: by the address of its connection, if that is known."""
    return is_public(address) if address else not _is_private(urlsplit(url).hostname or "")


def _inward(here: SplitResult, there: SplitResult) -> bool:
    """Return whether a public host redirects into a private network, which trusts this machine but not that host."""
    return (
        here.hostname != there.hostname and _is_private(there.hostname or "") and not _is_private(here.hostname or "")
    )


def _is_private(host: str) -> bool:
    host = host.rstrip(".")
    if host == "localhost" or host.endswith((".localhost", ".internal", ".local")):
        return True
    try:
        address = str(ip_address(host))
    except ValueError:
        try:
            # Short, decimal and hexadecimal forms that resolvers accept: 127.1, 2130706433, 0x7f000001.
            address = inet_ntoa(inet_aton(host))
        except (OSError, UnicodeError, ValueError):
            return False
    return not is_public(address)


BY_ETAG = Verification()
BY_DATE = Verification(version="last-modified")
_RANGE = re.compile(r"bytes (?:[0-9]+-[0-9]+|\*)/([0-9]{1,19})").fullmatch
# Suffixes of compressed files: the compressed bytes are the stored ones, and are the wanted ones.
_COMPRESSED = (".gz", ".tgz", ".gzip", ".z", ".bz2", ".xz", ".zst", ".br", ".svgz", ".warc", ".vcf", ".bgz", ".deflate")


def version_of(headers: Mapping[str, str]) -> str:
    """Return a file's version: its strong ETag, else its date (with spaces: RFC 9110, 8.8.3), else a weak ETag."""
    etag = strip_quotes(headers.get("etag", ""))
    if etag and is_strong(etag):
        return etag
    return headers.get("last-modified", "").strip() or etag


def verification(headers: Mapping[str, str]) -> Verification:
    """Return the verification that compares the version in answers with these headers."""
    return BY_DATE if " " in version_of(headers) else BY_ETAG


def parse_meta(key: str, response: Response, *, by_get: bool = False) -> ObjectMeta | None:
    """Return a file's metadata from an answer to HEAD or (``by_get``) to GET of its first byte; None without a size."""
    headers = response.headers
    check_encoding(response, key)
    if response.status in (206, 416):
        total = _RANGE(headers.get("content-range", ""))
        size = parse_size(total[1]) if total else None
        if response.status == 416 and size:  # noqa: PLR2004  416 fits an empty file only
            size = None
    else:
        size = parse_size(headers.get("content-length", ""))
    version = version_of(headers)
    if size is None or (not size and not version and response.status == 200 and not by_get):  # noqa: PLR2004
        # Programs that answer HEAD carelessly say 0; lighttpd sends no version of empty files.
        return None
    modified, kind = parse_date(headers.get("last-modified", "")), headers.get("content-type", "")
    return ObjectMeta(key, size, version, modified, content_type=kind)


def check_encoding(response: Response, key: str) -> None:
    """Raise ``Unusable`` if the bytes are a compressed form that was not requested.

    A file whose name says that it is compressed is read as stored: servers name its encoding, too.
    """
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity") or key.partition("?")[0].lower().endswith(_COMPRESSED):
        return
    message = (
        f"the server compresses this file ({encoding[:40]!r}) although the request forbids it: disable "
        "compression of these files on the server"
    )
    raise Unusable(message)


def make_moved_error(why: str, url: str) -> PenstockError:
    """Return the error that makes the same verb run again at once, after the driver has learned something."""
    error = ConfigError(why, url=url)
    error.code, error.retries = MOVED, 1
    return error
