"""Where requests to one web server go, after redirects too, and the errors that its refusals are."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from penstock.drivers.http.verify import REPLACED
from penstock.drivers.web.answers import moved
from penstock.drivers.web.codes import WEB_CODES
from penstock.drivers.web.paths import escaped, shown
from penstock.drivers.web.redirect import MOST_HOPS, Targets, target_of
from penstock.errors import Changed, ConfigError, Denied, NotFound, PenstockError, Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.protocols.exchange import Response

__all__ = ["Route", "Way"]

_PUBLIC = ("Accept-Encoding: identity",)
_REDIRECTS = (301, 302, 303, 307, 308)
_S3 = "the server answers as S3 does: write s3://bucket/key and pass S3Options(endpoint=…)"


class Way(NamedTuple):
    """Where one request went.

    Attributes:
        path: The key's own path, escaped.
        url: Where the request was sent; it may hold a signature.
        hops: How many redirects led there.
        reused: Another request was redirected there, some time ago.

    """

    path: str
    url: str
    hops: int = 0
    reused: bool = False


class Route:
    """One web server's address, what is sent to it alone, and where it redirected requests to.

    Attributes:
        lines: Header lines of every request to this server.
        targets: Where redirects lead.

    """

    __slots__ = ("_hint", "_root", "lines", "targets")

    def __init__(self, root: str, headers: tuple[str, ...], hint: Callable[[str], str]) -> None:
        """Begin at ``root``, ``scheme://host[:port]/``; ``headers`` go there and nowhere else."""
        self._root = root
        self._hint = hint
        self.lines = _PUBLIC + headers
        self.targets = Targets()

    def url(self, key: str) -> str:
        """Return the URL of a key as messages show it."""
        return self._root + shown(key)

    def hint(self, url: str) -> str:
        """Return what a URL may have been meant to be."""
        return self._hint(url)

    def straight(self, key: str) -> Way:
        """Return the way of a request that no redirect changed."""
        path = escaped(key)
        return Way(path, self._root + path)

    def next(self, key: str, *, pinned: bool) -> tuple[Way, tuple[str, ...]]:
        """Return where the next request for ``key`` goes, and the header lines that are sent there."""
        way = self.straight(key)
        target = self.targets.take(way.path, pinned=pinned) if self.targets else None
        if target is None:
            return way, self.lines
        way = Way(way.path, target.url, target.hops, target.tried)
        target.tried = True
        return way, self.lines if _origin(target.url) == _origin(self._root) else _PUBLIC

    @contextmanager
    def locating(self, key: str) -> Iterator[None]:
        """Give errors that have no URL the key's."""
        try:
            yield
        except PenstockError as error:
            error.url = error.url or self.url(key)
            raise

    def check(self, response: Response, action: str, key: str, way: Way) -> None:
        """Raise what any answer but a success means. ``action`` is a verb for the text."""
        whole = response.fault is None or response.overflow
        if not whole or not 200 <= response.status < 300:  # noqa: PLR2004  success
            raise self.error(response, action, key, way)

    def error(self, response: Response, action: str, key: str, way: Way) -> PenstockError:
        """Return the error that an answer is; where it is a redirect, one by which the verb is asked again there."""
        url = self.url(key)
        if response.fault is not None and response.status < 300:  # noqa: PLR2004  no refusal
            response.fault.url = response.fault.url or url
            return response.fault
        if response.status in _REDIRECTS:
            return self._redirected(response, action, key, way)
        if way.reused:  # a signature that has expired, say
            self.targets.drop(way.path)
            return moved(f"cannot {action}: where it was redirected to answers HTTP {response.status}", url)
        if response.status == 412:  # noqa: PLR2004  a condition
            return Changed(REPLACED, url=url)
        error = WEB_CODES.refusal(response, action, url).error
        words = f" (redirected to {urlsplit(way.url).netloc})" if way.hops else ""
        return self.hinted(error, key, words) if isinstance(error, Unusable | Denied | NotFound) else error

    def hinted(self, error: PenstockError, key: str, words: str = "") -> PenstockError:
        """Return an error with ``words`` and what the URL may have been meant to be."""
        hint = self._hint(self.url(key)) or (_S3 if error.code else "")
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
            message = f"cannot {action}: this redirect is not followed ({where}): to no TLS, or into a private network"
            return self.hinted(ConfigError(message, url=url), key)
        if target.partition("?")[0] == f"{way.url.partition('?')[0]}/":
            return NotFound(f"cannot {action}: this is a directory: write '/' at its end", url=url)
        self.targets.add(way.path, target, way.hops + 1)
        return moved(f"cannot {action}: redirected to {_host(target)}", url)


def _origin(url: str) -> str:
    return "/".join(url.split("/", 3)[:3]).lower()


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "another path")[:80]
    except ValueError:
        return "no address"
