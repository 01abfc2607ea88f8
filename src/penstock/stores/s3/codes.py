"""S3's code table: its error codes and HTTP statuses as errors of Penstock."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
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
from penstock.stores.s3.services import AWS, keys, where

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.engine.contracts.exchange import Response

__all__ = ["PAYER", "S3_CODES", "s3_codes"]

_KEYS = "; check the credentials ({keys}), see docs/credentials.md"
_EXPIRED = "; the temporary credentials have expired, or are no longer valid: renew them ({keys})"
_REGION = "; pass region= or set {region}"
_DENIED = "; these credentials may not do this here{payer}"
_CLOCK = "; this machine's clock is wrong: set it"
_DAMAGED = "; the body was damaged on its way and was not stored"
_NOT_OFFERED = "; the store does not offer this"

# "Error responses" of the Amazon S3 API reference, and the codes that AWS's SDKs retry. Codes of other stores only are
# marked with the store.
_CODES: Mapping[str, Meaning] = {
    "AccessDenied": Meaning(Forbidden, _DENIED),
    "AccountProblem": Meaning(Forbidden),
    "AllAccessDisabled": Meaning(Forbidden),
    "AuthorizationHeaderMalformed": Meaning(ConfigError, _REGION, region=True),
    "BadDigest": Meaning(ChecksumMismatch, _DAMAGED),
    "BandwidthLimitExceeded": Meaning(Throttled),
    "BucketAlreadyExists": Meaning(AlreadyExists),
    "BucketAlreadyOwnedByYou": Meaning(AlreadyExists),
    "ConditionalRequestConflict": Meaning(Transient),
    "EntityTooLarge": Meaning(Unusable, "; larger than the store allows"),
    "EntityTooSmall": Meaning(Unusable, "; a part is smaller than the store allows"),
    "ExpiredToken": Meaning(Unauthenticated, _EXPIRED, renews=True),
    "IllegalLocationConstraintException": Meaning(ConfigError, _REGION, region=True),
    "IncompleteBody": Meaning(Transient),
    "InternalError": Meaning(Transient),
    "InvalidAccessKeyId": Meaning(Unauthenticated, _KEYS),
    "InvalidBucketName": Meaning(InvalidURL),
    "InvalidDigest": Meaning(ChecksumMismatch),
    "InvalidLocationConstraint": Meaning(ConfigError, _REGION, region=True),
    "InvalidObjectState": Meaning(Forbidden, "; the object is archived: restore it first"),
    "InvalidPart": Meaning(Conflict, "; a part of the upload is gone"),
    "InvalidPartOrder": Meaning(Bug),
    "InvalidPayer": Meaning(Forbidden),
    "InvalidRange": Meaning(Truncated, "; the object ends before the range begins"),
    "InvalidRegionName": Meaning(ConfigError, _REGION, region=True),
    "InvalidSecurity": Meaning(Unauthenticated, _KEYS),
    "InvalidToken": Meaning(Unauthenticated, _EXPIRED, renews=True),
    "InvalidURI": Meaning(InvalidURL),
    "KeyTooLongError": Meaning(InvalidURL, "; keys are at most 1,024 bytes of UTF-8"),
    "MethodNotAllowed": Meaning(Unsupported, _NOT_OFFERED),
    "MissingAuthenticationToken": Meaning(Unauthenticated, _KEYS),
    "MissingContentLength": Meaning(Bug),
    "MissingSecurityHeader": Meaning(Unauthenticated, _KEYS),
    "NoSuchBucket": Meaning(NotFound, "; check the bucket's name, and {where}", missing="bucket"),
    "NoSuchKey": Meaning(NotFound, missing="object"),
    "NoSuchUpload": Meaning(NotFound),
    "NotImplemented": Meaning(Unsupported, _NOT_OFFERED),
    "NotSignedUp": Meaning(Forbidden, "; the account has not signed up for S3"),
    "OperationAborted": Meaning(Transient),
    "PermanentRedirect": Meaning(ConfigError, _REGION, region=True),
    "PreconditionFailed": Meaning(PreconditionFailed),
    "PriorRequestNotComplete": Meaning(Transient),
    "QuotaExceeded": Meaning(NoSpace, "; the quota is used up"),  # Ceph
    "Redirect": Meaning(Transient, region=True, redirect=True),
    "RequestExpired": Meaning(Unauthenticated, "; check this machine's clock", renews=True),
    "RequestLimitExceeded": Meaning(Throttled),
    "RequestThrottled": Meaning(Throttled),
    "RequestThrottledException": Meaning(Throttled),
    "RequestTimeTooSkewed": Meaning(Unauthenticated, _CLOCK),
    "RequestTimeout": Meaning(TimedOut),
    "RequestTimeoutException": Meaning(TimedOut),
    "ServiceUnavailable": Meaning(Throttled),
    "SignatureDoesNotMatch": Meaning(Unauthenticated, _KEYS),
    "SlowDown": Meaning(Throttled),
    "TemporaryRedirect": Meaning(Transient, region=True, redirect=True),
    "Throttling": Meaning(Throttled),
    "ThrottledException": Meaning(Throttled),
    "ThrottlingException": Meaning(Throttled),
    "TokenRefreshRequired": Meaning(Unauthenticated, _EXPIRED, renews=True),
    "TooManyRequests": Meaning(Throttled),
    "TooManyRequestsException": Meaning(Throttled),
    "XAmzContentSHA256Mismatch": Meaning(ChecksumMismatch, _DAMAGED),
    "XMinioServerNotInitialized": Meaning(Transient),  # MinIO
    "XMinioStorageFull": Meaning(NoSpace, "; the store is full"),  # MinIO
}

# Answers to HEAD have no code: a status alone may mean an expired token or another region.
_STATUSES: Mapping[int, Meaning] = {
    **STATUSES,
    301: Meaning(ConfigError, STATUSES[301].advice, region=True, redirect=True),
    307: Meaning(ConfigError, STATUSES[307].advice, region=True, redirect=True),
    400: Meaning(Unusable, renews=True, region=True),
    401: Meaning(Unauthenticated, _KEYS),
    403: Meaning(Forbidden, STATUSES[403].advice + "{payer}", renews=True),
}

_REGION_TAG = re.compile(rb"<Region>\s*([a-z0-9-]{1,40})\s*</Region>")
_REGION_NAME = re.compile(r"[a-z0-9-]{1,40}").fullmatch


def _region_of(response: Response) -> str:
    found = _REGION_TAG.search(response.body) if isinstance(response.body, bytes) else None
    named = response.headers.get("x-amz-bucket-region", "")
    return found[1].decode() if found else named if _REGION_NAME(named) else ""


@cache
def s3_codes(service: str, keys: str, region: str, where: str, elsewhere: str = "", payer: str = "") -> Codes:
    """Return the table for a service: its name, and the settings that name its credentials, region and host.

    ``elsewhere`` is the advice for a redirect that is not followed; by default, to check ``where``. ``payer`` is the
    advice about buckets with Requester Pays in a refusal.
    """

    def advised(row: Meaning) -> Meaning:
        advice = row.advice.replace("{keys}", keys).replace("{region}", region).replace("{payer}", payer)
        return replace(row, advice=elsewhere if elsewhere and row.redirect else advice)

    return Codes(
        service=service,
        codes={code: advised(row) for code, row in _CODES.items()},
        statuses={status: advised(row) for status, row in _STATUSES.items()},
        region_of=_region_of,
        region_advice=f"; the bucket is in region {{region}}: pass region={{region!r}} or set {region}",
        where=where,
    )


PAYER = "; a bucket with Requester Pays wants requester_pays=True or AWS_REQUEST_PAYER=requester"
S3_CODES = s3_codes("S3", keys(AWS), AWS.regions[0], where(AWS), payer=PAYER)
