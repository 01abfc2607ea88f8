"""Endpoint URLs: validation, normalization, and the addressing style of a bucket."""

from __future__ import annotations

import ipaddress
import re
from typing import Literal
from urllib.parse import urlsplit

from penstock.errors import ConfigError

_DEFAULT_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\.?")
_AWS = re.compile(r"\.amazonaws\.com(\.cn)?$")
# A path as it is signed: nothing to escape, no dot segments.
_PATH = re.compile(r"(/(?!\.\.?(/|$))([A-Za-z0-9._~-]|%[0-9A-F]{2})+)*")
_NAT64, _LOCAL_NAT64 = ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def normal(text: str, named: str) -> str:
    """Return an endpoint as ``scheme://host[:port][/path]``: no trailing slash, no default port, the host lower case.

    ConfigError for another URL, with a query, fragment, user information or a path that would have to be escaped; it
    blames ``named`` (where the value came from) and does not quote possible secrets.
    """
    if fault := _fault(text):
        message = f"{named} {fault}; an endpoint looks like https://host, http://host:9000 or https://host/path"
        raise ConfigError(message)
    parts = urlsplit(text)
    host = str(parts.hostname)
    host = f"[{host}]" if ":" in host else host
    port = "" if parts.port in (None, _DEFAULT_PORTS[parts.scheme]) else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}"


def path_style(bucket: str, addressing: Literal["path", "virtual"], endpoint: str | None) -> bool:
    """Return whether this bucket goes into the path (True) or into the host (False). ``endpoint=None`` is AWS.

    Path style replaces virtual addressing where that cannot work: the endpoint is an IP address; the bucket's name is
    not a host name (capitals, ``_``, over-long labels); or it has dots under TLS, where a wildcard certificate covers
    one label only. ConfigError if the endpoint's path ends in the bucket, which would be there twice.
    """
    if endpoint is not None and endpoint.endswith(f"/{bucket}") and urlsplit(endpoint).path:
        message = f"the endpoint must not end in the bucket, {bucket!r}: name it only in the URL, s3://bucket/key"
        raise ConfigError(message)
    if addressing == "path":
        return True
    if endpoint is not None and _is_address(str(urlsplit(endpoint).hostname)):
        return True
    labels = bucket.split(".")
    tls = endpoint is None or endpoint.startswith("https:")
    return (tls and len(labels) > 1) or not all(_LABEL.fullmatch(label) for label in labels)


def is_here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    return _is_address(host) and ipaddress.ip_address(host).is_loopback


def is_public(address: str) -> bool:
    """Return whether an address is a public internet address: not loopback, private, link-local, multicast or invalid.

    An IPv4 address within an IPv6 address (mapped, 6to4, NAT64) is judged as IPv4.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if inner is None and found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None:
            found = inner
    return found.is_global and not found.is_multicast and found not in _LOCAL_NAT64


def _fault(text: str) -> str:
    # urlsplit drops tabs and line breaks silently, and reads the port only when asked.
    if not text.isascii() or any(char <= " " or char == "\x7f" for char in text):
        return "holds a space, a line break or a character outside ASCII"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return "is not a URL"
    host, path = parts.hostname or "", parts.path.rstrip("/")
    wrong = {
        "holds credentials: pass access_key and secret_key instead": "@" in text,
        "must start with http:// or https://": parts.scheme not in _DEFAULT_PORTS,
        "has no valid host and port": port == 0 or not (_HOST.fullmatch(host) or _is_address(host)),
        "has a query or a fragment": "?" in text or "#" in text,
        "has a path on AWS: the bucket belongs in the URL, s3://bucket/key": bool(path) and _AWS.search(host),
        "has a path that is not as requests have it: A-Z a-z 0-9 . _ ~ - and %XX between slashes, no dots alone": (
            not _PATH.fullmatch(path)
        ),
    }
    return next((fault for fault, so in wrong.items() if so), "")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return "%" not in host
