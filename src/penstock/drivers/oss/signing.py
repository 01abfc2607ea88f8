"""OSS's signature version 4 (OSS4-HMAC-SHA256), by the letter of its documentation; SigV4's relative, not its copy.

Differences from SigV4: the path that is signed begins with the bucket wherever the bucket stands in the URL; ``host``
is not signed; of the headers only ``content-type``, ``content-md5`` and ``x-oss-*`` are signed unless named as
additional; an empty value of the query is signed without ``=``; the body is ``UNSIGNED-PAYLOAD``, always.
Source: "Include a V4 signature in the header", OSS API reference; the SDKs' own vectors are in the tests.
"""

from __future__ import annotations

import hmac
import re
import time
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from penstock.drivers.http.escape import query_string

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.drivers.s3.presigning import Address
    from penstock.drivers.s3.vocabulary import Bucket
    from penstock.protocols.credentials import Credentials

__all__ = ["PUT_HEADERS", "Signer", "oss_query"]

_ALGORITHM = "OSS4-HMAC-SHA256"
_PAYLOAD = "UNSIGNED-PAYLOAD"
_PADS = (0x36, 0x5C)  # RFC 2104: what the key is combined with, for the inner hash and for the outer
PUT_HEADERS = {"content-type": "application/octet-stream"}  # of a request to an address that is signed for PUT
_SIGNED = ("content-type", "content-md5")
_without_value = re.compile("=(?=&|$)").sub


class _Form(NamedTuple):
    """What all requests with the same headers have in common while stamp and credentials last: all but the values.

    Attributes:
        names: The headers that differ, in the order of their names.
        canonical: The canonical headers and the additional names, with ``%s`` for each value.
        lines: The header lines that are always the same.
        proof: The ``Authorization`` line up to the signature.

    """

    names: tuple[str, ...]
    canonical: str
    lines: tuple[str, ...]
    proof: str


class Signer:
    """Signs requests to one bucket in one region with whatever credentials are current."""

    __slots__ = (
        "_base",
        "_clock",
        "_credentials",
        "_day",
        "_forms",
        "_headers",
        "_inner",
        "_outer",
        "_preamble",
        "_region",
        "_resource",
        "_scope",
        "_second",
        "_signed_by",
        "_stamp",
    )

    def __init__(
        self,
        bucket: Bucket,
        region: str,
        credentials: Callable[[], Credentials | None],
        clock: Callable[[], float] = time.time,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Sign for ``bucket``, with ``headers`` in each request; no ``credentials``, no signature."""
        self._headers = headers or {}
        path = urlsplit(bucket.endpoint or "").path
        self._base = len(f"{path}/{bucket.name}/" if bucket.in_path else f"{path}/")
        self._resource = f"/{bucket.name}/"
        self._region = region
        self._credentials = credentials
        self._clock = clock
        self._second, self._stamp, self._day, self._scope, self._preamble = 0, "", "", "", ""
        self._signed_by: Credentials | None = None
        self._inner = self._outer = sha256()
        self._forms: dict[tuple[str, ...], _Form] = {}

    def sign(self, method: str, path: str, query: str, headers: Mapping[str, str], digest: str = "") -> tuple[str, ...]:
        """Return the header lines to send: ``headers`` (lower-case names) and, unless anonymous, their signature.

        All of ``headers`` are signed. ``digest`` is not: OSS takes no other than ``content-md5``, which is a header.
        """
        del digest
        credentials = self._credentials()
        lines = [f"{name}: {value}" for name, value in headers.items()]
        if credentials is None:
            return tuple(lines)
        now = int(self._clock())
        if now != self._second or credentials is not self._signed_by:
            self._refresh(now, credentials)
        names = tuple(headers)
        form = self._forms.get(names)
        if form is None:
            form = self._forms[names] = self._form(names, credentials)
        search = _without_value("", query) if query else ""
        values = tuple([headers[name] for name in form.names])
        canonical = f"{method}\n{self._resource}{path[self._base :]}\n{search}\n{form.canonical % values}\n{_PAYLOAD}"
        # HMAC by hand, as in drivers.s3.signing: copies of the two keyed halves keep the GIL and take half the time.
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(f"{self._preamble}{sha256(canonical.encode('latin-1')).hexdigest()}".encode())
        outer.update(inner.digest())
        return *form.lines, *lines, f"{form.proof}{outer.hexdigest()}"

    def _refresh(self, now: int, credentials: Credentials) -> None:
        """Derive what lasts: the stamp for a second, the signing key for a day or a set of credentials."""
        self._second, self._stamp = now, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        self._forms.clear()
        day = self._stamp[:8]
        if day != self._day or credentials is not self._signed_by:
            key = _day_key(credentials.secret_key, day, self._region)
            self._inner, self._outer = (sha256(bytes(byte ^ pad for byte in key.ljust(64, b"\0"))) for pad in _PADS)
            self._scope = f"{day}/{self._region}/oss/aliyun_v4_request"
            self._day, self._signed_by = day, credentials
        self._preamble = f"{_ALGORITHM}\n{self._stamp}\n{self._scope}\n"

    def _form(self, names: tuple[str, ...], credentials: Credentials) -> _Form:
        fixed = {"x-oss-content-sha256": _PAYLOAD, "x-oss-date": self._stamp, **self._headers}
        if credentials.token:
            fixed["x-oss-security-token"] = credentials.token
        differing = tuple(sorted(names))
        additional = ";".join(each for each in differing if not (each in _SIGNED or each.startswith("x-oss-")))
        headers = {name: value.replace("%", "%%") for name, value in fixed.items()} | dict.fromkeys(differing, "%s")
        canonical = "".join(f"{name.replace('%', '%%')}:{headers[name]}\n" for name in sorted(headers))
        credential = f"{credentials.access_key}/{self._scope}"
        named = f",AdditionalHeaders={additional}" if additional else ""
        return _Form(
            differing,
            f"{canonical}\n{additional.replace('%', '%%')}",
            tuple([f"{name}:{value}" for name, value in fixed.items()]),
            f"Authorization:{_ALGORITHM} Credential={credential}{named},Signature=",
        )


def oss_query(address: Address, credentials: Credentials) -> str:
    """Return the query that authorises one address. Source: "Include a V4 signature in the URL", OSS API reference."""
    day = address.stamp[:8]
    scope = f"{day}/{address.region}/oss/aliyun_v4_request"
    fields = {
        "x-oss-signature-version": _ALGORITHM,
        "x-oss-credential": f"{credentials.access_key}/{scope}",
        "x-oss-date": address.stamp,
        "x-oss-expires": str(address.expires_s),
    }
    if credentials.token:
        fields["x-oss-security-token"] = credentials.token
    query = query_string(fields)
    # OSS signs a content type wherever one is sent, and many clients send one of their own: this one is agreed upon.
    lines = "".join(f"{name}:{value}\n" for name, value in PUT_HEADERS.items()) if address.method == "PUT" else ""
    canonical = f"{address.method}\n/{address.bucket}/{address.key}\n{query}\n{lines}\n\n{_PAYLOAD}"
    text = f"{_ALGORITHM}\n{address.stamp}\n{scope}\n{sha256(canonical.encode('latin-1')).hexdigest()}"
    key = _day_key(credentials.secret_key, day, address.region)
    return f"{query}&x-oss-signature={hmac.digest(key, text.encode(), 'sha256').hex()}"


def _day_key(secret: str, day: str, region: str) -> bytes:
    key = f"aliyun_v4{secret}".encode()
    for part in (day, region, "oss", "aliyun_v4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
