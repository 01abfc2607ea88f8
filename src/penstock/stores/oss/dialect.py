"""OSS's dialect of the S3 family: signature, code table, headers, and checksums.

OSS returns a CRC-64/XZ for every object, part and PUT in ``x-oss-hash-crc64ecma``, and checks an MD5. It calls the
former crc64-ecma: the polynomial of ECMA-182, reflected, with all bits inverted before and after, as in xz.
"""

from __future__ import annotations

import hmac
import re
import time
from base64 import b64decode, b64encode
from dataclasses import replace
from functools import cache
from hashlib import md5, sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from penstock.errors import (
    AlreadyExists,
    Bug,
    ChecksumMismatch,
    ConfigError,
    Conflict,
    Forbidden,
    InvalidURL,
    NotFound,
    PreconditionFailed,
    Throttled,
    TimedOut,
    Transient,
    Truncated,
    Unauthenticated,
    Unsupported,
    Unusable,
)
from penstock.stores.http.answers import STATUSES, Codes, Meaning
from penstock.stores.http.headers import query_string
from penstock.stores.http.verify import Crc, RunningCrc, Verification
from penstock.stores.oss.options import WHERE, region_of
from penstock.stores.s3.dialect import Dialect
from penstock.stores.s3.signing import UNSIGNED, S3Signer, Scheme, day_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from penstock.engine.contracts.credentials import Credentials
    from penstock.engine.contracts.exchange import Response
    from penstock.stores.s3.dialect import BucketAddress, Sign
    from penstock.stores.s3.signing import Address
    from penstock.values import Running

HEADER = "x-oss-hash-crc64ecma"  # a decimal number
_DIGITS = 16  # of a CRC-64 in hexadecimal


@cache
def library() -> Callable[..., int]:
    """Return the function for CRC-64/XZ from bytes and an initial value: 60 GB/s on one core, no GIL (design/0028)."""
    from fastcrc.crc64 import xz

    compute: Callable[..., int] = xz
    return compute


class Crc64(Crc):
    """Running CRC-64/XZ: the digest of a part."""

    __slots__ = ()

    digits = _DIGITS
    library = staticmethod(library)


class Crc64Md5(Crc64):
    """Digest of a PUT: the CRC, and an MD5 that OSS compares before it publishes the object."""

    __slots__ = ("_md5",)

    def __init__(self) -> None:
        super().__init__()
        self._md5 = md5(usedforsecurity=False)

    def update(self, data: bytes | bytearray | memoryview, /) -> None:
        super().update(data)
        self._md5.update(data)

    def hexdigest(self) -> str:
        return f"{super().hexdigest()}{self._md5.hexdigest()}"


def stored_sum(stored: str) -> Running:
    return RunningCrc(library(), int(stored) if stored.isdecimal() else -1)


_ALGORITHM = "OSS4-HMAC-SHA256"
PUT_HEADERS = {"content-type": "application/octet-stream"}  # for a URL signed for PUT
_SIGNED = ("content-type", "content-md5")
_without_value = re.compile("=(?=&|$)").sub
_SCHEME = Scheme(name="aliyun_v4", service="oss", prefix="x-oss-", signs_body=False)


class OSSSigner(S3Signer):
    """Signer of requests to one bucket in one region, with the current credentials.

    Differences from SigV4: the signed path begins with the bucket, wherever the bucket is in the URL; ``host`` is not
    signed; of the headers only ``content-type``, ``content-md5`` and ``x-oss-*`` are signed unless named as additional;
    an empty query value is signed without ``=``; the body is always ``UNSIGNED-PAYLOAD``.
    Source: "Include a V4 signature in the header", OSS API reference; the tests hold the SDKs' own vectors.
    """

    def __init__(
        self,
        bucket: BucketAddress,
        region: str,
        credentials: Callable[[], Credentials | None],
        clock: Callable[[], float] = time.time,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__("", region, credentials, clock, replace(_SCHEME, headers=headers or {}))
        self._algorithm = _ALGORITHM
        path = urlsplit(bucket.endpoint or "").path
        self._base = len(f"{path}/{bucket.name}/" if bucket.in_path else f"{path}/")
        self._resource = f"/{bucket.name}/"

    def sign(self, method: str, path: str, query: str, headers: Mapping[str, str], digest: str = "") -> tuple[str, ...]:
        """As for S3; all of ``headers`` are signed. ``digest`` is ignored: OSS only takes ``content-md5``, a header."""
        search = _without_value("", query) if query else ""
        return super().sign(method, self._resource + path[self._base :], search, headers, digest)

    def _signed_names(self, differing: Iterable[str], fixed: Iterable[str]) -> tuple[str, str]:  # noqa: ARG002
        additional = ";".join(each for each in differing if not (each in _SIGNED or each.startswith("x-oss-")))
        return additional, f",AdditionalHeaders={additional}" if additional else ""


def oss_query(address: Address, credentials: Credentials) -> str:
    """Return the query that authorises one URL. Source: "Include a V4 signature in the URL", OSS API reference."""
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
    # OSS signs the content type of a request, and many clients send their default one: this type is required instead.
    lines = "".join(f"{name}:{value}\n" for name, value in PUT_HEADERS.items()) if address.method == "PUT" else ""
    canonical = f"{address.method}\n/{address.bucket}/{address.key}\n{query}\n{lines}\n\n{UNSIGNED}"
    text = f"{_ALGORITHM}\n{address.stamp}\n{scope}\n{sha256(canonical.encode('latin-1')).hexdigest()}"
    key = day_key(_SCHEME, credentials.secret_key, day, address.region)
    return f"{query}&x-oss-signature={hmac.digest(key, text.encode(), 'sha256').hex()}"


_WAYS = "access_key= or OSS_ACCESS_KEY_ID, credentials_file= or ALIBABA_CLOUD_CREDENTIALS_FILE"
_KEYS = f"; check the credentials ({_WAYS}); see help(penstock.credentials)"
_EXPIRED = f"; the temporary credentials have expired: renew them (session_token= or OSS_SESSION_TOKEN, {_WAYS})"
_DENIED = "; these credentials may not do this here; a bucket that lets the requester pay wants requester_pays=True"
_CLOCK = "; this machine's clock is wrong: set it"
_NOT_OFFERED = "; OSS does not offer this"
_CHANGED_PART = "; a part of the upload is gone or damaged"
_CNAME = "; use a domain that is bound to the bucket: addressing='cname', and endpoint= or OSS_ENDPOINT"

# "Error codes" of the OSS API reference, and the codes that Alibaba's SDK v2 retries. The SDK also retries
# RequestTimeTooSkewed; here, the message reports a wrong clock.
_CODES: Mapping[str, Meaning] = {
    "AccessDenied": Meaning(Forbidden, _DENIED, region=True),
    "AccessForbidden": Meaning(Forbidden),
    "AccessKeyIdAndSecurityTokenNotMatch": Meaning(Unauthenticated, _EXPIRED, renews=True),
    **dict.fromkeys(("InvalidSecurityToken", "SecurityTokenExpired"), Meaning(Unauthenticated, _EXPIRED, renews=True)),
    "BadRequest": Meaning(Transient),
    "BucketAlreadyExists": Meaning(AlreadyExists),
    "BucketDisable": Meaning(Forbidden),
    "CnameDenied": Meaning(ConfigError, "; the domain is bound to another bucket: check {where}"),
    **dict.fromkeys(("DownloadTrafficRateLimitExceeded", "QpsLimitExceeded"), Meaning(Throttled)),
    **dict.fromkeys(("ServiceUnavailable", "TotalQpsLimitExceeded"), Meaning(Throttled)),
    "UploadTrafficRateLimitExceeded": Meaning(Throttled),
    "EntityTooLarge": Meaning(Unusable, "; larger than OSS allows"),
    "EntityTooSmall": Meaning(Unusable, "; a part is smaller than OSS allows"),
    "FileAlreadyExists": Meaning(AlreadyExists),
    "FileImmutable": Meaning(Forbidden, "; a retention policy protects the object"),
    **dict.fromkeys(("FilePartInterity", "FilePartNotExist", "FilePartStale"), Meaning(Conflict, _CHANGED_PART)),
    "InvalidPart": Meaning(Conflict, _CHANGED_PART),
    "InDebt": Meaning(Forbidden, "; the account has overdue payments"),
    "InDebtOverdue": Meaning(Forbidden, "; the account has overdue payments"),
    "InternalError": Meaning(Transient),
    "InvalidAccessKeyId": Meaning(Unauthenticated, _KEYS),
    "InvalidBucketName": Meaning(InvalidURL),
    "InvalidDigest": Meaning(ChecksumMismatch, "; the body was damaged on its way and was not stored"),
    "InvalidObjectName": Meaning(InvalidURL, "; keys are at most 1,023 bytes of UTF-8 and begin with no '/' or '\\'"),
    "InvalidObjectState": Meaning(Forbidden, "; the object is archived: restore it first"),
    "InvalidPartOrder": Meaning(Bug),
    "InvalidRange": Meaning(Truncated, "; the object ends before the range begins"),
    **dict.fromkeys(("MethodNotAllowed", "NotImplemented"), Meaning(Unsupported, _NOT_OFFERED)),
    "OperationNotSupported": Meaning(Unsupported, _NOT_OFFERED),
    "MissingContentLength": Meaning(Bug),
    "NoSuchBucket": Meaning(NotFound, "; check the bucket's name, and {where}", missing="bucket"),
    "NoSuchKey": Meaning(NotFound, missing="object"),
    "NoSuchUpload": Meaning(NotFound),
    "PreconditionFailed": Meaning(PreconditionFailed),
    "PublicEndpointForbidden": Meaning(ConfigError, _CNAME),
    "RequestTimeTooSkewed": Meaning(Unauthenticated, _CLOCK),
    "RequestTimeout": Meaning(TimedOut),
    "SecondLevelDomainForbidden": Meaning(
        ConfigError, "; OSS wants the bucket in the host's name: leave addressing= at its default, virtual"
    ),
    "SignatureDoesNotMatch": Meaning(Unauthenticated, f"{_KEYS}; and check region= or OSS_REGION"),
    "UserDisable": Meaning(Forbidden, "; the account is disabled"),
}

_STATUSES: Mapping[int, Meaning] = {
    **STATUSES,
    401: Meaning(Unauthenticated, _KEYS),
    403: Meaning(Forbidden, STATUSES[403].advice, renews=True),
}

_ENDPOINT = re.compile(rb"<Endpoint>\s*([a-z0-9.-]{1,80})\s*</Endpoint>")


def _body_of(response: Response) -> bytes:
    """Return the error's XML, which answers to HEAD carry in a header."""
    if isinstance(response.body, bytes) and response.body:
        return response.body
    try:
        return b64decode(response.headers.get("x-oss-err", ""))
    except ValueError:
        return b""


def _region_of(response: Response) -> str:
    found = _ENDPOINT.search(_body_of(response))
    return region_of(found[1].decode()) if found else ""


OSS_CODES = Codes(
    service="OSS",
    codes=_CODES,
    statuses=_STATUSES,
    body_of=_body_of,
    region_of=_region_of,
    where=WHERE,
    region_advice="; the bucket is in region {region}: pass OSSOptions(region={region!r}) or set OSS_REGION",
)


class Alibaba(Dialect):
    """OSS's dialect."""

    prefix = "x-oss-"
    codes = OSS_CODES
    # Each GET and HEAD brings the checksum of the whole object.
    verification = Verification(digests={HEADER: stored_sum})
    escaped_token = True
    presigned_headers = PUT_HEADERS
    compares_writes = True
    copy_pin = "x-oss-copy-source-if-match"
    copy_root = "/"
    version_header = "x-oss-version-id"
    create = ("x-oss-forbid-overwrite", "true")
    replace = ""
    conditions_begin = True
    # Otherwise a range beyond the end returns the whole object with 200 (OSS API reference, GetObject).
    read_headers: Mapping[str, str] = {"x-oss-range-behavior": "standard"}

    def __init__(self, *, internal: bool = False, payer: bool = False) -> None:
        """Reach OSS from within Alibaba's network, or agree to pay for each request ("Pay-by-requester")."""
        super().__init__(own=f"https://oss-{{region}}{'-internal' if internal else ''}.aliyuncs.com")
        self._headers = {"x-oss-request-payer": "requester"} if payer else {}

    def signer(self, bucket: BucketAddress, host: str, region: str, credentials: Callable[[], Any]) -> Sign:  # noqa: ARG002
        return OSSSigner(bucket, region, credentials, headers=self._headers).sign

    def signed_query(self, address: Address, credentials: Any) -> str:  # noqa: ANN401  as in ``Dialect``
        return oss_query(address, credentials)

    def body_headers(self, digest: str) -> Mapping[str, str]:
        """Return the header that makes OSS compare a body before it keeps it; empty for a digest without an MD5."""
        named = digest[_DIGITS:]
        return {"content-md5": b64encode(bytes.fromhex(named)).decode()} if named else {}

    def stored_as(self, headers: Mapping[str, str], digest: str) -> bool:
        """Return whether the answer to a write names the CRC of the sent bytes; True if it names none."""
        named = headers.get(HEADER, "")
        return not named or named == str(int(digest[:_DIGITS], 16))

    def domain(self, region: str) -> str:  # noqa: ARG002  the same for all
        return "aliyuncs.com"
