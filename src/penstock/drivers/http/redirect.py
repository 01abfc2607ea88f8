"""Which hosts an answer may send a request to: those of the service that the user named, and never from TLS to none."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from ipaddress import IPv4Address, IPv6Address

__all__ = ["is_of_cluster", "is_within", "redirected"]

_PORTS = {"http": 80, "https": 443}


def is_within(domain: str) -> Callable[[str], bool]:
    """Return a test of host names (lower case, no port): below ``domain``; no host passes where that is empty."""
    return lambda host: bool(domain) and host.endswith(f".{domain}")


def is_of_cluster(gateway: str, members: Iterable[str] = ()) -> Callable[[str], bool]:
    """Return a test of host names: whether a host is of the cluster whose gateway is ``gateway`` (both without port).

    It is where it is the gateway itself, lies in ``members`` (hosts, domains, networks such as ``10.0.0.0/16``) or,
    where none are given, in the gateway's own domain (``a.cluster.example`` and ``b.cluster.example``), or is a private
    address and the gateway's is one of the same 65,536.
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
    """Return the origin (``scheme://host[:port]``) that a redirect leads to; empty where it must not be followed.

    Followed is an absolute ``location`` for the very path and query of ``url`` on the same host and port, on the same
    host with TLS instead of none, or on a host of the ``service``, on the scheme's own port. Never followed is one from
    TLS to none, one with user information, and one to another path: that would be another object.

    In a ``cluster`` the port does not matter, nor how the path is escaped, nor the query, which is the caller's.
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
