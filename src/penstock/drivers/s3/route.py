"""Where a bucket's requests go: the host and the signature, of the service that the user named and of no other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from penstock.drivers.http.escape import escape, query_string
from penstock.drivers.http.redirect import is_of_cluster, is_within, redirected
from penstock.drivers.s3.presigning import Address

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.drivers.s3.vocabulary import Bucket, Sign, Vocabulary
    from penstock.protocols.credentials import Identity

__all__ = ["Route"]

_MOST_HOPS = 3
_MOST_REDIRECTS = 1024  # kept: a request that is given up leaves one behind


class Route:
    """A bucket's address at this moment.

    Attributes:
        base: What the paths of objects begin with, ending in ``/``.
        root: The path of the bucket itself.
        origin: ``scheme://host[:port]``.
        sign: Signs requests to ``origin``.
        redirects: By path, the origins that the next requests go to, each with a query of its own (without ``?``).

    """

    __slots__ = (
        "_bucket",
        "_hops",
        "_identity",
        "_is_member",
        "_region",
        "_vocabulary",
        "base",
        "origin",
        "redirects",
        "root",
        "sign",
    )

    def __init__(self, bucket: Bucket, region: str, identity: Identity[Any], vocabulary: Vocabulary) -> None:
        """Begin in ``region``."""
        self._bucket = bucket
        self._identity = identity
        self._vocabulary = vocabulary
        path = urlsplit(bucket.endpoint or "").path
        self.base = f"{path}/{bucket.name}/" if bucket.in_path else f"{path}/"
        self.root = self.base.rstrip("/") if bucket.in_path else self.base
        self.origin: str
        self.sign: Sign
        self.redirects: dict[str, list[tuple[str, str]]] = {}
        self._hops: dict[str, set[str]] = {}
        self._settle(region)
        self._is_member = (
            is_of_cluster(urlsplit(self.origin).hostname or "", bucket.cluster) if vocabulary.cluster else None
        )

    def url(self, key: str) -> str:
        """Return ``scheme://bucket/key``, as a user writes it."""
        return f"{self._bucket.scheme}://{self._bucket.shown or self._bucket.name}/{key}"

    def next(self, path: str, search: str = "") -> tuple[str, str, Sign]:
        """Return origin, query and signature of the next request for ``path``: redirected once, or the bucket's own."""
        pending = self.redirects.get(path)
        if not pending:
            self._hops.pop(path, None)
            return self.origin, search, self.sign
        origin, own = pending.pop()
        if not pending:
            del self.redirects[path]
        sign = self.sign if origin == self.origin else self._signer(urlsplit(origin).netloc)
        return origin, own or search, sign

    def presigned(self, method: str, key: str, expires_s: int, now: float) -> str:
        """Return the URL of an object with a signature in its query, by the credentials that are current."""
        host, name, path = urlsplit(self.origin).netloc, escape(key), self.base + escape(key)
        address = Address(self._bucket.name, name, host, self._region, method, path, expires_s, now)
        return f"{self.origin}{path}?{self._vocabulary.presigner(address, self._identity.current())}"

    def follow_region(self, region: str) -> bool:
        """Send later requests to ``region``; False where its endpoint lies outside the service's present domain.

        The host of an endpoint that the user gave stays: only the signature is for another region then.
        """
        if region != self._region:
            domain = self._vocabulary.domain
            if self._bucket.endpoint is None and domain(region) != domain(self._region):
                return False
            self._settle(region)
        return True

    def follow_redirect(self, key: str, location: str) -> bool:
        """Send the next request for ``key`` to the host of ``location``; False unless that is the same service's.

        A host of the same service is the user's own endpoint, or lies in the domain of the service's own endpoints
        where the user gave none. The query of ``location`` is not taken over. A cluster's gateway may redirect to up to
        three servers of its cluster, one to the next; there the query is kept.
        """
        path = self.base + escape(key) if key else self.root
        if self._is_member is not None:
            return self._follow_gateway(path, location, self._is_member)
        domain = "" if self._bucket.endpoint else self._vocabulary.domain(self._region)
        origin = redirected(self.origin + path, location.partition("?")[0], is_within(domain))
        if origin:
            self._redirect(path, origin, "")
        return bool(origin)

    def _follow_gateway(self, path: str, location: str, is_member: Callable[[str], bool]) -> bool:
        plain, _, search = location.partition("?")
        origin = redirected(self.origin + path, plain, is_member, cluster=True)
        hops = self._hops.setdefault(path, set())
        if not origin or len(hops | {origin}) > _MOST_HOPS:
            return False
        hops.add(origin)
        self._redirect(path, origin, query_string(dict(parse_qsl(search, keep_blank_values=True))))
        return True

    def _redirect(self, path: str, origin: str, search: str) -> None:
        if len(self.redirects) >= _MOST_REDIRECTS:
            self.redirects.clear()  # who loses one is redirected again
            self._hops.clear()
        self.redirects.setdefault(path, []).append((origin, search))

    def _settle(self, region: str) -> None:
        scheme, host = urlsplit(self._bucket.endpoint or self._vocabulary.endpoint(region))[:2]
        host = f"{self._bucket.name}.{host}" if self._bucket.virtual else host
        self._region = region
        self.origin = f"{scheme}://{host}"
        self.sign = self._signer(host)

    def _signer(self, host: str) -> Sign:
        return self._vocabulary.signer(self._bucket, host, self._region, self._identity.current)
