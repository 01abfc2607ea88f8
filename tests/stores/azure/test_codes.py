"""Every code that Microsoft names for blobs has the error that a caller needs."""

import pytest
from azure.storage.blob import StorageErrorCode

from penstock import errors
from penstock.engine.contracts.exchange import Response
from penstock.errors import PenstockError, Throttled, TimedOut, Transient, Unauthenticated, Unsupported
from penstock.stores.azure.driver import AZURE_CODES

# Of Microsoft's pages of error codes: status and the class of ours.
DOCUMENTED = {
    "AccountIsDisabled": (403, "Forbidden"),
    "AuthenticationFailed": (403, "Unauthenticated"),
    "AuthorizationFailure": (403, "Forbidden"),
    "AuthorizationPermissionMismatch": (403, "Forbidden"),
    "BlobAlreadyExists": (409, "AlreadyExists"),
    "BlobArchived": (409, "Forbidden"),
    "BlobBeingRehydrated": (409, "Forbidden"),
    "BlobImmutableDueToPolicy": (409, "Forbidden"),
    "BlobNotFound": (404, "NotFound"),
    "BlobOperationNotSupported": (409, "Unsupported"),
    "BlockCountExceedsLimit": (409, "Unusable"),
    "BlockListTooLong": (400, "Unusable"),
    "CannotVerifyCopySource": (500, "Transient"),
    "ConditionNotMet": (412, "PreconditionFailed"),
    "ContainerBeingDeleted": (409, "NotFound"),
    "ContainerNotFound": (404, "NotFound"),
    "InsufficientAccountPermissions": (403, "Forbidden"),
    "InternalError": (500, "Transient"),
    "InvalidAuthenticationInfo": (400, "Unauthenticated"),
    "InvalidBlobOrBlock": (400, "Conflict"),
    "InvalidBlobType": (409, "Unusable"),
    "InvalidBlockId": (400, "Bug"),
    "InvalidBlockList": (400, "Conflict"),
    "InvalidMd5": (400, "ChecksumMismatch"),
    "InvalidMetadata": (400, "Unusable"),
    "InvalidRange": (416, "Truncated"),
    "InvalidResourceName": (400, "InvalidURL"),
    "InvalidUri": (400, "InvalidURL"),
    "LeaseIdMissing": (412, "Conflict"),
    "Md5Mismatch": (400, "ChecksumMismatch"),
    "MetadataTooLarge": (400, "Unusable"),
    "NoAuthenticationInformation": (401, "Unauthenticated"),
    "OperationTimedOut": (500, "TimedOut"),
    "PublicAccessNotPermitted": (409, "Forbidden"),
    "RequestBodyTooLarge": (413, "Unusable"),
    "ResourceNotFound": (404, "NotFound"),
    "ServerBusy": (503, "Throttled"),
    "SnapshotsPresent": (409, "Conflict"),
    "SourceConditionNotMet": (412, "PreconditionFailed"),
    "UnsupportedHeader": (400, "Unsupported"),
}
# Of the SDK's list, what objects' and listings' requests cannot meet: other services, and requests that are never made.
ELSEWHERE = {
    *("AccountAlreadyExists", "AccountBeingCreated", "AppendPositionConditionNotMet", "CannotChangeToLowerTier"),
    *("ContainerAlreadyExists", "CopyIdMismatch", "IncrementalCopyBlobMismatch", "InfiniteLeaseDurationRequired"),
    *("IncrementalCopyOfEarlierVersionSnapshotNotAllowed", "IncrementalCopySourceMustBeSnapshot", "InvalidBlobTier"),
    *("InvalidPageRange", "InvalidVersionForPageBlobOperation", "LeaseAlreadyBroken", "BlobNotArchived"),
    *("LeaseIdMismatchWithContainerOperation", "LeaseIdMismatchWithLeaseOperation", "NoPendingCopyOperation"),
    *("LeaseIsBreakingAndCannotBeAcquired", "LeaseIsBreakingAndCannotBeChanged", "MaxBlobSizeConditionNotMet"),
    *("LeaseIsBrokenAndCannotBeRenewed", "LeaseNotPresentWithContainerOperation", "SnapshotCountExceeded"),
    *("LeaseNotPresentWithLeaseOperation", "OperationNotAllowedOnIncrementalCopyBlob", "PreviousSnapshotNotFound"),
    *("PreviousSnapshotCannotBeNewer", "PreviousSnapshotOperationNotSupported", "SequenceNumberConditionNotMet"),
    *("SequenceNumberIncrementTooLarge", "SnapshotOperationRateExceeded", "ResourceAlreadyExists"),
    *("IncrementalCopyOfEarlierSnapshotNotAllowed", "BlobAccessTierNotSupportedForAccountType"),
    "CannotVerifyCopySource",  # its status says what is wrong
}
QUEUES_AND_FILES = (
    *("Queue", "Message", "PopReceipt", "Share", "File", "Directory", "Path", "Filesystem", "Rename", "InvalidMarker"),
    *("Delete", "ParentNotFound", "ReadOnly", "Client", "Sharing", "ContentLengthMustBe", "Flush", "InvalidSource"),
    *("InvalidProperty", "UnsupportedRest", "Destination", "SourcePath", "Quota", "LeaseName", "LeaseIsAlready"),
    "CannotDelete",
)


def _error(status, code="", **headers):
    body = f"<Error><Code>{code}</Code><Message>words</Message></Error>".encode() if code else b""
    return AZURE_CODES.refusal(Response(status, headers, body), "read", "az://c/k").error


@pytest.mark.parametrize("code", DOCUMENTED)
def test_every_documented_code_has_the_error_that_a_caller_needs(code):
    status, name = DOCUMENTED[code]
    error = _error(status, code)
    assert (type(error), error.code) == (getattr(errors, name), code)
    head = AZURE_CODES.refusal(Response(status, {"x-ms-error-code": code}), "look up", "az://c/k").error
    assert type(head) is type(error), "an answer to HEAD has the code in a header"


def test_the_sdks_list_of_codes_is_in_the_table():
    """But for the codes of queues, files and folders, and of requests that Penstock does not make."""
    known = {each.value for each in StorageErrorCode}
    ours = {code for code in known if not any(word in code for word in QUEUES_AND_FILES)}
    assert ours - AZURE_CODES.codes.keys() == ELSEWHERE & ours
    assert len(ours - ELSEWHERE) > 50


def test_no_row_of_the_table_breaks_the_rules_of_errors():
    assert all(issubclass(meaning.error, PenstockError) for meaning in AZURE_CODES.codes.values())
    assert {code for code, meaning in AZURE_CODES.codes.items() if meaning.missing == "bucket"} == {
        "ContainerNotFound",
        "ContainerBeingDeleted",
    }


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((408, TimedOut), (429, Throttled), (500, Transient), (502, Transient), (503, Throttled), (504, TimedOut)),
        *((501, Unsupported), (505, Unsupported), (401, Unauthenticated)),
    ],
)
def test_statuses_are_retried_as_the_sdk_does(status, kind):
    """408 and 5xx but for 501 and 505; and 429, which the SDK leaves to its caller."""
    error = _error(status)
    assert type(error) is kind
    assert bool(error.retries) == (status in {408, 429, 500, 502, 503, 504})


def test_only_invalid_authentication_info_renews_credentials():
    assert {code for code, meaning in AZURE_CODES.codes.items() if meaning.renews} == {"InvalidAuthenticationInfo"}
