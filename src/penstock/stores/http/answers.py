"""Answers of HTTP stores: code tables turn refusals into errors, headers and XML become results.

The XML parser trusts nothing: no DTD, no other encoding, no entities; elements, attributes and names are bounded, so
time and memory are proportional to the text, whose size the request bounds. ``Reads`` verifies answers to reads, and
learns whether a store honours ``Range``.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from html import unescape
from typing import TYPE_CHECKING, Literal, Protocol, cast
from xml.etree import ElementTree as ET
from xml.parsers import expat

from penstock.engine.contracts.driver import MOVED, RANGE_IGNORED, UNKNOWN_BYTES, Beginning
from penstock.engine.contracts.exchange import Exchange
from penstock.errors import (
    AlreadyExists,
    Bug,
    Changed,
    ConfigError,
    Conflict,
    Damaged,
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
from penstock.stores.direct import too_large, untold
from penstock.stores.http.headers import parse_date, parse_retry_after, parse_size, strip_quotes
from penstock.stores.http.verify import REPLACED, heeds_ranges
from penstock.values import ObjectMeta, Span, version_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from xml.etree.ElementTree import Element

    from penstock.engine.buffer import Buffer
    from penstock.engine.contracts.credentials import Identity, Renewable
    from penstock.engine.contracts.driver import Abilities
    from penstock.engine.contracts.exchange import Request, Response
    from penstock.stores.http.verify import Verification
    from penstock.values import Checksum


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
    **dict.fromkeys((301, 302, 307, 308), Meaning(ConfigError, _ELSEWHERE, redirect=True)),
    400: Meaning(Unusable),
    401: Meaning(Unauthenticated, "; check the credentials; see help(penstock.credentials)"),
    403: Meaning(
        Forbidden, "; wrong credentials, or no permission for this key: without one to list, a missing key is 403, too"
    ),
    404: Meaning(NotFound, "; no such key, or no such bucket: check both, and {where}"),
    **dict.fromkeys((405, 501), Meaning(Unsupported, _NOT_OFFERED)),
    **dict.fromkeys((408, 504), Meaning(TimedOut)),
    407: Meaning(Unauthenticated, "; the proxy wants credentials: pass TransportOptions(proxy=…)"),
    409: Meaning(Conflict),
    411: Meaning(Bug),
    412: Meaning(PreconditionFailed),
    413: Meaning(Unusable, _TOO_LARGE),
    416: Meaning(Truncated, "; the object ends before the range begins"),
    **dict.fromkeys((425, 499, 502), Meaning(Transient)),  # 499, nginx: the connection closed under the request
    **dict.fromkeys((429, 503), Meaning(Throttled)),
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
        coded: The row was found by the store's code, not by the HTTP status.
        region: Region that the answer names; empty if it names none.
    """

    error: PenstockError
    meaning: Meaning
    coded: bool
    region: str


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
        named = response.headers.get(self.header, "") if self.header else ""
        code = _search_body(_CODE, body) or (named if _PLAIN_CODE(named) else "")
        row = self.codes.get(code)
        meaning = row or self._by_status(response.status)
        region = self.region_of(response) if self.region_of else ""
        kind, advice = meaning.error, meaning.advice
        if region and (kind is ConfigError or (kind is Forbidden and meaning.region)):
            kind, advice = ConfigError, self.region_advice.format(region=region)
        elif response.status == 400 and not code and _PLAIN_HTTP.search(body):  # noqa: PLR2004  a request's form
            kind, advice = ConfigError, _WANTS_TLS
        words = unescape(_search_body(_MESSAGE, body))
        answer = " ".join(filter(None, (f"HTTP {response.status}", code, f"({words})" if words else "")))
        error = kind(f"cannot {action}: {answer}{self._named(advice)}", url=url)
        error.code = code
        if isinstance(error, NotFound):
            error.missing = meaning.missing
        error.retry_after_s = parse_retry_after(response.headers.get("retry-after", ""))
        return Refusal(error, meaning, row is not None, region)

    def _named(self, advice: str) -> str:
        return advice.replace("{where}", self.where).replace("{endpoint}", self.where.partition(", ")[0])

    def _by_status(self, status: int) -> Meaning:
        if status in self.statuses:
            return self.statuses[status]
        if 300 <= status < 400:  # noqa: PLR2004  the class of redirects
            return Meaning(ConfigError, _ELSEWHERE)
        if status >= 500:  # noqa: PLR2004  the class of server errors
            return Meaning(Transient)
        return Meaning(Unusable, f"; this does not look like an {self.service} server")


def _search_body(pattern: re.Pattern[bytes], body: bytes) -> str:
    match = pattern.search(body)
    return match.group(1).decode("utf-8", "replace") if match else ""


_QUOTED = 40  # characters of a foreign text
# Refusals that need no code from the body. A 403 that was cut off may be about credentials that have expired.
_CLEAR = frozenset((404, 412, 416))
# Retries after a change of credentials, region or host: new credentials may take a moment to arrive.
_REPAIRED = 3
_UNMET: Mapping[str, tuple[type[Conflict], str]] = {
    "read": (Changed, REPLACED),
    "copy": (Changed, REPLACED),
    "replace": (PreconditionFailed, "cannot replace: the object has changed since its ETag was read"),
}
_TAKEN = "cannot create: the object exists already"
_GONE = "the bucket no longer has it; a rule or a user has deleted it: make the catalog again"
_NO_VERSIONS = "these credentials may not read versions; on S3 that is s3:GetObjectVersion"
_LONGEST_ID = 1024  # characters, as S3 has it


class Addresses(Protocol):
    """Interface of a driver to its ``Answers``: URLs for messages, and the targets of later requests."""

    def url(self, key: str) -> str: ...

    def follow_region(self, region: str) -> bool:
        """Send later requests to ``region``; return False, unchanged, if that is another service."""

    def follow_redirect(self, key: str, location: str) -> bool:
        """Send the next request for ``key`` to ``location``; return False, unchanged, if that is another service."""


class Answers:
    """Reader of one store's answers by its dialect's code table, with the repairs that the table allows."""

    def __init__(self, codes: Codes, identity: Identity[Renewable], store: Addresses) -> None:
        self._codes = codes
        self._identity = identity
        self._store = store

    def headers(self, response: Response, action: str, key: str) -> dict[str, str]:
        """Return the headers of a success; raise the error for any other answer. ``action`` is a verb for messages."""
        if response.fault is not None or not 200 <= response.status < 300:  # noqa: PLR2004  success
            raise self.error(response, action, key)
        if response.overflow:
            message = f"cannot {action}: the answer is too long for {self._codes.service}"
            raise Damaged(message, url=self._store.url(key))
        return response.headers

    def document(self, response: Response, action: str, key: str, root: str = "", child: str = "") -> Element:
        """Return the XML of a success: the root element is ``root``, or has a ``child`` (servers differ in names).

        A 200 whose body is an ``<Error>`` raises that error; any other document raises ``Damaged``.
        """
        self.headers(response, action, key)
        with self.locating(key):
            found = parse_xml(response.body)
            name = local_name(found)
            if name == "Error":
                refusal = self._refusal(response, action, key)
                error = refusal.error
                raise error if refusal.coded else Transient(error.message, url=error.url)
            if name != root and not (child and child_texts(found).get(child)):
                message = f"cannot {action}: the server answers <{name[:_QUOTED]}> instead of <{root}>"
                message = message if root else f"cannot {action}: the server answers <{name[:_QUOTED]}>"
                raise Damaged(f"{message}: not a valid {self._codes.service} answer, check {self._codes.where}")
        return found

    def version(self, response: Response, header: str, action: str, key: str, root: str = "") -> str:
        """Return the version of a written object: from ``header``, or from the ETag in XML whose root is ``root``."""
        version = self.headers(response, action, key).get(header, "")
        if root:
            etag = child_texts(self.document(response, action, key, root, "ETag")).get("ETag", "")
            version = (etag if header == "etag" else "") or version
        elif not version and _has_body(response):
            self.document(response, action, key)
        return strip_quotes(version)

    def deletion(self, action: str, key: str) -> Callable[[Response], None]:
        """Return a parser of answers to deletions; a 404 from the store itself, for the object, is a success too."""

        def parse(response: Response) -> None:
            if response.status == 404 and response.fault is not None:  # noqa: PLR2004  the body was cut off
                response.fault.url = response.fault.url or self._store.url(key)
                raise response.fault
            if response.status != 404:  # noqa: PLR2004  404: already deleted
                self.headers(response, action, key)
                if _has_body(response):
                    self.document(response, action, key)
                return
            refusal = self._refusal(response, action, key)
            if refusal.meaning.missing == "bucket" or (_has_body(response) and not refusal.error.code):
                raise refusal.error

        return parse

    def error(self, response: Response, action: str, key: str, etag: str = "") -> PenstockError:
        """Return the error for an answer, even a truncated one, and make the repair that may let a retry succeed.

        If ``etag`` holds a version id, the message names it.
        """
        if response.fault is not None and response.status < 300:  # noqa: PLR2004  not a refusal
            response.fault.url = response.fault.url or self._store.url(key)
            return response.fault
        error = self._refusal(response, action, key).error
        if response.fault is not None and not error.code and response.status not in _CLEAR:
            error.retries = error.retries or _REPAIRED
        if (version := version_id(etag)) and isinstance(error, (NotFound, Forbidden)):
            reason = _GONE if isinstance(error, NotFound) else _NO_VERSIONS
            error.message = f"cannot {action} version {version[:_LONGEST_ID]}: {reason} ({error.message})"
        return error

    @contextmanager
    def locating(self, key: str) -> Iterator[None]:
        try:
            yield
        except PenstockError as error:
            error.url = error.url or self._store.url(key)
            raise

    def _refusal(self, response: Response, action: str, key: str) -> Refusal:
        refusal = self._codes.refusal(response, action, self._store.url(key))
        error = refusal.error
        # A 412, unless its code says that something else failed.
        unmet = isinstance(error, PreconditionFailed)
        if unmet or (action == "replace" and refusal.meaning.missing == "object" and isinstance(error, NotFound)):
            kind, message = _UNMET.get(action, (AlreadyExists, _TAKEN))
            clearer = kind(message, url=error.url)
            clearer.code = error.code
            return replace(refusal, error=clearer)
        if retries := self._repaired(refusal, response, key):
            error.retries = retries
        return refusal

    def _repaired(self, refusal: Refusal, response: Response, key: str) -> int:
        """Make the repair in the row of the code table; return the number of retries that may then succeed."""
        meaning, credentials = refusal.meaning, self._identity.current()
        if meaning.renews and refusal.coded:
            # Loading may take seconds, longer than a few retries.
            return Transient.retries if self._identity.renew() else _REPAIRED
        if refusal.region:
            if meaning.region:
                # Many requests may be in flight: the first answer changes the region, and all are retried.
                return _REPAIRED if self._store.follow_region(refusal.region) else 0
        elif meaning.renews and not refusal.error.code and credentials is not None and credentials.token:
            # An answer to HEAD has no body, so it cannot say whether temporary credentials have expired.
            return Transient.retries if self._identity.renew() else _REPAIRED
        location = response.headers.get("location", "")
        followed = bool(meaning.redirect and location) and self._store.follow_redirect(key, location)
        if followed:
            refusal.error.code = MOVED
        return _REPAIRED if followed else 0


def _has_body(response: Response) -> bool:
    return isinstance(response.body, bytes) and bool(response.body.strip())


# No object store sends these, and both can harm a parser: entities, and an encoding that hides them.
_DTD = b"<!DOCTYPE"
_ENCODED = re.compile(rb"<\?xml[^>]*\bencoding\s*=\s*[\"'](?!(?:utf-?8|us-ascii)\b)", re.IGNORECASE)
# Most elements, and most attributes, of a document: a page of 5,000 blobs has some 40 elements for each.
_ELEMENTS = 1 << 19
# Most bytes of a tag with the text behind it: keys, metadata and tokens are shorter.
_TOKEN_BYTES = 16 << 10
_SLICE_BYTES = 64 << 10  # other threads run between slices
# ElementTree writes the namespace into each name, so a long one makes a short document large.
_NAMESPACE = re.compile(rb"xmlns(?::[A-Za-z0-9]{1,16})?=(?:\"[^\"<]{0,200}\"|'[^'<]{0,200}')")
_XMLNS = b"xmlns"


def parse_xml(body: object) -> ET.Element:
    """Return the root element; raise ``Damaged`` for other texts, and beyond the bounds of this module."""
    data = body.strip() if isinstance(body, bytes) else b""
    if _DTD in data or b"\0" in data or _ENCODED.match(data):
        raise Damaged("the answer is not XML of an object store: check endpoint=")
    _check_bounds(data)
    try:
        if data.count(_XMLNS) != len(_NAMESPACE.findall(data)):
            return _without_namespaces(data)
        if len(data) <= _SLICE_BYTES:
            return ET.fromstring(data)  # noqa: S314  no DTD, so no entities
        return _in_slices(data)
    except (ET.ParseError, expat.ExpatError, ValueError, LookupError) as error:
        problem = f"the answer is not XML ({error})" if data else "the answer is empty, where XML should be"
        raise Damaged(f"{problem}: no object store sends that, check endpoint=") from None


def local_name(element: ET.Element) -> str:
    """Return an element's name without its namespace, which differs from server to server."""
    return element.tag.rpartition("}")[2]


def child_texts(element: ET.Element) -> dict[str, str]:
    return {local_name(child): child.text or "" for child in element}


def _check_bounds(data: bytes) -> None:
    if data.count(b"<") - data.count(b"</") > _ELEMENTS or data.count(b"=") > _ELEMENTS:
        raise Damaged(f"the answer is XML of more than {_ELEMENTS} elements or attributes: check endpoint=")
    at, last = 0, len(data) - _TOKEN_BYTES
    while at < last:
        mark = data.rfind(b"<", at + 1, at + _TOKEN_BYTES)
        if mark < 0:
            raise Damaged(f"the answer is XML with a name or a text of more than {_TOKEN_BYTES} bytes: check endpoint=")
        at = mark


def _in_slices(data: bytes) -> ET.Element:
    """Parse slice by slice, so that other threads can run in between.

    Expat before 2.6 parses a tag, comment or instruction again with every slice that does not end it. Tags are short
    here; a document with comments or instructions is parsed in one go.
    """
    declared = not data.startswith(b"<?") or data.find(b"?>", 0, _SLICE_BYTES) > 0
    whole = b"<!" in data or data.find(b"<?", 1) > 0 or not declared
    size = len(data) if whole else _SLICE_BYTES
    parser = ET.XMLParser()  # noqa: S314  as above
    for start in range(0, len(data), size):
        parser.feed(data[start : start + size])
    return parser.close()


def _without_namespaces(data: bytes) -> ET.Element:
    """Parse XML with unusual namespace names, or with ``xmlns`` in a text, unchanged: half as fast as ElementTree."""
    builder, parser = ET.TreeBuilder(), expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = lambda tag, attributes: builder.start(tag.rpartition(":")[2], attributes)
    parser.EndElementHandler = lambda tag: builder.end(tag.rpartition(":")[2])
    parser.CharacterDataHandler = builder.data
    parser.Parse(data, True)  # noqa: FBT003  the end of the document
    return builder.close()


def make_beginning(
    verify: Verification, response: Response, bound: int, most_bytes: int, url: str, etag: str = ""
) -> Beginning:
    """Return an empty beginning for an object whose size in the answer exceeds ``bound``."""
    headers = response.headers
    size = 0 if "chunked" in headers.get("transfer-encoding", "") else parse_size(headers.get(verify.size, "")) or 0
    if size > most_bytes or bound == most_bytes:
        raise too_large(most_bytes, url)
    if not size:
        raise untold(bound, url)
    verify.note_version(response, etag)
    return Beginning(b"", size, response.version)


class Ranged:
    """A driver whose store may answer a range with the whole object."""

    abilities: Abilities

    def _learn_ranges(self, honoured: bool | None) -> None:  # noqa: FBT001  the result of ``heeds_ranges``
        """Record whether the store honours ranges; None changes nothing."""
        if honoured is not None and self.abilities.ranges is not honoured:
            self.abilities = replace(self.abilities, ranges=honoured)


class Reads(Ranged, ABC):
    """Verb ``Read`` for dialects whose refusals ``Answers`` reads; the dialect builds the requests."""

    _answers: Answers
    _verify: Verification
    _sized: tuple[str, ...]  # ``_verify.sized_headers``, made once

    @abstractmethod
    def url(self, key: str) -> str: ...

    @abstractmethod
    def read(self, span: Span, target: Buffer) -> Exchange[int]:
        """Read one span; the answer goes to ``_verified``."""

    @abstractmethod
    def _whole(self, key: str, etag: str) -> Request:
        """Return the request for a whole object; in version ``etag``, unless that is empty."""

    def get(
        self, key: str, etag: str, most_bytes: int = UNKNOWN_BYTES, buffer: Buffer | None = None
    ) -> Exchange[bytes | Beginning]:
        if buffer is not None:
            exchange = self.read(Span(key, 0, buffer.size, etag, whole=True), buffer)
            request = cast("Request", exchange.request)
            request.wants, request.shorter = self._sized, True
            return Exchange(request, partial(self._opened, key, etag, most_bytes, buffer))

        bound = min(most_bytes, self.abilities.untold_bytes)

        def parse(response: Response) -> bytes | Beginning:
            if response.overflow:
                return make_beginning(self._verify, response, bound, most_bytes, self.url(key), etag)
            if response.fault is not None or response.status != 200:  # noqa: PLR2004  OK
                raise self._answers.error(response, "read", key, etag)
            with self._answers.locating(key):
                return self._verify.whole(response, etag)

        request = self._whole(key, etag)
        request.most_bytes = bound
        return Exchange(request, parse)

    def checksum(self, headers: Mapping[str, str]) -> Checksum | None:
        return self._verify.checksum(headers)

    def _describe(self, key: str, headers: Mapping[str, str], metadata: dict[str, str]) -> ObjectMeta:
        with self._answers.locating(key):
            size = self._verify.length(headers)
        return ObjectMeta(
            key=key,
            size=size,
            etag=strip_quotes(headers.get(self._verify.version, "")),
            modified=parse_date(headers.get("last-modified", "")),
            metadata=metadata,
            content_type=headers.get("content-type", ""),
            checksum=self._verify.checksum(headers),
        )

    def _verified(self, span: Span, target: Buffer, response: Response) -> int:
        """Verify the answer to ``read``; return how many bytes of the target belong to the span."""
        try:
            if response.status not in (200, 206):
                raise self._answers.error(response, "read", span.key, span.etag)
            received = self._verify.span(response, span, target)
        except PenstockError as error:
            error.url = error.url or self.url(span.key)
            if error.code == RANGE_IGNORED:
                self._learn_ranges(honoured=False)
            raise
        if not span.whole and target.size:
            self._learn_ranges(heeds_ranges(response))
        return received

    def _opened(self, key: str, etag: str, most_bytes: int, buffer: Buffer, response: Response) -> bytes | Beginning:
        """Verify the answer to ``get``, which is in ``buffer``."""
        try:
            if response.status != 200:  # noqa: PLR2004  OK
                raise self._answers.error(response, "read", key, etag)
            got = self._verify.opened(response, etag, buffer)
        except PenstockError as error:
            error.url = error.url or self.url(key)
            raise
        if isinstance(got, Beginning) and got.size > most_bytes:
            raise too_large(most_bytes, self.url(key))
        return got
