"""Google Cloud Storage's code table: the error codes of its XML API as errors of Penstock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.google import KEYS, WHERE
from penstock.drivers.http.codes import STATUSES, Codes, Meaning
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

__all__ = ["GOOGLE_CODES"]

_WAYS = "credentials_file= or GOOGLE_APPLICATION_CREDENTIALS, token=, `gcloud auth application-default login`"
_LOGIN = f"; check the credentials ({_WAYS})"
_EXPIRED = f"; the token has expired, or is no longer valid: renew it ({_WAYS})"
_NOBODY = f"{_LOGIN}; anonymous=True (--anonymous) reads public data"
_KEYS = f"; check the HMAC key: access_key= and secret_key=, or {' and '.join(KEYS)}"
_PAYER = "; the bucket has Requester Pays: pass GCSOptions(user_project=…) with a project that you may bill"
_HELD = "; the object is held or retained: a new one may be written, this one may not be replaced or deleted"
_DAMAGED = "; the body was damaged on its way and was not stored"
_NOT_OFFERED = "; the store does not offer this"

# "HTTP status and error codes for XML" of Google's documentation.
_CODES: Mapping[str, Meaning] = {
    "AccessDenied": Meaning(Forbidden, "; these credentials may not do this here"),
    "AccountProblem": Meaning(Forbidden),
    "AuthenticationRequired": Meaning(Unauthenticated, _NOBODY, renews=True),
    "AuthorizationHeaderMalformed": Meaning(Unauthenticated, _KEYS),
    "BadDigest": Meaning(ChecksumMismatch, _DAMAGED),
    "BucketAlreadyExists": Meaning(AlreadyExists),
    "BucketAlreadyOwnedByYou": Meaning(AlreadyExists),
    "CrcMismatch": Meaning(ChecksumMismatch, _DAMAGED),
    "EntityTooLarge": Meaning(Unusable, "; larger than the store allows"),
    "EntityTooSmall": Meaning(Unusable, "; a part is smaller than the store allows"),
    "ExcessHeaderValues": Meaning(Bug),
    "ExpiredToken": Meaning(Unauthenticated, _EXPIRED, renews=True),
    "IncompleteBody": Meaning(Transient),
    "InsufficientQuota": Meaning(NoSpace, "; the quota is used up"),
    "InternalError": Meaning(Transient),
    "InvalidAccessKeyId": Meaning(Unauthenticated, _KEYS),
    "InvalidAuthentication": Meaning(Unauthenticated, _LOGIN, renews=True),
    "InvalidBucketName": Meaning(InvalidURL),
    "InvalidDigest": Meaning(ChecksumMismatch),
    "InvalidPart": Meaning(Conflict, "; a part of the upload is gone"),
    "InvalidPartOrder": Meaning(Bug),
    "InvalidRange": Meaning(Truncated, "; the object ends before the range begins"),
    "InvalidSecurity": Meaning(Unauthenticated, _KEYS),
    "InvalidToken": Meaning(Unauthenticated, _EXPIRED, renews=True),
    "InvalidURI": Meaning(InvalidURL),
    "KeyTooLong": Meaning(InvalidURL, "; keys are at most 1,024 bytes of UTF-8"),
    "KeyTooLongError": Meaning(InvalidURL, "; keys are at most 1,024 bytes of UTF-8"),
    "MalformedSecurityHeader": Meaning(Unauthenticated, _KEYS),
    "MetadataTooLarge": Meaning(Unusable, "; more metadata than the store takes"),
    "MethodNotAllowed": Meaning(Unsupported, _NOT_OFFERED),
    "MissingContentLength": Meaning(Bug),
    "MissingSecurityHeader": Meaning(Unauthenticated, _KEYS),
    "NoSuchBucket": Meaning(NotFound, "; check the bucket's name, and {where}", missing="bucket"),
    "NoSuchKey": Meaning(NotFound, missing="object"),
    "NoSuchUpload": Meaning(NotFound),
    "NotImplemented": Meaning(Unsupported, _NOT_OFFERED),
    "ObjectUnderActiveHold": Meaning(Forbidden, _HELD),
    "OperationAborted": Meaning(Transient),
    "PreconditionFailed": Meaning(PreconditionFailed),
    "QuotaExceeded": Meaning(NoSpace, "; the quota is used up"),
    "RequestTimeTooSkewed": Meaning(Unauthenticated, "; this machine's clock is wrong: set it"),
    "RequestTimeout": Meaning(TimedOut),
    "RetentionPolicyNotMet": Meaning(Forbidden, _HELD),
    "ServiceUnavailable": Meaning(Throttled),
    "SignatureDoesNotMatch": Meaning(Unauthenticated, _KEYS),
    "SlowDown": Meaning(Throttled),
    "TooManyRequests": Meaning(Throttled),
    "UserProjectAccessDenied": Meaning(Forbidden, "; these credentials may not bill the project of user_project="),
    "UserProjectAccountProblem": Meaning(Forbidden, "; the project of user_project= has no active billing"),
    "UserProjectInconsistent": Meaning(ConfigError, "; user_project= names another project than the credentials do"),
    "UserProjectInvalid": Meaning(ConfigError, "; user_project= is no project that exists"),
    "UserProjectMissing": Meaning(ConfigError, _PAYER),
    "UserRateLimitExceeded": Meaning(Throttled),
}

# HEAD and the JSON API are answered without a code: a status alone may mean an expired token.
_STATUSES: Mapping[int, Meaning] = {
    **STATUSES,
    401: Meaning(Unauthenticated, _LOGIN, renews=True),
    410: Meaning(Transient),  # of an upload that the service lost: documentation, "Retry strategy"
}

GOOGLE_CODES = Codes(service="Google Cloud Storage", codes=_CODES, statuses=_STATUSES, where=WHERE)
