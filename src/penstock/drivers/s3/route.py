"""Where a bucket's requests go: the host and the signature, of the service that the user named and of no other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from penstock.drivers.http.escape import escape
from penstock.drivers.http.redirect import is_within, redirected

if TYPE_CHECKING:
    from penstock.drivers.s3.vocabulary import Bucket, Sign, Vocabulary
    from penstock.protocols.credentials import Identity

__all__ = ["Route"]

_MOST_REDIRECTS = 1024  # kept: a request that is given up leaves one behind


class Route:
    """A bucket's address at this moment.

    Attributes:
        base: What the paths of objects begin with, ending in ``/``.
        root: The path of the bucket itself.
        origin: ``scheme://host[:port]``.
        sign: Signs requests to ``origin``.
        redirects: By path, the origin that the next request goes to.

    """

    __slots__ = ("_bucket", "_identity", "_region", "_vocabulary", "base", "origin", "redirects", "root", "sign")

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
        self.redirects: dict[str, str] = {}
        self._settle(region)

    def url(self, key: str) -> str:
        """Return ``scheme://bucket/key``, as a user writes it."""
        return f"{self._bucket.scheme}://{self._bucket.name}/{key}"

    def next(self, path: str) -> tuple[str, Sign]:
        """Return origin and signature of the next request for ``path``: redirected once, or the bucket's own."""
        origin = self.redirects.pop(path, self.origin)
        return origin, self.sign if origin == self.origin else self._signer(urlsplit(origin).netloc)

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
        where the user gave none. The query of ``location`` is not taken over.
        """
        path = self.base + escape(key)
        domain = "" if self._bucket.endpoint else self._vocabulary.domain(self._region)
        origin = redirected(self.origin + path, location.partition("?")[0], is_within(domain))
        if origin:
            if len(self.redirects) >= _MOST_REDIRECTS:
                self.redirects.clear()  # who loses one is redirected again
            self.redirects[path] = origin
        return bool(origin)

    def _settle(self, region: str) -> None:
        scheme, host = urlsplit(self._bucket.endpoint or self._vocabulary.endpoint(region))[:2]
        host = f"{self._bucket.name}.{host}" if self._bucket.virtual else host
        self._region = region
        self.origin = f"{scheme}://{host}"
        self.sign = self._signer(host)

    def _signer(self, host: str) -> Sign:
        return self._vocabulary.signer(self._bucket, host, self._region, self._identity.current)
