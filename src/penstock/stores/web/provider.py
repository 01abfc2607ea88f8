"""``https://`` and ``http://``: files of web servers, read only."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass, field
from ipaddress import ip_address
from sys import maxsize
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.engine.contracts.driver import Abilities
from penstock.engine.contracts.limits import Limits
from penstock.errors import ConfigError, conceal
from penstock.stores.http.connect import connected
from penstock.stores.http.network import ca_file
from penstock.stores.provider import Opening, Provider
from penstock.stores.web import netrc
from penstock.stores.web.options import HTTPOptions

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from penstock.engine.contracts.driver import Driver
    from penstock.engine.contracts.exchange import Transport

__all__ = ["PROVIDER"]

_HOST = re.compile(r"(?:[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?\.?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?").fullmatch
_TELLING = re.compile(r"authorization|cookie|key|token|secret|password|signature", re.IGNORECASE).search


@dataclass(frozen=True, slots=True)
class _Settings:
    ca_file: str | None
    proxy: str | None = field(repr=False)  # may hold a password


def _resolve(options: HTTPOptions, environ: Mapping[str, str]) -> tuple[Hashable, Hashable]:
    settings = _Settings(ca_file(options.transport, environ), options.transport.proxy)
    return settings, netrc.digest(environ) if options.netrc else None


def _open(opening: Opening) -> tuple[Driver, Transport]:
    from penstock.stores.web.driver import Web

    lines = _lines(opening)
    driver = Web(opening.root, lines, _hint)
    driver.abilities = opening.provider.abilities
    endpoint = opening.root.rstrip("/")
    return driver, connected(opening, endpoint)


def _lines(opening: Opening) -> tuple[str, ...]:
    """Return the header lines with credentials; ``ConfigError`` if they would go unencrypted to another machine."""
    options, host = opening.options, urlsplit(opening.root).hostname or ""
    headers = {**(options.headers or {})}
    if options.token is not None:
        headers["Authorization"] = f"Bearer {options.token}"
    login = netrc.login(host, opening.environ) if options.netrc else (options.username, options.password)
    if login[0] is not None:
        headers["Authorization"] = f"Basic {b64encode(':'.join(login).encode()).decode()}"
    if opening.scheme == "http" and not _is_here(host) and (telling := [name for name in headers if _TELLING(name)]):
        message = f"{telling[0]} would be readable by anybody on the way: write https://{opening.bucket}/"
        raise ConfigError(f"credentials are sent over TLS only, and {message}", url=opening.root)
    conceal(*headers.values(), *filter(None, (options.token, *login)))
    return tuple([f"{name}: {value}" for name, value in headers.items()])


def _is_here(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _host_fault(bucket: str) -> str:
    """Return the fault of a host; its text may be a secret, so it is not quoted."""
    if not bucket.isascii():
        return "the host has letters that DNS does not have: write its ASCII form, xn--…"
    fault = "this cannot be a host: write https://host/path or https://host:port/path"
    if not _HOST(bucket):
        return fault
    try:
        return "" if urlsplit(f"//{bucket}").port != 0 else fault
    except ValueError:
        return fault


def _key_fault(key: str) -> str:
    if "#" in key:
        return "'#' begins a fragment, which is never sent to a server: write %23 in a name, or leave the fragment away"
    return ""


def _hint(url: str) -> str:
    """Return a suggestion of the intended URL after a refusal: the URL of an object store's object."""
    from penstock.stores.registry import own

    return next(filter(None, (each.advice(url) for each in own() if each is not PROVIDER)), "")


PROVIDER = Provider(
    name="the web server",
    schemes=("https", "http"),
    open=_open,
    bucket_fault=_host_fault,
    key_fault=_key_fault,
    # A page is a whole directory; most servers take URLs of 8 KiB, few of 16.
    limits=Limits(page_keys=maxsize, key_bytes=16 << 10),
    abilities=Abilities(digest=None, ranges=None),
    options=HTTPOptions,
    any_options=True,  # one end of a copy into a bucket
    resolve=_resolve,
    where="the URL",
    example="HTTPOptions(username=…, password=…)",
)
