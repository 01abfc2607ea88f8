"""Azure's code table: its error codes and HTTP statuses as errors of Penstock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.azure import WHERE
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

__all__ = ["AZURE_CODES", "FULL_FOLDER"]

FULL_FOLDER = "DirectoryIsNotEmpty"  # a hierarchical namespace was asked to delete a folder that holds something

_WAYS = "account_key= or AZURE_STORAGE_ACCOUNT_KEY, sas_token= or AZURE_STORAGE_SAS_TOKEN"
_WHO = f"; check the account's key or SAS, which may have expired ({_WAYS}), {{where}}, and this machine's clock"
_STALE = "; the token has expired or is another service's: renew it (token=, credential=, `az login`, AZURE_CLIENT_ID)"
_PRIVATE = f"; this container is not public: pass credentials ({_WAYS})"
_ROLE = "; these credentials lack a role or permission for this, such as Storage Blob Data Contributor"
_FIREWALL = "; the account's network rules or the SAS refuse this machine or protocol"
_LEASED = "; another client holds a lease on it"
_BLOCKS = "; blocks of this upload are gone: another writer has written this object meanwhile, or a week has passed"
_FROZEN = "; it is kept unchanged by a policy or a legal hold"
_NAME = "; no such name can be: check the container's and the object's"
_OURS = "; Penstock and the service disagree about the protocol"
_NOT_OFFERED = "; the account does not offer this"
_DAMAGED = "; the body was damaged on its way and was not stored"

# "Common REST API error codes" and "Blob service error codes" of Microsoft's reference; those that neither an object's
# nor a listing's request can meet (queues, tables, files, pages, snapshots, leases' own requests) are left out.
# CannotVerifyCopySource is left out too: its status says what is wrong with the source.
_CODES: Mapping[str, Meaning] = {
    "AccountIsDisabled": Meaning(Forbidden, "; the storage account is disabled"),
    "AuthenticationFailed": Meaning(Unauthenticated, _WHO),
    "AuthorizationFailure": Meaning(Forbidden, f"{_FIREWALL}, or check {{where}}, and the key or SAS ({_WAYS})"),
    "AuthorizationPermissionMismatch": Meaning(Forbidden, _ROLE),
    "AuthorizationProtocolMismatch": Meaning(Forbidden, _FIREWALL),
    "AuthorizationResourceTypeMismatch": Meaning(Forbidden, "; the SAS is not for objects and containers (srt=co)"),
    "AuthorizationServiceMismatch": Meaning(Forbidden, "; the SAS is not for blobs (ss=b)"),
    "AuthorizationSourceIPMismatch": Meaning(Forbidden, _FIREWALL),
    "BlobAlreadyExists": Meaning(AlreadyExists),
    "BlobArchived": Meaning(Forbidden, "; the object is archived: rehydrate it first"),
    "BlobBeingRehydrated": Meaning(Forbidden, "; the object is being rehydrated from the archive: wait for it"),
    "BlobImmutableDueToLegalHold": Meaning(Forbidden, _FROZEN),
    "BlobImmutableDueToPolicy": Meaning(Forbidden, _FROZEN),
    "BlobNotFound": Meaning(NotFound, missing="object"),
    "BlobOperationNotSupported": Meaning(
        Unsupported, "; the object was made by the Data Lake API, or is of another kind: delete it first"
    ),
    "BlobOverwritten": Meaning(Conflict),
    "BlobTierInadequateForContentLength": Meaning(Unusable, "; larger than the tier allows"),
    "BlobUsesCustomerSpecifiedEncryption": Meaning(Unsupported, "; it is encrypted with a key that the caller gives"),
    "BlockCountExceedsLimit": Meaning(Unusable, "; an object has at most 50,000 blocks: pass larger part_bytes"),
    "BlockListTooLong": Meaning(Unusable, "; an object has at most 50,000 blocks: pass larger part_bytes"),
    "ConditionHeadersNotSupported": Meaning(Bug, _OURS),
    "ConditionNotMet": Meaning(PreconditionFailed),
    "ContainerBeingDeleted": Meaning(NotFound, "; the container is being deleted", missing="bucket"),
    "ContainerDisabled": Meaning(Forbidden, "; the container is disabled"),
    "ContainerNotFound": Meaning(NotFound, "; check the container's name, and {where}", missing="bucket"),
    "ContentLengthLargerThanTierLimit": Meaning(Unusable, "; larger than the tier allows"),
    "CopyAcrossAccountsNotSupported": Meaning(Unsupported, _NOT_OFFERED),
    "Crc64Mismatch": Meaning(ChecksumMismatch, _DAMAGED),
    FULL_FOLDER: Meaning(NotFound, "; there is a folder of this name, and no object", missing="object"),
    "EmptyMetadataKey": Meaning(Unusable),
    "FeatureVersionMismatch": Meaning(Unsupported, _NOT_OFFERED),
    "InsufficientAccountPermissions": Meaning(Forbidden, "; the account takes no such request at present"),
    "InternalError": Meaning(Transient),
    "InvalidAuthenticationInfo": Meaning(Unauthenticated, _STALE, renews=True),
    "InvalidBlobOrBlock": Meaning(
        Conflict,
        "; another tool has begun an upload to this object, with block ids of another length: commit or delete it, or "
        "wait the week after which the service forgets it",
    ),
    "InvalidBlobType": Meaning(Unusable, "; the object is an append or page blob: delete it, or write another"),
    "InvalidBlockId": Meaning(Bug, _OURS),
    "InvalidBlockList": Meaning(Conflict, _BLOCKS),
    "InvalidHeaderValue": Meaning(Unusable),
    "InvalidHttpVerb": Meaning(Bug, _OURS),
    "InvalidInput": Meaning(Unusable),
    "InvalidMd5": Meaning(ChecksumMismatch),
    "InvalidMetadata": Meaning(Unusable, "; names of metadata are letters, digits and '_', and begin with no digit"),
    "InvalidOperation": Meaning(Unusable),
    "InvalidQueryParameterValue": Meaning(Unusable),
    "InvalidRange": Meaning(Truncated, "; the object ends before the range begins"),
    "InvalidResourceName": Meaning(InvalidURL, _NAME),
    "InvalidSourceBlobType": Meaning(Unsupported, "; only block blobs are copied"),
    "InvalidSourceBlobUrl": Meaning(Unsupported, "; the service cannot read the source"),
    "InvalidUri": Meaning(InvalidURL, _NAME),
    "InvalidXmlDocument": Meaning(Bug, _OURS),
    "InvalidXmlNodeValue": Meaning(Bug, _OURS),
    "KeyBasedAuthenticationNotPermitted": Meaning(
        Forbidden, "; the account takes no account keys: use Microsoft Entra ID (pip install penstock[azure])"
    ),
    "LeaseAlreadyPresent": Meaning(Conflict, _LEASED),
    "LeaseIdMismatchWithBlobOperation": Meaning(Conflict, _LEASED),
    "LeaseIdMissing": Meaning(Conflict, _LEASED),
    "LeaseLost": Meaning(Conflict, _LEASED),
    "LeaseNotPresentWithBlobOperation": Meaning(Conflict),
    "Md5Mismatch": Meaning(ChecksumMismatch, _DAMAGED),
    "MetadataTooLarge": Meaning(Unusable, "; metadata have at most 8 KiB"),
    "MissingContentLengthHeader": Meaning(Bug, _OURS),
    "MissingRequiredHeader": Meaning(Bug, _OURS),
    "MissingRequiredQueryParameter": Meaning(Bug, _OURS),
    "MissingRequiredXmlNode": Meaning(Bug, _OURS),
    "MultipleConditionHeadersNotSupported": Meaning(Bug, _OURS),
    "NoAuthenticationInformation": Meaning(Unauthenticated, _PRIVATE),
    "OperationTimedOut": Meaning(TimedOut),
    "OutOfRangeInput": Meaning(Unusable),
    "OutOfRangeQueryParameterValue": Meaning(Unusable),
    "PathConflict": Meaning(Conflict),
    "PathNotFound": Meaning(NotFound, missing="object"),
    "PendingCopyOperation": Meaning(Conflict, "; another tool copies something to it at this moment"),
    "PublicAccessNotPermitted": Meaning(
        Forbidden,
        f"; the account permits no anonymous reads: pass credentials ({_WAYS}), without anonymous=True or "
        "AZURE_STORAGE_ANON",
    ),
    "RequestBodyTooLarge": Meaning(Unusable, "; larger than the service allows"),
    "RequestUrlFailedToParse": Meaning(InvalidURL, _NAME),
    "ResourceNotFound": Meaning(NotFound, f"; or it is not public: pass credentials ({_WAYS})"),
    "ResourceTypeMismatch": Meaning(Unusable, "; this is no blob: check the container's name, and {where}"),
    "ServerBusy": Meaning(Throttled),
    "SnapshotsPresent": Meaning(Conflict, "; it has snapshots, which go first"),
    "SourceConditionNotMet": Meaning(PreconditionFailed),
    "SystemInUse": Meaning(Conflict),
    "TargetConditionNotMet": Meaning(PreconditionFailed),
    "UnauthorizedBlobOverwrite": Meaning(AlreadyExists, "; and the SAS permits no overwriting"),
    "UnsupportedHeader": Meaning(Unsupported, _NOT_OFFERED),
    "UnsupportedHttpVerb": Meaning(Unsupported, _NOT_OFFERED),
    "UnsupportedQueryParameter": Meaning(Unsupported, _NOT_OFFERED),
    "UnsupportedXmlNode": Meaning(Bug, _OURS),
}

_STATUSES: Mapping[int, Meaning] = {
    **STATUSES,
    401: Meaning(Unauthenticated, _WHO, renews=True),
    403: Meaning(Forbidden, _ROLE, renews=True),
    404: Meaning(NotFound, "; no such object, or no such container: check both, and {where}"),
    421: Meaning(ConfigError, "; this host does not serve the account: check {where}"),
    505: Meaning(Unsupported, _NOT_OFFERED),
}

AZURE_CODES = Codes(
    service="Azure Blob Storage", codes=_CODES, statuses=_STATUSES, header="x-ms-error-code", where=WHERE
)
