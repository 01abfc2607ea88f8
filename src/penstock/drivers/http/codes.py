"""Code tables: what a store's error codes and HTTP statuses mean, and what makes another attempt succeed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from html import unescape
from typing import TYPE_CHECKING, Literal

from penstock.drivers.http.headers import parse_retry_after
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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.protocols.exchange import Response

__all__ = ["STATUSES", "Codes", "Meaning", "Refusal"]


@dataclass(frozen=True, slots=True)
class Meaning:
    """One row of a code table.

    Attributes:
        error: The class that is raised.
        advice: What the text says after the code: what to do.
        renews: The credentials have expired: others are loaded, and the request is sent again.
        region: The answer may name the bucket's region, which is followed.
        redirect: The answer may name another host of the same service in ``Location``, which is followed.
        missing: What a ``NotFound`` is about, where the code says.

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

# For answers without a code, and with one that a dialect's table does not have.
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
# What nginx, Apache, lighttpd and servers written in Go answer where a TLS handshake should have begun.
_PLAIN_HTTP = re.compile(rb"plain HTTP request|speaking plain HTTP|HTTP request to an HTTPS server")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal as an error, and the row of the table that it was read by.

    Attributes:
        error: What is raised.
        meaning: The row.
        coded: The row was found by a code and not by the status.
        region: The region that the answer names; empty where it names none.

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
    """One dialect's table.

    Attributes:
        service: The store's name in texts, such as ``S3``.
        codes: Rows by the store's own codes.
        statuses: Rows by HTTP status.
        header: A header that brings the code where there is no body (HEAD); empty where there is none.
        body_of: Returns the error's XML, for stores that put it into a header where there is no body.
        region_of: Returns the region that an answer names, empty where it names none. The text is not trusted
            and becomes part of a host's name: letters, digits and hyphens only.
        region_advice: The advice where a region is named, with ``{region}``. The error is ``ConfigError`` then, also
            where the row says that it may be followed and that it is ``Forbidden`` otherwise.
        where: The settings that say where the store is, option and variable: the endpoint first: what
            ``{where}`` in an advice means.

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
        """Return the error for a response that is no success; ``action`` says what was tried, such as "read"."""
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
