"""Code tables: the errors for a store's codes and HTTP statuses, and the repairs that let a retry succeed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from html import unescape
from typing import TYPE_CHECKING, Literal

from penstock.errors import (
    Bug,
    ConfigError,
    Conflict,
    Forbidden,
    NoSpace,
    NotFound,
    PenstockError,
    PreconditionFailed,
    Throttled,
    TimedOut,
    Transient,
    Truncated,
    Unauthenticated,
    Unsupported,
    Unusable,
)
from penstock.stores.http.headers import parse_retry_after

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.engine.contracts.exchange import Response

__all__ = ["STATUSES", "Codes", "Meaning", "Refusal"]


@dataclass(frozen=True, slots=True)
class Meaning:
    """Row of a code table.

    Attributes:
        error: Class of the error to raise.
        advice: Text after the code in the message: how to fix the problem.
        renews: The credentials have expired: load new ones and send the request again.
        region: The answer may name the bucket's region: follow it.
        redirect: The answer may name another host of the same service in ``Location``: follow it.
        missing: Subject of a ``NotFound``, if the code tells it.

    """

    error: type[PenstockError]
    advice: str = ""
    renews: bool = False
    region: bool = False
    redirect: bool = False
    missing: Literal["", "object", "bucket"] = ""


_ELSEWHERE = "; the server points elsewhere: check {where}"
_WANTS_TLS = "; the server wants TLS: write https:// in {endpoint}"
_TOO_LARGE = "; larger than the store allows"
_NOT_OFFERED = "; the store does not offer this"

# For answers without a code, or with a code that the dialect's table lacks.
STATUSES: Mapping[int, Meaning] = {
    301: Meaning(ConfigError, _ELSEWHERE, redirect=True),
    302: Meaning(ConfigError, _ELSEWHERE, redirect=True),
    307: Meaning(ConfigError, _ELSEWHERE, redirect=True),
    308: Meaning(ConfigError, _ELSEWHERE, redirect=True),
    400: Meaning(Unusable),
    401: Meaning(Unauthenticated, "; check the credentials, see docs/credentials.md"),
    403: Meaning(
        Forbidden, "; wrong credentials, or no permission for this key: without one to list, a missing key is 403, too"
    ),
    404: Meaning(NotFound, "; no such key, or no such bucket: check both, and {where}"),
    405: Meaning(Unsupported, _NOT_OFFERED),
    408: Meaning(TimedOut),
    409: Meaning(Conflict),
    411: Meaning(Bug),
    412: Meaning(PreconditionFailed),
    413: Meaning(Unusable, _TOO_LARGE),
    416: Meaning(Truncated, "; the object ends before the range begins"),
    425: Meaning(Transient),
    429: Meaning(Throttled),
    499: Meaning(Transient),  # nginx: the connection closed under the request
    501: Meaning(Unsupported, _NOT_OFFERED),
    502: Meaning(Transient),
    503: Meaning(Throttled),
    504: Meaning(TimedOut),
    507: Meaning(NoSpace, "; the store is full"),
}

_CODE = re.compile(rb"<Code>\s*([A-Za-z0-9.]{1,64})\s*</Code>")
_PLAIN_CODE = re.compile(r"[A-Za-z0-9.]{1,64}").fullmatch
_MESSAGE = re.compile(rb"<Message>([^<]{1,300})")
# Answers of nginx, Apache, lighttpd and Go servers to plain HTTP where a TLS handshake should begin.
_PLAIN_HTTP = re.compile(rb"plain HTTP request|speaking plain HTTP|HTTP request to an HTTPS server")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Refusal as an error, with the table row that it matched.

    Attributes:
        error: Error to raise.
        meaning: Row of the table.
        coded: The row was found by the store's code, not by the HTTP status.
        region: Region that the answer names; empty if it names none.

    """

    error: PenstockError
    meaning: Meaning
    coded: bool
    region: str

    def instead(self, error: PenstockError) -> Refusal:
        """Return the refusal with a more exact error, which keeps the store's code."""
        error.code = self.error.code
        return replace(self, error=error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Codes:
    """Code table of one dialect.

    Attributes:
        service: Name of the store in messages, such as ``S3``.
        codes: Rows by the store's own codes.
        statuses: Rows by HTTP status.
        header: Header with the code for answers without a body (HEAD); empty for stores without one.
        body_of: Returns the error's XML, for stores that put it into a header of answers without a body.
        region_of: Returns the region that an answer names, empty if it names none. The text is not trusted
            and becomes part of a host name: letters, digits and hyphens only.
        region_advice: Advice if the answer names a region, with ``{region}``. It applies to ``ConfigError`` rows and
            to ``Forbidden`` rows with ``region``, which then become ``ConfigError``.
        where: Settings that locate the store, option and variable, the endpoint first: the value of ``{where}`` in an
            advice.

    """

    service: str
    codes: Mapping[str, Meaning]
    statuses: Mapping[int, Meaning] = field(default_factory=lambda: STATUSES)
    header: str = ""
    body_of: Callable[[Response], bytes] | None = None
    region_of: Callable[[Response], str] | None = None
    region_advice: str = "; the bucket is in region {region}: pass region={region!r}"
    where: str = "endpoint="

    def refusal(self, response: Response, action: str, url: str) -> Refusal:
        """Return the refusal for an unsuccessful response; ``action`` names the attempted verb, such as "read"."""
        body = response.body if isinstance(response.body, bytes) else b""
        body = self.body_of(response) if self.body_of else body
        code = _found(_CODE, body) or self._code_of(response.headers)
        row = self.codes.get(code)
        meaning = row or self._by_status(response.status)
        region = self.region_of(response) if self.region_of else ""
        kind, advice = meaning.error, meaning.advice
        if region and (kind is ConfigError or (kind is Forbidden and meaning.region)):
            kind, advice = ConfigError, self.region_advice.format(region=region)
        elif response.status == 400 and not code and _PLAIN_HTTP.search(body):  # noqa: PLR2004  a request's form
            kind, advice = ConfigError, _WANTS_TLS
        words = unescape(_found(_MESSAGE, body))
        answer = " ".join(filter(None, (f"HTTP {response.status}", code, f"({words})" if words else "")))
        error = kind(f"cannot {action}: {answer}{self._named(advice)}", url=url)
        error.code = code
        if isinstance(error, NotFound):
            error.missing = meaning.missing
        error.retry_after_s = parse_retry_after(response.headers.get("retry-after", ""))
        return Refusal(error, meaning, row is not None, region)

    def _named(self, advice: str) -> str:
        return advice.replace("{where}", self.where).replace("{endpoint}", self.where.partition(", ")[0])

    def _code_of(self, headers: Mapping[str, str]) -> str:
        named = headers.get(self.header, "") if self.header else ""
        return named if _PLAIN_CODE(named) else ""

    def _by_status(self, status: int) -> Meaning:
        if status in self.statuses:
            return self.statuses[status]
        if 300 <= status < 400:  # noqa: PLR2004  the class of redirects
            return Meaning(ConfigError, _ELSEWHERE)
        if status >= 500:  # noqa: PLR2004  the class of server errors
            return Meaning(Transient)
        return Meaning(Unusable, f"; this does not look like an {self.service} server")


def _found(pattern: re.Pattern[bytes], body: bytes) -> str:
    match = pattern.search(body)
    return match.group(1).decode("utf-8", "replace") if match else ""
