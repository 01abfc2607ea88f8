"""The dialect of Alibaba OSS: its signature, forbidden overwrites, checksums, bucket and key in host and path."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from hashlib import md5
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from penstock.stores.oss.options import OSSOptions
from penstock.testing.faults.amazon import check_age, check_hmac, quote_key, seconds
from penstock.testing.faults.dialect import Access, Words, get, listing
from penstock.testing.faults.message import Answer, Refused, Request, document
from penstock.testing.faults.script import FAULTS, WITHOUT_REGIONS

if TYPE_CHECKING:
    from penstock.options import StoreOptions
    from penstock.testing.faults.dialect import Bucket, Dialect, Stored
    from penstock.testing.faults.script import Settings

_SKEW_S = 15 * 60
_FORM = re.compile(
    r"OSS4-HMAC-SHA256 Credential=([^/,]+)/(\d{8})/([^/,]+)/oss/aliyun_v4_request, *"
    r"(?:AdditionalHeaders=([a-z0-9;-]+), *)?Signature=([0-9a-f]{64})"
)
_CREDENTIAL = re.compile(r"([^/]+)/(\d{8})/([^/]+)/oss/aliyun_v4_request")
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")
_TOKEN = re.compile(rb"(<NextContinuationToken>)([^<]*)")
_HEADERS = ("content-type", "content-md5")
_MOST_KEYS = "100"  # of a page, by default


def _crc64(data: bytes) -> str:
    from fastcrc.crc64 import xz

    return str(xz(data))


def _check_header(request: Request, access: Access, now: float) -> None:
    headers = request.headers
    form = _FORM.fullmatch(headers.get("authorization", ""))
    if form is None:
        raise Refused(403, "AccessDenied", "no OSS4-HMAC-SHA256 signature in the header")
    key, day, region, names, signature = form.groups()
    if region not in access.regions:
        raise Refused(403, "AccessDenied", "must be addressed using the specified endpoint", region=min(access.regions))
    if key not in access.keys:
        raise Refused(403, "InvalidAccessKeyId", "The OSS Access Key Id you provided does not exist in our records.")
    token = headers.get("x-oss-security-token")
    if token is not None and token not in access.tokens:
        raise Refused(403, "SecurityTokenExpired", "The security token you provided has expired.")
    stamp = headers.get("x-oss-date", "")
    if stamp[:8] != day or abs(seconds(stamp) - now) > _SKEW_S:
        raise Refused(403, "RequestTimeTooSkewed")
    if headers.get("x-oss-content-sha256") != "UNSIGNED-PAYLOAD":
        raise Refused(400, "InvalidArgument", "x-oss-content-sha256 is UNSIGNED-PAYLOAD")
    canonical = _canonical(request, (names or "").split(";") if names else [])
    _check_signed(canonical, signature, access.keys[key], stamp, region)


def _check_query(request: Request, access: Access, now: float) -> None:
    given = request.parameters
    form = _CREDENTIAL.fullmatch(given.get("x-oss-credential", ""))
    if form is None or given.get("x-oss-signature-version") != "OSS4-HMAC-SHA256":
        raise Refused(400, "InvalidArgument", "no OSS4-HMAC-SHA256 signature in the query")
    key, day, region = form.groups()
    if region not in access.regions or key not in access.keys:
        raise Refused(403, "InvalidAccessKeyId", "The OSS Access Key Id you provided does not exist in our records.")
    if "x-oss-security-token" in given and given["x-oss-security-token"] not in access.tokens:
        raise Refused(403, "SecurityTokenExpired", "The security token you provided has expired.")
    check_age(given.get("x-oss-date", ""), day, given.get("x-oss-expires", ""), now)
    rest = "&".join(pair for pair in request.query.split("&") if not pair.startswith("x-oss-signature="))
    canonical = _canonical(replace(request, query=rest), [])
    _check_signed(canonical, given["x-oss-signature"], access.keys[key], given["x-oss-date"], region)


def _check_signed(canonical: bytes, signature: str, secret: str, stamp: str, region: str) -> None:
    scope = (stamp[:8], region, "oss", "aliyun_v4_request")
    check_hmac(f"OSS4-HMAC-SHA256\n{stamp}", scope, canonical, f"aliyun_v4{secret}", signature)


def _canonical(request: Request, additional: list[str]) -> bytes:
    """Return the canonical request of the parsed bucket and key."""
    signed = sorted({*additional, *(name for name in request.headers if name in _HEADERS or name[:6] == "x-oss-")})
    pairs = (pair.partition("=") for pair in request.query.split("&") if pair)
    query = sorted((quote_key(name, "-_.~"), quote_key(value, "-_.~")) for name, _, value in pairs)
    parts = (
        request.method,
        quote(f"/{request.bucket}/{request.key}", safe="/-_.~"),
        "&".join(f"{name}={value}" if value else name for name, value in query),
        *(f"{name}:{request.headers.get(name, '').strip()}" for name in signed),
        "",
        ";".join(additional),
        "UNSIGNED-PAYLOAD",
    )
    return "\n".join(parts).encode("latin-1")


def _check_body(request: Request) -> None:
    named = request.headers.get("content-md5")
    if named is not None and named != base64.b64encode(md5(request.body, usedforsecurity=False).digest()).decode():
        raise Refused(400, "InvalidDigest", "The Content-MD5 you specified did not match what we received.")
    if request.key.startswith(("/", "\\")):
        raise Refused(400, "InvalidObjectName")


def _same(found: Stored, wanted: str | None) -> None:
    if wanted is not None and wanted.strip('"') != found.etag:
        raise Refused(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold.")


def _get(dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    """Return an object; all of it, with 200, for a range beyond its end without ``x-oss-range-behavior: standard``."""
    span = _RANGE.fullmatch(request.headers.get("range", ""))
    if span is not None and request.headers.get("x-oss-range-behavior") != "standard":
        beyond = int(span[2]) >= len(bucket.find(request.key).data)
        request = replace(request, headers={**request.headers, "range": ""}) if beyond else request
    return get(dialect, bucket, request)


def _list_objects(dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    request.parameters.setdefault("max-keys", _MOST_KEYS)
    answer = listing(dialect, bucket, request)
    if request.parameters.get("encoding-type") == "url":  # the token, too
        answer.body = _TOKEN.sub(lambda found: found[1] + quote(found[2].decode(), safe="").encode(), answer.body)
    return answer


def _part(dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    upload = bucket.upload(request.parameters["uploadId"], request.key)
    part = bucket.part(upload, int(request.parameters.get("partNumber", "0")), bytes(request.body))
    return Answer(headers=dialect.words.written(part))


class _Alibaba(Words):
    """The words of Alibaba OSS."""

    scheme = "oss"
    prefix = "x-oss-"

    def check(self, request: Request, access: Access, now: float) -> None:
        if any(name.startswith("x-amz-") for name in request.headers):
            raise Refused(400, "InvalidArgument", "x-amz- headers want the S3-compatible endpoint")
        how = _check_query if "x-oss-signature" in request.parameters else _check_header
        how(request, access, now)
        _check_body(request)

    def locate(self, request: Request) -> None:
        """Read the bucket from the host, ``bucket.localhost``, if the host names one."""
        name, found, _ = request.headers.get("host", "").partition(".localhost")
        if found:
            request.bucket, request.key = name, unquote(request.path.removeprefix("/"))

    def hold(self, bucket: Bucket, request: Request, how: str) -> None:
        if how != "heeded" or request.verb not in ("put", "create", "complete", "copy"):
            return
        if request.headers.get("x-oss-forbid-overwrite") == "true" and request.key in bucket.objects:
            raise Refused(
                409, "FileAlreadyExists", "The object you specified already exists and can not be overwritten."
            )

    def pin(self, found: Stored, request: Request) -> None:
        _same(found, request.headers.get("if-match"))

    def pin_source(self, found: Stored, request: Request) -> None:
        _same(found, request.headers.get("x-oss-copy-source-if-match"))

    def described(self, found: Stored) -> dict[str, str]:
        return {"ETag": f'"{found.etag}"', "x-oss-hash-crc64ecma": _crc64(found.data), "x-oss-object-type": "Normal"}

    def written(self, found: Stored) -> dict[str, str]:
        return {"ETag": f'"{found.etag}"', "x-oss-hash-crc64ecma": _crc64(found.data)}

    def listed(self, found: Stored) -> dict[str, str]:
        return {"ETag": f'"{found.etag}"', "Type": "Normal"}

    def refused(self, error: Refused, request: Request) -> Answer:
        texts = {"Code": error.code, "Message": error.message, "RequestId": "5C3D9175B6FC201293AD0000"}
        if error.region:
            texts["Endpoint"] = f"oss-{error.region}.aliyuncs.com"
        body = document("Error", texts)
        headers = {"Content-Type": "application/xml", "x-oss-request-id": texts["RequestId"]}
        if request.method == "HEAD":
            headers["x-oss-err"] = base64.b64encode(body).decode()
        return Answer(error.status, headers, body)

    def store(self, settings: Settings, endpoint: str) -> StoreOptions:
        return OSSOptions(
            endpoint=endpoint, region=settings.region, access_key=settings.access_key, secret_key=settings.secret_key
        )

    def environment(self, settings: Settings, endpoint: str) -> dict[str, str]:
        keys = {"OSS_ACCESS_KEY_ID": settings.access_key, "OSS_ACCESS_KEY_SECRET": settings.secret_key}
        return {"OSS_ENDPOINT": endpoint, "OSS_REGION": settings.region, **keys}


WORDS = _Alibaba(
    verbs={"get": _get, "head": _get, "list": _list_objects, "part": _part},
    # OSS names the right region in another way, and sends no redirects.
    faults={**WITHOUT_REGIONS, "expired": replace(FAULTS["expired"], status=403, code="SecurityTokenExpired")},
)
