"""Answers to requests for directories: the names on an index page, or why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.drivers.web.answers import check_encoding, verification
from penstock.drivers.web.index import read_index
from penstock.errors import NotFound, PenstockError, Unsupported

if TYPE_CHECKING:
    from penstock.drivers.web.index import Named
    from penstock.drivers.web.route import Route, Way
    from penstock.drivers.web.walk import Walk
    from penstock.protocols.exchange import Response

__all__ = ["check_listable", "index_of"]

_REFUSED = {
    403: "HTTP 403, it has no index page or needs credentials (HTTPOptions)",
    404: "HTTP 404, no such directory (check the path), or no index page of it",
    405: "HTTP 405, the server takes no such request",
}
_INSTEAD = "name the objects instead, in a manifest (from_manifest) or a list (from_objects)"


class _Addressed(Protocol):
    def url(self, key: str) -> str: ...
    def hint(self, key: str) -> str: ...


def check_listable(store: _Addressed, prefix: str, delimiter: str) -> None:
    """Raise ``Unsupported`` for a listing that no web server can give."""
    if delimiter not in ("", "/"):
        raise Unsupported("web servers list directories: the delimiter is '/'", url=store.url(prefix))
    if hint := store.hint(prefix):
        raise Unsupported(f"an object store's host lists no directories: {hint}", url=store.url(prefix))
    if "?" in prefix:
        raise Unsupported(f"a URL with a query is one object and cannot be listed: {_INSTEAD}", url=store.url(prefix))


def index_of(response: Response, walk: Walk, way: Way, route: Route) -> list[Named]:
    """Return what the index page of a walk's directory names; nothing where it was deleted while listing.

    Raises:
        Unsupported: The server has no index pages, or none here.
        NotFound: There is no such directory, or no index page of it.
        PenstockError: Whatever else the answer means.

    """
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
        raise _none(Unsupported, "the server shows a page that is no index", key, route)
    return found


def _none(kind: type[PenstockError], why: str, key: str, route: Route) -> PenstockError:
    return route.hinted(kind(f"cannot list this directory: {why}; {_INSTEAD}", url=route.url(key)), key)
