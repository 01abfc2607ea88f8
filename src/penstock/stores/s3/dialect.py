"""Dialects of the S3 family: the names, signature and error codes by which S3, OSS and GCS's XML API differ.

The verbs, which all dialects share, are in ``s3.driver``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from penstock.engine.contracts.credentials import BearerToken
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
from penstock.stores.http.verify import Verification
from penstock.stores.s3.checksums import digests
from penstock.stores.s3.settings import Service
from penstock.stores.s3.signing import AMAZON_SCHEME, EMPTY_SHA256, S3Signer, Scheme, amazon_query

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.engine.contracts.exchange import Response
    from penstock.stores.s3.signing import Address


@dataclass(frozen=True, slots=True)
class BucketAddress:
    """Location of a bucket.

    Attributes:
        name: The bucket.
        endpoint: ``scheme://host[:port][/path]`` of the service; None for its own, which depends on the region.
        virtual: Address it as ``name.host/path`` and not as ``host/path/name``.
        scheme: Scheme of its objects' URLs, in messages.
        shown: Bucket in URLs, in messages, if that is more than its name.
        cluster: Hosts, domains and networks of the servers that the endpoint of a cluster may redirect to.
        cname: The endpoint's host is the bucket's own: the bucket's name is neither in the host nor in the path.
    """

    name: str
    endpoint: str | None
    virtual: bool
    scheme: str = "s3"
    cname: bool = False
    shown: str = ""
    cluster: tuple[str, ...] = ()

    @property
    def in_path(self) -> bool:
        return not (self.virtual or self.cname)


class Sign(Protocol):
    """Signer of one request."""

    def __call__(
        self, method: str, path: str, query: str, headers: Mapping[str, str], digest: str = ..., /
    ) -> tuple[str, ...]:
        """Return the header lines to send; see ``s3.signing.Signer.sign``."""


_KEYS = "; check the credentials ({keys}); see help(penstock.credentials)"
_EXPIRED = "; the temporary credentials have expired, or are no longer valid: renew them ({keys})"
_REGION = "; pass region= or set {region}"
_DENIED = "; these credentials may not do this here{payer}"
_CLOCK = "; this machine's clock is wrong: set it"
_DAMAGED = "; the body was damaged on its way and was not stored"
_NOT_OFFERED = "; the store does not offer this"

# Codes with the same meaning in Google's XML API. Sources: see below, and ``gcs.driver``.
SHARED_CODES: Mapping[str, Meaning] = {
    "AccountProblem": Meaning(Forbidden),
    "BadDigest": Meaning(ChecksumMismatch, _DAMAGED),
    "BucketAlreadyExists": Meaning(AlreadyExists, "; another account has a bucket of this name: choose another one"),
    "BucketNotEmpty": Meaning(Unusable, "; it has objects, old versions of objects, or unfinished uploads"),
    "BucketAlreadyOwnedByYou": Meaning(AlreadyExists),
    "EntityTooLarge": Meaning(Unusable, "; larger than the store allows"),
    "EntityTooSmall": Meaning(Unusable, "; a part is smaller than the store allows"),
    **dict.fromkeys(("IncompleteBody", "InternalError", "OperationAborted"), Meaning(Transient)),
    "InvalidBucketName": Meaning(InvalidURL),
    "InvalidDigest": Meaning(ChecksumMismatch),
    "InvalidPart": Meaning(Conflict, "; a part of the upload is gone"),
    "InvalidPartOrder": Meaning(Bug),
    "InvalidRange": Meaning(Truncated, "; the object ends before the range begins"),
    "InvalidURI": Meaning(InvalidURL),
    "KeyTooLongError": Meaning(InvalidURL, "; keys are at most 1,024 bytes of UTF-8"),
    "MethodNotAllowed": Meaning(Unsupported, _NOT_OFFERED),
    "MissingContentLength": Meaning(Bug),
    "NoSuchBucket": Meaning(NotFound, "; check the bucket's name, and {where}", missing="bucket"),
    "NoSuchKey": Meaning(NotFound, missing="object"),
    "NoSuchUpload": Meaning(NotFound),
    "NotImplemented": Meaning(Unsupported, _NOT_OFFERED),
    "PreconditionFailed": Meaning(PreconditionFailed),
    "QuotaExceeded": Meaning(NoSpace, "; the quota is used up"),  # Ceph
    "RequestTimeTooSkewed": Meaning(Unauthenticated, _CLOCK),
    "RequestTimeout": Meaning(TimedOut),
    **dict.fromkeys(("ServiceUnavailable", "SlowDown", "TooManyRequests"), Meaning(Throttled)),
}

# "Error responses" of the Amazon S3 API reference, and the codes that AWS's SDKs retry. Codes of other stores only are
# marked with the store.
_CODES: Mapping[str, Meaning] = {
    **SHARED_CODES,
    "AccessDenied": Meaning(Forbidden, _DENIED),
    "AllAccessDisabled": Meaning(Forbidden),
    "AuthorizationHeaderMalformed": Meaning(ConfigError, _REGION, region=True),
    "IllegalLocationConstraintException": Meaning(ConfigError, _REGION, region=True),
    **dict.fromkeys(("InvalidLocationConstraint", "InvalidRegionName"), Meaning(ConfigError, _REGION, region=True)),
    "PermanentRedirect": Meaning(ConfigError, _REGION, region=True),
    **dict.fromkeys(("BandwidthLimitExceeded", "RequestLimitExceeded", "RequestThrottled"), Meaning(Throttled)),
    **dict.fromkeys(("RequestThrottledException", "Throttling", "ThrottledException"), Meaning(Throttled)),
    **dict.fromkeys(("ThrottlingException", "TooManyRequestsException"), Meaning(Throttled)),
    "ConditionalRequestConflict": Meaning(Transient),
    **dict.fromkeys(("ExpiredToken", "InvalidToken"), Meaning(Unauthenticated, _EXPIRED, renews=True)),
    "TokenRefreshRequired": Meaning(Unauthenticated, _EXPIRED, renews=True),
    **dict.fromkeys(("InvalidAccessKeyId", "InvalidSecurity"), Meaning(Unauthenticated, _KEYS)),
    **dict.fromkeys(("MissingAuthenticationToken", "MissingSecurityHeader"), Meaning(Unauthenticated, _KEYS)),
    "SignatureDoesNotMatch": Meaning(Unauthenticated, _KEYS),
    "InvalidObjectState": Meaning(Forbidden, "; the object is archived: restore it first"),
    "InvalidPayer": Meaning(Forbidden),
    "NotSignedUp": Meaning(Forbidden, "; the account has not signed up for S3"),
    "PriorRequestNotComplete": Meaning(Transient),
    "Redirect": Meaning(Transient, region=True, redirect=True),
    "RequestExpired": Meaning(Unauthenticated, "; check this machine's clock", renews=True),
    "RequestTimeoutException": Meaning(TimedOut),
    "TemporaryRedirect": Meaning(Transient, region=True, redirect=True),
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


def codes_of(service: Service) -> Codes:
    region = service.regions[0] if service.regions else "AWS_REGION"
    elsewhere = _ELSEWHERE if service.tokens else ""
    return s3_codes(service.name, service.key_settings(), region, service.where, elsewhere, service.payer_advice)


_ELSEWHERE = "; the gateway points to a server outside of its cluster: name it in S3Options(cluster=…)"
S3_CODES = codes_of(Service())
_PAYER_SCHEME = Scheme(headers={"x-amz-request-payer": "requester"})


class Dialect:
    """Dialect of one bucket. The defaults are S3's, for stores that refuse, or do not have, its headers for checksums.

    The driver looks most attributes up for each request, so they are plain values.

    Attributes:
        prefix: Prefix of the dialect's own headers: ``x-amz-``, ``x-oss-``, ``x-goog-``.
        codes: Code table.
        verification: How answers show which bytes they bring, and which header holds a version.
        version_element: Element of a listing's entry that holds a version.
        escaped_token: A listing's continuation token is escaped if its keys are.
        presigned_headers: Headers that a request to a URL signed for PUT must send.
        compares_writes: Answers to a PUT or a part name a digest of the body: see ``stored_as``.
        cluster: The endpoint is a gateway, which redirects requests to servers of its cluster and sets their query.
        pin: Header that binds a read to a version.
        copy_pin: Header that binds a copy to a version of its source.
        copy_root: Prefix of the path of a copy's source, before the bucket.
        version_field: Field of the query that names a version id; empty if the service keeps no versions.
        version_header: Header of an answer with the object's version id.
        create: Header and value that make a write fail if there is an object already.
        replace: Header that binds a write to the version it replaces; empty if the dialect has none.
        quotes: Versions are in quotes in ``pin``, ``copy_pin`` and ``replace``, as ETags are.
        conditions_begin: An upload's conditions are sent at its begin as well as at its completion.
        read_headers: Headers of every read.
        whole_headers: Headers of reads of whole objects, which request the store's digest.
    """

    prefix = "x-amz-"
    codes = S3_CODES
    verification = Verification()
    version_element = "ETag"
    escaped_token = False
    presigned_headers: Mapping[str, str] = {}
    compares_writes = False
    cluster = False
    pin = "if-match"
    copy_pin = "x-amz-copy-source-if-match"
    copy_root = ""
    version_field = "versionId"
    version_header = "x-amz-version-id"
    create = ("if-none-match", "*")
    replace = "if-match"
    quotes = True
    conditions_begin = False
    read_headers: Mapping[str, str] = {}
    whole_headers: Mapping[str, str] = {}

    def __init__(
        self, codes: Codes | None = None, *, own: str = "https://s3.{region}.{domain}", payer: bool = False
    ) -> None:
        """Speak to a service whose own endpoint is ``own``; with ``payer``, agree to pay for each request."""
        if codes is not None:
            self.codes = codes
        self._own = own
        self._scheme = _PAYER_SCHEME if payer else AMAZON_SCHEME

    def signer(self, bucket: BucketAddress, host: str, region: str, credentials: Callable[[], Any]) -> Sign:  # noqa: ARG002
        """Return the function that signs requests to ``bucket`` at ``host``; ``credentials`` returns current ones."""
        return S3Signer(host, region, credentials, scheme=self._scheme).sign

    def signed_query(self, address: Address, credentials: Any) -> str:  # noqa: ANN401  the dialect's own
        return amazon_query(address, credentials)

    def body_headers(self, digest: str) -> Mapping[str, str]:  # noqa: ARG002  for subclasses
        """Return the headers for ``Payload.digest``, which the store compares, unless the signature holds it."""
        return {}

    def stored_as(self, headers: Mapping[str, str], digest: str) -> bool:  # noqa: ARG002  for subclasses
        """Return False if the headers of an answer to a PUT or a part name another digest than was sent."""
        return True

    def endpoint(self, region: str) -> str:
        return self._own.format(region=region, domain=self.domain(region))

    def domain(self, region: str) -> str:
        """Return the domain of all hosts of the service's own endpoint for a region.

        An answer (a named region, a redirect) may send requests to these hosts and to no other.
        """
        return "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"


class Amazon(Dialect):
    """AWS's own dialect, with the checksums of whole objects."""

    verification = Verification(digests=digests())
    whole_headers: Mapping[str, str] = {"x-amz-checksum-mode": "ENABLED"}


class Cluster(Dialect):
    """AIStore's: its gateways redirect each request for an object to the server that has it.

    It verifies bearer tokens, but no signature.
    """

    cluster = True
    version_field = ""

    def signer(self, bucket: BucketAddress, host: str, region: str, credentials: Callable[[], Any]) -> Sign:
        signed = super().signer(bucket, host, region, credentials)

        def sign(
            method: str, path: str, query: str, headers: Mapping[str, str], digest: str = EMPTY_SHA256
        ) -> tuple[str, ...]:
            held = credentials()
            if isinstance(held, BearerToken):
                return *[f"{name}: {value}" for name, value in headers.items()], f"Authorization: Bearer {held.token}"
            return signed(method, path, query, headers, digest)

        return sign
