"""``https://`` and ``http://``: files of web servers, read only; credentials from options or the netrc file."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from netrc import NetrcParseError, netrc
from pathlib import Path
from sys import maxsize
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.engine.contracts.driver import Abilities, Limits
from penstock.engine.endpoint import is_here
from penstock.errors import ConfigError, InvalidURL, conceal
from penstock.stores.http.network import ca_file, make_transport
from penstock.stores.store import Opening, Store
from penstock.stores.web.options import HTTPOptions

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from penstock.engine.contracts.driver import Driver
    from penstock.engine.contracts.exchange import Transport

_HOST = re.compile(r"(?:[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?\.?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?").fullmatch
_CONSOLE = re.compile(
    r"(?:[a-z0-9-]+\.)?console\.(?:aws\.amazon|cloud\.google|aliyun)\.com(?:/|$)", re.IGNORECASE
).match
_TELLING = re.compile(r"authorization|cookie|key|token|secret|password|signature", re.IGNORECASE).search


@dataclass(frozen=True, slots=True)
class _Settings:
    ca_file: str | None
    proxy: str | None = field(repr=False)  # may hold a password
    asks: str = ""  # digest of what may select other bytes at the same URL


class Web(Store):
    """``https://`` and ``http://``: a web server. Its bucket is the host."""

    name = "the web server"
    schemes = ("https", "http")
    # A page is a whole directory; most servers take URLs of 8 KiB, few of 16.
    limits = Limits(page_keys=maxsize, key_bytes=16 << 10)
    abilities = Abilities(digest=None, ranges=None)
    options = HTTPOptions
    any_options = True  # one end of a copy into a bucket
    where = "the URL"
    example = "HTTPOptions(username=…, password=…)"

    def open(self, opening: Opening) -> tuple[Driver, Transport]:
        from penstock.stores.web.driver import WebDriver

        driver = WebDriver(opening.root, _lines(opening), self._hint)
        driver.abilities = self.abilities
        return driver, make_transport(opening, opening.root.rstrip("/"), self.where)

    def resolve(self, options: HTTPOptions, environ: Mapping[str, str]) -> tuple[Hashable, Hashable]:
        """Return settings, and a digest of the netrc file if it is used."""
        # With other headers or for another user, a URL may name other bytes, which a cache must not mix up. Secrets are
        # left out: they are renewed.
        headers = {name.lower(): value for name, value in (options.headers or {}).items() if not _TELLING(name)}
        asks = sha256(repr((options.username, sorted(headers.items()))).encode()).hexdigest()
        settings = _Settings(
            ca_file(options.transport, environ),
            options.transport.proxy,
            asks if headers or options.username is not None else "",
        )
        return settings, digest(environ) if options.netrc else None

    def split(self, rest: str) -> tuple[str, str]:
        if _CONSOLE(rest):
            hint = self._hint(f"https://{rest}") or "write the URL of the bucket, such as s3://bucket/prefix/"
            raise InvalidURL(f"this is a page of a provider's console, not an object; {hint}")
        return super().split(rest)

    def bucket_fault(self, bucket: str) -> str:
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

    def key_fault(self, key: str) -> str:
        fault = (
            "'#' begins a fragment, which is never sent to a server: write %23 in a name, or leave the fragment away"
        )
        return fault if "#" in key else ""

    def _hint(self, url: str) -> str:
        """Return a suggestion of the intended URL after a refusal: the URL of an object store's object."""
        from penstock.stores.urls import own_stores

        return next(filter(None, (each.advice(url) for each in own_stores() if each is not self)), "")


def _lines(opening: Opening) -> tuple[str, ...]:
    """Return the header lines with credentials; ``ConfigError`` if they would go unencrypted to another machine."""
    options, host = opening.options, urlsplit(opening.root).hostname or ""
    headers = {**(options.headers or {})}
    if options.token is not None:
        headers["Authorization"] = f"Bearer {options.token}"
    user = login(host, opening.environ) if options.netrc else (options.username, options.password)
    if user[0] is not None:
        headers["Authorization"] = f"Basic {b64encode(':'.join(user).encode()).decode()}"
    if (
        opening.scheme == "http"
        and not is_here(opening.root)
        and (telling := [name for name in headers if _TELLING(name)])
    ):
        message = f"{telling[0]} would be sent unencrypted: write https://{opening.bucket}/"
        raise ConfigError(f"credentials are sent over TLS only, and {message}", url=opening.root)
    conceal(*headers.values(), *filter(None, (options.token, *user)))
    return tuple([f"{name}: {value}" for name, value in headers.items()])


def login(host: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return user name and password of ``host`` (no port) in the netrc file: ``NETRC``, else ``~/.netrc``."""
    path = _find_netrc(environ)
    try:
        found = netrc(path).authenticators(host)
    except FileNotFoundError:
        raise ConfigError(f"netrc=True, but {path} does not exist: write it, or set NETRC") from None
    except (NetrcParseError, OSError, ValueError) as error:
        where = f" in line {error.lineno}" if isinstance(error, NetrcParseError) else ""
        # The error's words may quote a password.
        raise ConfigError(f"netrc=True, but {path} cannot be read{where}") from None
    if found is None:
        raise ConfigError(f"netrc=True, but {path} has neither the machine {host} nor a default")
    return found[0], found[2] or ""


def digest(environ: Mapping[str, str]) -> bytes:
    """Return a digest that changes when the file names other credentials; none can be read from it."""
    path = _find_netrc(environ)
    try:
        return sha256(path.read_bytes()).digest()
    except OSError:
        return b""


def _find_netrc(environ: Mapping[str, str]) -> Path:
    named = environ.get("NETRC")
    return Path(named).expanduser() if named else Path(os.path.expanduser("~"), ".netrc")  # noqa: PTH111  HOME may be unset
