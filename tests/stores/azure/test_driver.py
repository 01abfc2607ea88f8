"""Azure's dialect keeps every promise on a server that checks signatures, and believes none that is odd."""

import random
import uuid
from base64 import b64decode, b64encode

import pytest
from azure.storage.blob import StorageErrorCode

from penstock import errors
from penstock.engine.contracts.driver import Attributes, Payload, UploadPart
from penstock.engine.contracts.exchange import Response
from penstock.engine.transport.loop import connect
from penstock.errors import (
    ChecksumMismatch,
    ConfigError,
    Conflict,
    Damaged,
    InvalidURL,
    NotFound,
    PenstockError,
    Throttled,
    TimedOut,
    Transient,
    Unauthenticated,
    Unsupported,
    Unusable,
)
from penstock.options import TransportOptions
from penstock.stores.azure.driver import (
    AZURE_CODES,
    AzureDriver,
    block_id,
    block_list,
    conditions,
    described_in,
    encode_attributes,
    make_match_header,
    new_upload,
)
from penstock.stores.azure.signing import AccountKey, Container, SharedAccess
from penstock.stores.credentials import RefreshingCredentials
from penstock.testing.drivers import Trial
from penstock.testing.faults import FaultServer, Settings
from penstock.testing.servers import Scripted, reply
from tests.servers import Account


class Given:
    """A source of credentials that are there."""

    def __init__(self, credentials):
        self.credentials = credentials

    def load(self):
        return self.credentials


KEY = b64encode(b"a key").decode()


def driver_of(account, name, credentials=None, **options):
    place = Container(name, account.name, account.endpoint, f"az://{name}/")
    return AzureDriver(place, RefreshingCredentials(Given(credentials or AccountKey(account.key))), **options)


def account_of(server):
    options = server.store
    key = b64encode(server.settings.secret_key.encode()).decode()
    return Account(options.endpoint, options.account, key)


@pytest.fixture(scope="module")
def hierarchical_server():
    with FaultServer.start(Settings(dialect="azure-hns")) as server:
        yield server


class TestHierarchical:
    """An account with a hierarchical namespace: names are paths, folders are there, and are never objects."""

    @pytest.fixture
    def trial(self, hierarchical_server):
        name = f"test-{uuid.uuid4().hex}"
        hierarchical_server.make(name)
        return Trial(driver_of(account_of(hierarchical_server), name), connect(TransportOptions()))

    def test_the_pages_of_folders_join_to_all_keys_in_order(self, trial, seed):
        draw = random.Random(seed)
        parts = ("a", "a!", "a-", "a.txt", "a0", "é", "\uffee", "🐶", "日本")
        keys = {"/".join(draw.choice(parts) for _ in range(draw.randint(1, 4))) for _ in range(150)}
        keys = sorted((key for key in keys if not any(each.startswith(f"{key}/") for each in keys)), key=str.encode)
        trial.put_all(keys)
        trial.driver.page_keys = 7
        for prefix in ("", "a", "a/", "a!", "é/", "nothing"):
            found = [key for key in keys if key.startswith(prefix)]
            assert trial.keys(prefix) == found
            assert trial.keys(prefix, start_after=f"{prefix}a/é") == [
                key for key in found if key.encode() > f"{prefix}a/é".encode()
            ]

    def test_azure_folder_raises_not_found_and_deletion_keeps_its_blobs(self, trial):
        trial.put_all(["a/b/c"])
        for folder in ("a", "a/b"):
            with pytest.raises(NotFound, match="this is a folder"):
                trial.head(folder)
            trial.do(trial.driver.delete(folder))
        assert trial.keys() == ["a/b/c"]
        trial.do(trial.driver.delete("a/b/c"))
        assert trial.keys() == []

    def test_only_slashes_delimit(self, trial):
        trial.put_all(["a/b"])
        with pytest.raises(Unsupported, match="delimiter"):
            next(trial.pages(delimiter="-"))


class TestAnswers:
    """What a server may say, and what Penstock makes of it."""

    def _ask(self, answer, verb, **options):
        def script(_received, send):
            send(answer)
            return False

        with Scripted(script) as server:
            account = Account(f"{server.url}/mine", "mine", KEY)
            driver = driver_of(account, "box", **options)
            return verb(Trial(driver, connect(TransportOptions())))

    def test_a_request_without_a_key_is_never_one_for_the_container(self):
        """A DELETE of no key could delete the container."""
        driver = driver_of(Account("http://127.0.0.1:1/mine", "mine", KEY), "box")
        verbs = [
            driver.head,
            driver.delete,
            lambda key: driver.get(key, ""),
            lambda key: driver.create(key, Attributes()),
        ]
        verbs += [lambda key: driver.put(key, Payload(b""), Attributes()), lambda key: driver.copy("from", key)]
        for verb in verbs:
            with pytest.raises(InvalidURL, match="names a container"):
                verb("")

    def test_no_redirect_is_followed(self):
        with pytest.raises(ConfigError, match="points elsewhere"):
            self._ask(reply(307, location="http://127.0.0.1:1/mine/box/key"), lambda trial: trial.get("key"))

    def test_folder_marker_header_raises_not_found(self):
        for header in (b"x-ms-meta-hdi_isfolder: true", b"x-ms-resource-type: directory"):
            answer = b"HTTP/1.1 200 .\r\ncontent-length: 0\r\n" + header + b"\r\n\r\n"
            with pytest.raises(NotFound, match="this is a folder"):
                self._ask(answer, lambda trial: trial.head("key"))

    def test_bytes_are_compared_with_the_stored_digest_unless_that_is_switched_off(self):
        wrong = reply(200, b"bytes", etag='"e"', content_md5=b64encode(bytes(16)).decode())
        for read in (lambda trial: trial.get("key"), lambda trial: trial.read("key", 0, 5, "e", whole=True)):
            with pytest.raises(ChecksumMismatch):
                self._ask(wrong, read)
            assert self._ask(wrong, read, checksums=False) == b"bytes"

    @pytest.mark.parametrize("body", [b"<html><body>log in</body></html>", b"{}", b"\0"])
    def test_an_answer_that_is_not_azures_is_damaged(self, body):
        for verb in (lambda driver: driver.list(""), lambda driver: driver.uploads("")):
            with pytest.raises(Damaged, match=r"check endpoint=.*az://box/"):
                self._ask(reply(200, body), lambda trial, verb=verb: trial.do(verb(trial.driver)))

    def test_a_lease_is_not_taken_for_another_version(self):
        refused = reply(412, x_ms_error_code="LeaseIdMissing")
        with pytest.raises(Conflict, match="holds a lease") as caught:
            self._ask(
                refused, lambda trial: trial.do(trial.driver.put("k", Payload(b""), Attributes(create_only=True)))
            )
        assert type(caught.value) is Conflict

    def test_a_signature_in_the_query_is_in_no_error(self):
        sas = SharedAccess("sv=1&sig=a-very-secret-signature")
        body = b"<Error><Code>AuthenticationFailed</Code><Message>sig=a-very-secret-signature</Message></Error>"
        with pytest.raises(Unauthenticated) as caught:
            self._ask(reply(403, body), lambda trial: trial.get("key"), credentials=sas)
        assert "secret" not in f"{caught.value}"

    def test_memory_of_aborted_uploads_is_bounded(self):
        driver = driver_of(Account("http://127.0.0.1:1/mine", "mine", KEY), "box")
        for number in range(3000):
            driver.abort("key", f"upload-{number}").request.run()
        assert len(driver._aborted) <= 1024


# -- Every code that Microsoft names for blobs has the error that a caller needs --


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
    *("CopyIdMismatch", "IncrementalCopyBlobMismatch", "InfiniteLeaseDurationRequired"),
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


# -- An upload is a random name that carries its object's attributes; headers hold what the service takes --


def test_ids_of_blocks_are_of_one_length_and_of_one_upload():
    uploads = [new_upload(Attributes("text/plain", {"a": "größer"})) for _ in range(2)]
    ids = [block_id(upload, UploadPart(number, 0)) for upload in uploads for number in (1, 9, 50_000)]
    assert len(set(ids)) == 6
    assert {len(b64decode(each)) for each in ids} == {32}
    assert {len(each) for each in ids} == {44}


def test_an_upload_carries_its_attributes():
    attributes = Attributes("text/plain", {"note": "größer, 日本"}, create_only=True)
    assert described_in(new_upload(attributes)) == encode_attributes(attributes)
    assert encode_attributes(attributes)["x-ms-blob-content-type"] == "text/plain"


def test_the_list_of_blocks_is_in_order():
    assert block_list(["Yg==", "YQ=="]).endswith(b"<BlockList><Latest>Yg==</Latest><Latest>YQ==</Latest></BlockList>")


@pytest.mark.parametrize("name", ["with-hyphen", "1st", "dot.ted", "é", "", "sp ace"])
def test_names_of_metadata_are_identifiers(name):
    with pytest.raises(Unusable, match="metadata names"):
        encode_attributes(Attributes("text/plain", {name: "x"}))


def test_conditions():
    assert conditions(create_only=True, replaces="") == {"if-none-match": "*"}
    assert conditions(create_only=False, replaces="0x8D") == {"if-match": '"0x8D"'}
    assert conditions(create_only=False, replaces="") == {}
    assert make_match_header("if-match", "not\none") == {}
