"""Which hosts an answer may send a request to: those of the service that the user named, and never from TLS to none."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["is_within", "redirected"]

_PORTS = {"http": 80, "https": 443}


def is_within(domain: str) -> Callable[[str], bool]:
    """Return a test of host names (lower case, no port): below ``domain``; no host passes where that is empty."""
    return lambda host: bool(domain) and host.endswith(f".{domain}")


def redirected(url: str, location: str, service: Callable[[str], bool]) -> str:
    """Return the origin (``scheme://host[:port]``) that a redirect leads to; empty where it must not be followed.

    Followed is an absolute ``location`` for the very path and query of ``url`` on the same host and port, on the same
    host with TLS instead of none, or on a host of the ``service``, on the scheme's own port. Never followed is one from
    TLS to none, one with user information, and one to another path: that would be another object.
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
    if (there.path, there.query) != (here.path, here.query):
        return ""
    same = host == (here.hostname or "").lower()
    secured = here.scheme == "http" and there.scheme == "https" and port == _PORTS["https"]
    if (same and (port == present or secured)) or (service(host) and port == _PORTS[there.scheme]):
        return f"{there.scheme}://{there.netloc.lower()}"
    return ""
