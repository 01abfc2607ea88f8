"""Options of plain HTTP(S)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.errors import ConfigError
from penstock.options.parts import StoreOptions
from penstock.options.private import PUBLIC, HiddenMapping

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch
_VALUE = re.compile(r"[\t -~\x80-\xff]*").fullmatch  # Latin-1 without control characters
# Headers that Penstock sends itself, or that would change the bytes of an answer.
_OWN = {
    *("accept-encoding", "connection", "content-length", "expect", "host", "if-match", "if-modified-since"),
    *("if-none-match", "if-range", "if-unmodified-since", "range", "te", "transfer-encoding", "upgrade"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPOptions(StoreOptions):
    """Credentials for a web server (``https://``, ``http://``). They are sent to the host of the URL only.

    Attributes:
        token: Bearer token, sent as ``Authorization: Bearer …``; over TLS only.
        username: User name of basic authentication; with ``password``, over TLS only.
        password: Password of basic authentication.
        netrc: Take user name and password from the netrc file, as ``curl --netrc`` does: ``NETRC``, else ``~/.netrc``.
        headers: Headers of every request to the host of the URL, by name. They count as secrets. Those with a
            telling name (``Authorization``, ``Cookie``, a name with ``key``, ``token`` or ``secret``) need TLS.
        transport: HTTP options.
        retry: Retry options.
        read: Reading options.
        write: Writing options.
        cache: Cache of objects on this machine, so that reading them again needs no request.
        node: Resources shared with other processes of the machine.

    Example:
        >>> options = ps.HTTPOptions(token="secret-token", headers={"X-Purpose": "training"})
        >>> "secret-token" in repr(options)
        False
    """

    token: str | None = field(default=None, repr=False)
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    netrc: bool = field(default=False, metadata=PUBLIC)
    headers: Mapping[str, str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if (self.username is None) != (self.password is None):
            raise ConfigError("username and password go together: one of them is missing")
        ways = {"token": self.token, "username": self.username, "netrc": self.netrc or None}
        if len(given := [name for name, value in ways.items() if value is not None]) > 1:
            raise ConfigError(f"{' and '.join(given)} contradict one another: pass one of them")
        if self.username is not None and ":" in self.username:
            raise ConfigError("username holds a colon, which basic authentication cannot send")
        if self.token is not None and not (self.token and self.token.isascii() and self.token.isprintable()):
            raise ConfigError("token must be printable ASCII: it is a part of a header")
        if self.headers is not None:
            object.__setattr__(self, "headers", _check_headers(self.headers, authorized=bool(given)))


def _check_headers(headers: object, *, authorized: bool) -> HiddenMapping[str]:
    if not isinstance(headers, Mapping):
        raise ConfigError(f"headers must be a mapping of names to values, got {type(headers).__name__}")
    seen = set()
    for name, value in headers.items():
        if not isinstance(name, str) or not _NAME(name):
            raise ConfigError(f"{name!r} cannot be the name of a header")
        lower = name.lower()
        if lower in _OWN:
            raise ConfigError(f"the header {name} is set by Penstock and cannot be changed")
        if lower in seen:
            raise ConfigError(f"headers names {name} twice")
        if lower == "authorization" and authorized:
            raise ConfigError("headers has Authorization, which contradicts the other credentials: pass one of them")
        if not isinstance(value, str) or not _VALUE(value):
            raise ConfigError(f"the header {name} must have a value of Latin-1 text without line breaks")
        seen.add(lower)
    return HiddenMapping(headers)
