"""The dialect of Amazon S3, and SigV4 with its variants, in headers or (a presigned URL) in the query.

The checks of signatures are written from the standard's text and deliberately without ``penstock.stores.s3.signing``,
which they check.
"""

from __future__ import annotations

import base64
import hmac
import re
import zlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import md5, sha1, sha256
from typing import TYPE_CHECKING
from urllib.parse import quote_from_bytes, unquote_to_bytes

from penstock.stores.s3.options import S3Options
from penstock.testing.faults.dialect import Access, Words
from penstock.testing.faults.message import Refused, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.options import StoreOptions
    from penstock.testing.faults.dialect import Bucket, Stored
    from penstock.testing.faults.message import Request
    from penstock.testing.faults.script import Settings

_SKEW_S = 15 * 60
_FORM = re.compile(
    r"([A-Z0-9-]+) Credential=([^/,]+)/(\d{8})/([^/,]+)/([^/,]+)/([a-z0-9_]+), *"
    r"SignedHeaders=([a-z0-9;-]+), *Signature=([0-9a-f]{64})"
)
_CREDENTIAL = re.compile(r"([^/]+)/(\d{8})/([^/]+)/([^/]+)/([a-z0-9_]+)")
_MOST_S = 7 * 86_400
_UNSIGNED = "UNSIGNED-PAYLOAD"
_HEX = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Scheme:
    """Names that one kind of signature uses: ``name`` precedes the secret, ``service`` is part of the scope."""

    name: str = "AWS4"
    service: str = "s3"
    prefix: str = "x-amz-"


AMAZON = Scheme()


def check_signature(
    request: Request, keys: Mapping[str, str], regions: frozenset[str], now: float, scheme: Scheme = AMAZON
) -> None:
    """Raise ``Refused`` unless the signature is correct, recent, by a known key and for one of ``regions``.

    ``keys`` maps key ids to secrets; ``now`` is seconds since the epoch.
    """
    headers = request.headers
    if "authorization" not in headers:
        raise Refused(403, "AccessDenied", "anonymous requests are not served")
    form = _FORM.fullmatch(headers["authorization"])
    algorithm, terminator = f"{scheme.name}-HMAC-SHA256", f"{scheme.name.lower()}_request"
    if form is None or (form[1], form[6]) != (algorithm, terminator):
        raise Refused(400, "AuthorizationHeaderMalformed", f"not an {algorithm} signature in the header")
    _, key, day, region, service, _, names, signature = form.groups()
    if region not in regions or service != scheme.service:
        raise Refused(400, "AuthorizationHeaderMalformed", "wrong region or service", region=min(regions))
    if key not in keys:
        raise Refused(403, "InvalidAccessKeyId")
    stamp = headers.get(f"{scheme.prefix}date", "")
    if stamp[:8] != day or abs(seconds(stamp) - now) > _SKEW_S:
        raise Refused(403, "RequestTimeTooSkewed")
    signed = names.split(";")
    owed = {"host", *(name for name in headers if name.startswith(scheme.prefix))}
    if signed != sorted(signed) or not owed <= set(signed):
        raise Refused(403, "AccessDenied", "there are headers which were not signed")
    canonical = _canonical(request, signed, f"{scheme.prefix}content-sha256")
    scope = (day, region, service, terminator)
    check_hmac(f"{algorithm}\n{stamp}", scope, canonical, f"{scheme.name}{keys[key]}", signature)


def check_query(
    request: Request, keys: Mapping[str, str], regions: frozenset[str], now: float, scheme: Scheme = AMAZON
) -> bool:
    """Return whether the query is signed; raise ``Refused`` if it fails the checks of ``check_signature``."""
    given, prefix = request.parameters, scheme.prefix.title()
    signature = given.get(f"{prefix}Signature")
    if signature is None:
        return False
    algorithm, terminator = f"{scheme.name}-HMAC-SHA256", f"{scheme.name.lower()}_request"
    form = _CREDENTIAL.fullmatch(given.get(f"{prefix}Credential", ""))
    if form is None or given.get(f"{prefix}Algorithm") != algorithm or form[5] != terminator:
        raise Refused(400, "AuthorizationQueryParametersError", f"not an {algorithm} signature in the query")
    key, day, region, service, _ = form.groups()
    if region not in regions or service != scheme.service:
        raise Refused(400, "AuthorizationQueryParametersError", "wrong region or service", region=min(regions))
    if key not in keys:
        raise Refused(403, "InvalidAccessKeyId")
    check_age(given.get(f"{prefix}Date", ""), day, given.get(f"{prefix}Expires", ""), now)
    signed = given.get(f"{prefix}SignedHeaders", "").split(";")
    owed = {"host", *(name for name in request.headers if name.startswith(scheme.prefix))}
    if not owed <= set(signed):
        raise Refused(403, "AccessDenied", "there are headers which were not signed")
    rest = "&".join(pair for pair in request.query.split("&") if not pair.startswith(f"{prefix}Signature="))
    canonical = _canonical(replace(request, query=rest), signed, "", _UNSIGNED)
    scope = (day, region, service, terminator)
    check_hmac(f"{algorithm}\n{given[f'{prefix}Date']}", scope, canonical, f"{scheme.name}{keys[key]}", signature)
    return True


def check_hmac(head: str, scope: Sequence[str], canonical: bytes, secret: str, signature: str) -> None:
    """Raise ``Refused`` unless the canonical request was signed with ``secret``; ``head`` is algorithm and time."""
    derived = secret.encode()
    for word in (*scope, f"{head}\n{'/'.join(scope)}\n{sha256(canonical).hexdigest()}"):
        derived = hmac.digest(derived, word.encode(), "sha256")
    if not hmac.compare_digest(derived.hex(), signature):
        raise Refused(403, "SignatureDoesNotMatch")


def check_age(stamp: str, day: str, expires: str, now: float) -> None:
    """Raise ``Refused`` unless a URL that was signed at ``stamp``, for ``expires`` seconds, is still valid."""
    if not expires.isdigit() or not 0 < int(expires) <= _MOST_S:
        raise Refused(400, "AuthorizationQueryParametersError", "an address expires within a week")
    age_s = now - seconds(stamp)
    if stamp[:8] != day or age_s < -_SKEW_S:
        raise Refused(403, "RequestTimeTooSkewed")
    if age_s > int(expires):
        raise Refused(403, "AccessDenied", "Request has expired")


def check_body(request: Request) -> None:
    """Raise ``Refused`` if the body does not match its digests."""
    headers, body = request.headers, request.body
    digest = headers.get("x-amz-content-sha256", "")
    if digest != _UNSIGNED and not _HEX.fullmatch(digest):
        raise Refused(501, "NotImplemented", f"x-amz-content-sha256: {digest or 'missing'}")
    if digest != _UNSIGNED and sha256(body).hexdigest() != digest:
        raise Refused(400, "XAmzContentSHA256Mismatch", "the body is not the one that was signed")
    sums: dict[str, Callable[[], bytes]] = {
        "content-md5": lambda: md5(body, usedforsecurity=False).digest(),
        "x-amz-checksum-crc32": lambda: zlib.crc32(body).to_bytes(4, "big"),
        "x-amz-checksum-sha1": lambda: sha1(body, usedforsecurity=False).digest(),
        "x-amz-checksum-sha256": lambda: sha256(body).digest(),
    }
    for name, compute in sums.items():
        if name in headers and base64.b64encode(compute()).decode() != headers[name]:
            raise Refused(400, "BadDigest", f"{name} is another's")


def _canonical(request: Request, signed: list[str], digest: str, unsigned: str = "") -> bytes:
    """Return the canonical request; path and query are decoded and re-encoded, which exposes a lax client."""
    pairs = (pair.partition("=") for pair in request.query.split("&") if pair)
    query = sorted((quote_key(name, "-_.~"), quote_key(value, "-_.~")) for name, _, value in pairs)
    lines = [f"{name}:{' '.join(request.headers.get(name, '').split())}" for name in signed]
    parts = (
        request.method,
        quote_key(request.path, "/-_.~"),
        "&".join(f"{name}={value}" for name, value in query),
        *lines,
        "",
        ";".join(signed),
        unsigned or request.headers.get(digest, ""),
    )
    return "\n".join(parts).encode("latin-1")


def quote_key(text: str, safe: str) -> str:
    return quote_from_bytes(unquote_to_bytes(text), safe=safe)


def seconds(stamp: str) -> float:
    """Return a signature's time in seconds since the epoch; 0 for any other text."""
    try:
        return datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0


def check_version(found: Stored, wanted: str, *, bare: bool = False) -> None:
    """Raise ``Refused`` unless the object's ETag is ``wanted``, with or (``bare``) without quotes."""
    if wanted != "*" and (wanted if bare else wanted.strip('"')) != found.etag:
        raise Refused(412, "PreconditionFailed")


class _Amazon(Words):
    """The words of Amazon S3."""

    scheme = "s3"
    prefix = "x-amz-"

    def check(self, request: Request, access: Access, now: float) -> None:
        if not check_query(request, access.keys, access.regions, now):
            check_signature(request, access.keys, access.regions, now)
            token = request.headers.get("x-amz-security-token")
            if token is not None and token not in access.tokens:
                raise Refused(400, "ExpiredToken", "The provided token has expired.")
            check_body(request)

    def hold(self, bucket: Bucket, request: Request, how: str) -> None:
        new, old = request.headers.get("if-none-match", ""), request.headers.get("if-match", "")
        if request.verb not in ("put", "complete"):
            return
        if how == "refused" and (new or old):
            raise Refused(501, "NotImplemented", "a header you provided implies functionality that is not implemented")
        if how in ("ignored", "refused") or (how == "bare" and request.verb == "complete"):
            return
        if new == "*" and request.key in bucket.objects:
            raise Refused(412, "PreconditionFailed")
        if old:
            check_version(bucket.find(request.key), old, bare=how == "bare")

    def pin(self, found: Stored, request: Request) -> None:
        check_version(found, request.headers.get("if-match", "*"))

    def pin_source(self, found: Stored, request: Request) -> None:
        check_version(found, request.headers.get("x-amz-copy-source-if-match", "*"))

    def described(self, found: Stored) -> dict[str, str]:
        return {"ETag": f'"{found.etag}"'}

    def digests(self, found: Stored, request: Request) -> dict[str, str]:
        if request.headers.get("x-amz-checksum-mode", "").upper() != "ENABLED":
            return {}
        return {"x-amz-checksum-crc32": base64.b64encode(zlib.crc32(found.data).to_bytes(4, "big")).decode()}

    def store(self, settings: Settings, endpoint: str) -> StoreOptions:
        return S3Options(
            endpoint=endpoint, region=settings.region, access_key=settings.access_key, secret_key=settings.secret_key
        )

    def environment(self, settings: Settings, endpoint: str) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": settings.access_key,
            "AWS_SECRET_ACCESS_KEY": settings.secret_key,
            "AWS_REGION": settings.region,
        }

    written = described
    listed = described


WORDS = _Amazon()
