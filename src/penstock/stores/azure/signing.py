"""Authorisation of requests to Azure Blob Storage: account key, shared access signature (SAS), bearer token, nothing.

Sources: "Authorize with Shared Key" and "Create a service SAS" of Microsoft's reference of the Blob service's REST API.
"""

from __future__ import annotations

import time
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from urllib.parse import parse_qs, quote

from penstock.engine.contracts.credentials import BearerToken
from penstock.errors import Unsupported
from penstock.stores.http.headers import query_string

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Of the service's protocol: supports bearer tokens for sources of copies, and blocks of 4,000 MiB.
VERSION = "2023-11-03"
# The order of the standard headers in the signed text.
_SLOTS = (
    *("content-encoding", "content-language", "content-length", "content-md5", "content-type", "date"),
    *("if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range"),
)
_PADS = (0x36, 0x5C)  # RFC 2104: XORed with the key, for the inner and the outer hash
_SOURCE_S = 900.0  # lifetime of the URL of a copy's source; each attempt has a new one


@dataclass(frozen=True, slots=True)
class Container:
    """Location of a container.

    Attributes:
        endpoint: ``scheme://host[:port][/path]`` of the account's blob service.
        root: Prefix of its objects' URLs, in messages; ends in ``/``.
    """

    name: str
    account: str
    endpoint: str
    root: str


class _Lasting:
    """Authorization that Penstock cannot renew: only the user can get a new signature."""

    __slots__ = ()

    @property
    def token(self) -> str:
        """Empty: neither a key nor a signature is temporary for Penstock."""
        return ""

    @property
    def expires_at(self) -> None:
        """None: a key does not expire, and the expiry in the query of a signature is not read."""


@dataclass(frozen=True, slots=True)
class AccountKey(_Lasting):
    """One of the two keys of a storage account, in base64, and its origin for messages. The repr does not show it."""

    key: str = field(repr=False)
    found_in: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class SharedAccess(_Lasting):
    """A shared access signature (SAS). The repr does not show it.

    Attributes:
        query: Parameters that authorise a URL when added to its query, without ``?``.
        found_in: Origin of the signature, for messages: names and paths only.
        signature: The secret in it, which no message may quote in any form.
    """

    query: str = field(repr=False)
    found_in: str = field(default="", compare=False)
    signature: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "signature", parse_qs(self.query).get("sig", [""])[0])


Authorization: TypeAlias = AccountKey | SharedAccess | BearerToken


class _SharedKeyForm(NamedTuple):
    """Common parts of all requests with the same header names: the values to sign, and the text around them."""

    values: Callable[[Mapping[str, str]], tuple[str, ...]]
    text: str


class AzureSigner:
    """Authoriser of requests to one container, with the current credentials."""

    def __init__(
        self,
        container: Container,
        credentials: Callable[[], Authorization | None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._account = container.account
        self._container = container
        self._credentials = credentials
        self._clock = clock
        self._second, self._stamp = 0, ""
        self._fixed: tuple[str, ...] = ()
        self._signed_by: AccountKey | None = None
        self._inner = self._outer = sha256()
        self._forms: dict[tuple[str, ...], _SharedKeyForm] = {}

    def sign(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], length: int = 0
    ) -> tuple[str, tuple[str, ...]]:
        """Return the query to send (with its ``?``, or empty) and the header lines: ``headers`` and the authorisation.

        ``path`` must be sent exactly as given, ``query`` is not escaped yet; ``headers`` have lower-case names and
        ``trim_headers`` values; ``length`` is the body's, in bytes.
        """
        credentials = self._credentials()
        now = int(self._clock())
        if now != self._second:
            self._second, self._stamp = now, time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(now))
            self._fixed = f"x-ms-version:{VERSION}", f"x-ms-date:{self._stamp}"
        search = f"?{query_string(query)}" if query else ""
        lines = [f"{name}: {value}" for name, value in headers.items()]
        if isinstance(credentials, AccountKey):
            signed = self._signature(credentials, self._text(method, path, query, headers, length))
            return search, (*self._fixed, *lines, f"Authorization:SharedKey {self._account}:{signed}")
        if isinstance(credentials, BearerToken):
            return search, (*self._fixed, *lines, f"Authorization:Bearer {credentials.token}")
        if credentials is not None:
            search = f"{search}&{credentials.query}" if search else f"?{credentials.query}"
        return search, (*self._fixed, *lines)

    def source(self, key: str, url: str) -> dict[str, str]:
        """Return the headers that let the service read the source of a copy: for an account key, a signed SAS."""
        credentials = self._credentials()
        if isinstance(credentials, AccountKey):
            credentials = self._granted(credentials, key, url, "r", self._clock() + _SOURCE_S)
        if isinstance(credentials, SharedAccess):
            url = f"{url}?{credentials.query}"
        headers = {"x-ms-copy-source": url}
        if isinstance(credentials, BearerToken):
            headers["x-ms-copy-source-authorization"] = f"Bearer {credentials.token}"
        return headers

    def granted(self, key: str, url: str, permissions: str, until: float) -> str:
        """Return the query that lets anyone use an object at ``url`` until a time, in seconds since the epoch."""
        credentials = self._credentials()
        if not isinstance(credentials, AccountKey):
            how = {SharedAccess: "a shared access signature cannot sign URLs", BearerToken: "a token cannot sign URLs"}
            reason = how.get(type(credentials), "anonymous access cannot sign URLs")
            raise Unsupported(f"{reason}: pass the account's key (account_key, or a connection string with it)")
        return self._granted(credentials, key, url, permissions, until).query

    def _granted(self, credentials: AccountKey, key: str, url: str, permissions: str, until_s: float) -> SharedAccess:
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(until_s))
        schemes = "https" if url.startswith("https:") else "https,http"
        resource = f"/blob/{self._account}/{self._container.name}/{key}"
        # Fields: permissions, start, expiry, resource, identifier, address, protocol, version, kind, snapshot,
        # encryption scope, and five headers of the answer.
        text = "\n".join((permissions, "", until, resource, "", "", schemes, VERSION, "b", *[""] * 7))
        fields = {"sp": permissions, "se": until, "spr": schemes, "sv": VERSION, "sr": "b"}
        fields["sig"] = self._signature(credentials, text)
        return SharedAccess("&".join(f"{name}={quote(value, safe='')}" for name, value in fields.items()))

    def _text(self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], length: int) -> str:
        names = tuple(headers)
        form = self._forms.get(names)
        if form is None:
            form = self._forms[names] = _build_form(names)
        values = form.values({**headers, "content-length": str(length or ""), "x-ms-date": self._stamp})
        asked = "".join(f"\n{name}:{query[name]}" for name in sorted(query)) if query else ""
        return f"{method}\n{form.text % values}/{self._account}{path}{asked}"

    def _signature(self, credentials: AccountKey, text: str) -> str:
        if credentials is not self._signed_by:
            key = b64decode(credentials.key)
            key = (sha256(key).digest() if len(key) > 64 else key).ljust(64, b"\0")  # noqa: PLR2004  a block of SHA-256
            self._inner, self._outer = (sha256(bytes(byte ^ pad for byte in key)) for pad in _PADS)
            self._signed_by = credentials
        # HMAC by hand: copying the two keyed hashes takes half the time of copying an hmac object, and keeps the GIL.
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(text.encode())
        outer.update(inner.digest())
        return b64encode(outer.digest()).decode()


def _build_form(names: tuple[str, ...]) -> _SharedKeyForm:
    # The service's order of header names: a locale's, without hyphens, ``_`` before digits.
    own = sorted(
        (*(name for name in names if name.startswith("x-ms-")), "x-ms-date", "x-ms-version"),
        key=lambda name: name.replace("-", "").replace("_", "!"),
    )
    slots = [name for name in _SLOTS if name in names or name == "content-length"]
    standard = "".join("%s\n" if name in slots else "\n" for name in _SLOTS)
    lines = "".join(f"{name}:{VERSION if name == 'x-ms-version' else '%s'}\n" for name in own)
    picked = (*slots, *(name for name in own if name != "x-ms-version"))
    return _SharedKeyForm(itemgetter(*picked), standard + lines)
