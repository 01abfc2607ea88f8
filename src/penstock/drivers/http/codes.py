"""S3's error codes and HTTP statuses as errors of ours: two tables and the function that reads a response by them."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from html import unescape
from time import time
from typing import TYPE_CHECKING

from penstock.errors import (
    AlreadyExists,
    Bug,
    ChecksumMismatch,
    ConfigError,
    Conflict,
    Forbidden,
    InvalidURL,
    NoSpace,
    NotFound,
    PenstockError,
    PreconditionFailed,
    Throttled,
    TimedOut,
    Transient,
    Truncated,
    Unauthenticated,
    Unusable,
)

if TYPE_CHECKING:
    from penstock.protocols.exchange import Response

__all__ = ["CODES", "STATUSES", "refused", "region_of"]

_DAY_S = 86_400
_KEYS = "; check the credentials (explicit, AWS_ACCESS_KEY_ID, profile), see docs/credentials.md"
_REGION = "; pass region= or set AWS_REGION"

# From "Error responses" of the Amazon S3 API reference; codes that only other stores send name the store.
CODES: dict[str, tuple[type[PenstockError], str]] = {
    "AccessDenied": (Forbidden, "; these credentials may not do this here"),
    "AccountProblem": (Forbidden, ""),
    "AllAccessDisabled": (Forbidden, ""),
    "AuthorizationHeaderMalformed": (ConfigError, _REGION),
    "BadDigest": (ChecksumMismatch, "; the body was damaged on its way and was not stored"),
    "BucketAlreadyExists": (AlreadyExists, ""),
    "BucketAlreadyOwnedByYou": (AlreadyExists, ""),
    "ConditionalRequestConflict": (Transient, ""),
    "EntityTooLarge": (Unusable, "; larger than the store allows"),
    "EntityTooSmall": (Unusable, "; a part is smaller than the store allows"),
    "ExpiredToken": (Unauthenticated, _KEYS),
    "IllegalLocationConstraintException": (ConfigError, _REGION),
    "InternalError": (Transient, ""),
    "InvalidAccessKeyId": (Unauthenticated, _KEYS),
    "InvalidBucketName": (InvalidURL, ""),
    "InvalidDigest": (ChecksumMismatch, ""),
    "InvalidLocationConstraint": (ConfigError, _REGION),
    "InvalidObjectState": (Forbidden, "; the object is archived: restore it first"),
    "InvalidPart": (Conflict, "; a part of the upload is gone"),
    "InvalidPartOrder": (Bug, ""),
    "InvalidRange": (Truncated, "; the object ends before the range begins"),
    "InvalidRegionName": (ConfigError, _REGION),
    "InvalidToken": (Unauthenticated, _KEYS),
    "KeyTooLongError": (InvalidURL, "; keys are at most 1,024 bytes of UTF-8"),
    "MethodNotAllowed": (Unusable, "; the store does not offer this"),
    "NoSuchBucket": (NotFound, "; check the bucket's name and the endpoint"),
    "NoSuchKey": (NotFound, ""),
    "NoSuchUpload": (NotFound, ""),
    "NotImplemented": (Unusable, "; the store does not offer this"),
    "OperationAborted": (Transient, ""),
    "PermanentRedirect": (ConfigError, _REGION),
    "PreconditionFailed": (PreconditionFailed, ""),
    "QuotaExceeded": (NoSpace, "; the quota is used up"),  # Ceph
    "RequestExpired": (Unauthenticated, "; check this machine's clock"),
    "RequestLimitExceeded": (Throttled, ""),
    "RequestTimeTooSkewed": (Unauthenticated, "; this machine's clock is wrong: set it"),
    "RequestTimeout": (TimedOut, ""),
    "ServiceUnavailable": (Throttled, ""),
    "SignatureDoesNotMatch": (Unauthenticated, _KEYS),
    "SlowDown": (Throttled, ""),
    "TemporaryRedirect": (Transient, ""),
    "Throttling": (Throttled, ""),
    "ThrottlingException": (Throttled, ""),
    "TokenRefreshRequired": (Unauthenticated, _KEYS),
    "TooManyRequests": (Throttled, ""),
    "XAmzContentSHA256Mismatch": (ChecksumMismatch, "; the body was damaged on its way and was not stored"),
    "XMinioServerNotInitialized": (Transient, ""),  # MinIO
    "XMinioStorageFull": (NoSpace, "; the store is full"),  # MinIO
}

# Where there is no code, or one that is not above.
STATUSES: dict[int, tuple[type[PenstockError], str]] = {
    400: (Unusable, ""),
    401: (Unauthenticated, _KEYS),
    403: (Forbidden, "; wrong credentials, or ones that may not do this here"),
    404: (NotFound, ""),
    405: (Unusable, "; the store does not offer this"),
    408: (TimedOut, ""),
    409: (Conflict, ""),
    411: (Bug, ""),
    412: (PreconditionFailed, ""),
    413: (Unusable, "; larger than the store allows"),
    416: (Truncated, "; the object ends before the range begins"),
    425: (Transient, ""),
    429: (Throttled, ""),
    499: (Transient, ""),  # nginx: the connection closed under the request
    501: (Unusable, "; the store does not offer this"),
    502: (Transient, ""),
    503: (Throttled, ""),
    504: (TimedOut, ""),
    507: (NoSpace, "; the store is full"),
}

_CODE = re.compile(rb"<Code>\s*([A-Za-z0-9.]{1,64})\s*</Code>")
_MESSAGE = re.compile(rb"<Message>([^<]{1,300})")
_REGION_TAG = re.compile(rb"<Region>\s*([a-z0-9-]{1,40})\s*</Region>")


def refused(response: Response, what: str, url: str) -> PenstockError:
    """Return the error for a response that is no success; ``what`` says what was tried, such as "read"."""
    body = response.body if isinstance(response.body, bytes) else b""
    code = _found(_CODE, body)
    kind, advice = CODES.get(code) or _by_status(response.status)
    region = region_of(response)
    if kind is ConfigError and region:
        advice = f"; the bucket is in region {region}: pass region={region!r} or set AWS_REGION"
    words = unescape(_found(_MESSAGE, body))
    answer = " ".join(filter(None, (f"HTTP {response.status}", code, f"({words})" if words else "")))
    error = kind(f"cannot {what}: {answer}{advice}", url=url)
    error.code = code
    error.retry_after_s = _retry_after(response.headers.get("retry-after", ""))
    return error


def region_of(response: Response) -> str:
    """Return the region that an answer says the bucket is in; empty where it says nothing."""
    body = response.body if isinstance(response.body, bytes) else b""
    named = response.headers.get("x-amz-bucket-region", "")
    safe = re.fullmatch(r"[a-z0-9-]{1,40}", named)  # it may become part of a host's name
    return _found(_REGION_TAG, body) or (named if safe else "")


def _by_status(status: int) -> tuple[type[PenstockError], str]:
    if status in STATUSES:
        return STATUSES[status]
    if 300 <= status < 400:  # noqa: PLR2004  the class of redirects
        return ConfigError, "; the server points elsewhere: check endpoint= and region="
    if status >= 500:  # noqa: PLR2004  the class of server errors
        return Transient, ""
    return Unusable, "; this does not look like an S3 server"


def _found(pattern: re.Pattern[bytes], body: bytes) -> str:
    match = pattern.search(body)
    return match.group(1).decode("utf-8", "replace") if match else ""


def _retry_after(value: str) -> float | None:
    """Read ``Retry-After`` in either of its forms (RFC 9110, 10.2.3): seconds or a date.

    None where it is neither, or more than a day: no server knows that.
    """
    if value.isascii() and value.isdigit():
        after_s = float(value)
    else:
        try:
            after_s = max(0.0, parsedate_to_datetime(value).timestamp() - time())
        except (ValueError, OverflowError):
            return None
    return after_s if after_s <= _DAY_S else None
