"""Route of a bucket's requests: host and signature, only of the service that the user named."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from penstock.stores.http.escape import escape, query_string
from penstock.stores.s3.presigning import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from ipaddress import IPv4Address, IPv6Address

    from penstock.engine.contracts.credentials import Identity
    from penstock.stores.s3.vocabulary import Bucket, Sign, Vocabulary

__all__ = ["Route", "is_of_cluster", "is_within", "redirected"]

_MOST_HOPS = 3
# Redirects kept; a request that is given up leaves an unused one.
_MOST_REDIRECTS = 1024


class Route:
    """Current address of a bucket.

    Attributes:
        base: Prefix of the paths of objects, ending in ``/``.
        root: Path of the bucket itself.
        origin: ``scheme://host[:port]``.
        sign: Signs requests to ``origin``.
        redirects: By path, the origins of the next requests, each with the query to send there (without ``?``).

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
        """Start with the endpoint and the signature of ``region``."""
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
        """Return origin, query and signature of the next request for ``path``: a redirect's once, else the bucket's."""
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
        """Return an object's URL with a signature in its query, made with the current credentials."""
        host, name, path = urlsplit(self.origin).netloc, escape(key), self.base + escape(key)
        address = Address(self._bucket.name, name, host, self._region, method, path, expires_s, now)
        return f"{self.origin}{path}?{self._vocabulary.presigner(address, self._identity.current())}"

    def follow_region(self, region: str) -> bool:
        """Send later requests to ``region``; return False if its endpoint is outside the service's current domain.

        An endpoint that the user gave keeps its host; only the signature changes its region.
        """
        if region != self._region:
            domain = self._vocabulary.domain
            if self._bucket.endpoint is None and domain(region) != domain(self._region):
                return False
            self._settle(region)
        return True

    def follow_redirect(self, key: str, location: str) -> bool:
        """Send the next request for ``key`` to the host of ``location``; return False unless it is the same service's.

        Hosts of the same service are the user's own endpoint, or, if the user gave none, those in the domain of the
        service's own endpoints. The query of ``location`` is dropped. A cluster's gateway may redirect up to three
        times, from one server of its cluster to the next; there the query is kept.
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
            # A request that loses its redirect is redirected again.
            self.redirects.clear()
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


_PORTS = {"http": 80, "https": 443}


def is_within(domain: str) -> Callable[[str], bool]:
    """Return a test for host names (lower case, no port) below ``domain``; with an empty domain, no host passes."""
    return lambda host: bool(domain) and host.endswith(f".{domain}")


def is_of_cluster(gateway: str, members: Iterable[str] = ()) -> Callable[[str], bool]:
    """Return a test for host names of the cluster whose gateway is ``gateway`` (both without port).

    A host belongs to the cluster if it is the gateway itself or matches ``members`` (hosts, domains, networks such as
    ``10.0.0.0/16``). Without members, a host belongs to it in the gateway's own domain (``a.cluster.example`` and
    ``b.cluster.example``), or if both have private addresses in the same /16 (IPv6: /64).
    """
    named = tuple(members) or _neighbours(gateway)
    domains = tuple(f".{each}" for each in named if "/" not in each)
    networks = [ip_network(each, strict=False) for each in named if "/" in each]

    def is_member(host: str) -> bool:
        address = _address(host)
        if host == gateway or address is None:
            return host == gateway or f".{host}".endswith(domains)
        return any(address in network for network in networks) or host in named

    return is_member


def _neighbours(gateway: str) -> tuple[str, ...]:
    address = _address(gateway)
    if address is None:
        _, _, domain = gateway.partition(".")
        return (domain,) if "." in domain else ()
    if address.is_private:
        return (f"{gateway}/{16 if address.version == 4 else 64}",)  # noqa: PLR2004  IPv4
    return ()


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def redirected(url: str, location: str, service: Callable[[str], bool], *, cluster: bool = False) -> str:
    """Return the origin (``scheme://host[:port]``) that a redirect leads to; empty if it must not be followed.

    An absolute ``location`` with the same path and query as ``url`` is followed to the same host and port, to the same
    host with TLS instead of none, or to a host of the ``service`` on the scheme's default port. A redirect from TLS to
    none, with user information, or to another path, which would be another object, is never followed.

    In a ``cluster``, the port and the escaping of the path do not matter; the query is the caller's.
    """
    try:
        here, there = urlsplit(url), urlsplit(location)
        port, present = there.port or _PORTS.get(there.scheme, 0), here.port or _PORTS.get(here.scheme, 0)
        host = (there.hostname or "").lower()
    except ValueError:
        return ""
    if there.scheme not in _PORTS or not host or "@" in there.netloc or not there.netloc.isascii():
        return ""
    if here.scheme == "https" != there.scheme:
        return ""
    if (there.path, there.query) != (here.path, here.query) and not (
        cluster and unquote(there.path) == unquote(here.path)
    ):
        return ""
    same = host == (here.hostname or "").lower()
    secured = here.scheme == "http" and there.scheme == "https" and port == _PORTS["https"]
    if (same and (port == present or secured)) or (service(host) and (cluster or port == _PORTS[there.scheme])):
        return f"{there.scheme}://{there.netloc.lower()}"
    return ""
