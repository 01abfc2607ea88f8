"""OSS's code table: its error codes and HTTP statuses as errors of Penstock."""

from __future__ import annotations

import re
from base64 import b64decode
from typing import TYPE_CHECKING

from penstock.config.alibaba import WHERE, region_of
from penstock.drivers.http.codes import STATUSES, Codes, Meaning
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

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.protocols.exchange import Response

__all__ = ["OSS_CODES"]

_WAYS = "access_key= or OSS_ACCESS_KEY_ID, credentials_file= or ALIBABA_CLOUD_CREDENTIALS_FILE"
_KEYS = f"; check the credentials ({_WAYS}), see docs/credentials.md"
_EXPIRED = f"; the temporary credentials have expired: renew them (session_token= or OSS_SESSION_TOKEN, {_WAYS})"
_DENIED = "; these credentials may not do this here; a bucket that lets the requester pay wants requester_pays=True"
_CLOCK = "; this machine's clock is wrong: set it"
_NOT_OFFERED = "; OSS does not offer this"
_CHANGED_PART = "; a part of the upload is gone or damaged"
_CNAME = "; use a domain that is bound to the bucket: addressing='cname', and endpoint= or OSS_ENDPOINT"

# "Error codes" of the OSS API reference, and the codes at which Alibaba's SDK v2 retries (RequestTimeTooSkewed is among
# those; here a wrong clock is told).
_CODES: Mapping[str, Meaning] = {
    "AccessDenied": Meaning(Forbidden, _DENIED, region=True),
    "AccessForbidden": Meaning(Forbidden),
    "AccessKeyIdAndSecurityTokenNotMatch": Meaning(Unauthenticated, _EXPIRED, renews=True),
    "BadRequest": Meaning(Transient),
    "BucketAlreadyExists": Meaning(AlreadyExists),
    "BucketDisable": Meaning(Forbidden),
    "CnameDenied": Meaning(ConfigError, "; the domain is bound to another bucket: check {where}"),
    "DownloadTrafficRateLimitExceeded": Meaning(Throttled),
    "EntityTooLarge": Meaning(Unusable, "; larger than OSS allows"),
    "EntityTooSmall": Meaning(Unusable, "; a part is smaller than OSS allows"),
    "FileAlreadyExists": Meaning(AlreadyExists),
    "FileImmutable": Meaning(Forbidden, "; a retention policy protects the object"),
    "FilePartInterity": Meaning(Conflict, _CHANGED_PART),
    "FilePartNotExist": Meaning(Conflict, _CHANGED_PART),
    "FilePartStale": Meaning(Conflict, _CHANGED_PART),
    "InDebt": Meaning(Forbidden, "; the account has overdue payments"),
    "InDebtOverdue": Meaning(Forbidden, "; the account has overdue payments"),
    "InternalError": Meaning(Transient),
    "InvalidAccessKeyId": Meaning(Unauthenticated, _KEYS),
    "InvalidBucketName": Meaning(InvalidURL),
    "InvalidDigest": Meaning(ChecksumMismatch, "; the body was damaged on its way and was not stored"),
    "InvalidObjectName": Meaning(InvalidURL, "; keys are at most 1,023 bytes of UTF-8 and begin with no '/' or '\\'"),
    "InvalidObjectState": Meaning(Forbidden, "; the object is archived: restore it first"),
    "InvalidPart": Meaning(Conflict, _CHANGED_PART),
    "InvalidPartOrder": Meaning(Bug),
    "InvalidRange": Meaning(Truncated, "; the object ends before the range begins"),
    "InvalidSecurityToken": Meaning(Unauthenticated, _EXPIRED, renews=True),
    "MethodNotAllowed": Meaning(Unsupported, _NOT_OFFERED),
    "MissingContentLength": Meaning(Bug),
    "NoSuchBucket": Meaning(NotFound, "; check the bucket's name, and {where}", missing="bucket"),
    "NoSuchKey": Meaning(NotFound, missing="object"),
    "NoSuchUpload": Meaning(NotFound),
    "NotImplemented": Meaning(Unsupported, _NOT_OFFERED),
    "OperationNotSupported": Meaning(Unsupported, _NOT_OFFERED),
    "PreconditionFailed": Meaning(PreconditionFailed),
    "PublicEndpointForbidden": Meaning(ConfigError, _CNAME),
    "QpsLimitExceeded": Meaning(Throttled),
    "RequestTimeTooSkewed": Meaning(Unauthenticated, _CLOCK),
    "RequestTimeout": Meaning(TimedOut),
    "SecondLevelDomainForbidden": Meaning(
        ConfigError, "; OSS wants the bucket in the host's name: leave addressing= at its default, virtual"
    ),
    "SecurityTokenExpired": Meaning(Unauthenticated, _EXPIRED, renews=True),
    "ServiceUnavailable": Meaning(Throttled),
    "SignatureDoesNotMatch": Meaning(Unauthenticated, f"{_KEYS}; and check region= or OSS_REGION"),
    "TotalQpsLimitExceeded": Meaning(Throttled),
    "UploadTrafficRateLimitExceeded": Meaning(Throttled),
    "UserDisable": Meaning(Forbidden, "; the account is disabled"),
}

_STATUSES: Mapping[int, Meaning] = {
    **STATUSES,
    401: Meaning(Unauthenticated, _KEYS),
    403: Meaning(Forbidden, STATUSES[403].advice, renews=True),
}

_ENDPOINT = re.compile(rb"<Endpoint>\s*([a-z0-9.-]{1,80})\s*</Endpoint>")


def _body_of(response: Response) -> bytes:
    """Return the error's XML, which an answer to HEAD has in a header."""
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
