"""Dialects of the family: the requests and answers of S3, OSS and GCS's XML."""

from base64 import b64encode
from hashlib import md5, sha256
from typing import ClassVar

import botocore.loaders
import pytest
from botocore.retries import standard

from penstock import errors
from penstock.engine.buffer import Buffer
from penstock.engine.contracts.driver import MOVED, Attributes, Payload, UploadPart
from penstock.engine.contracts.exchange import Response
from penstock.errors import Changed, ConfigError, PenstockError, Transient, Unauthenticated, Unsupported, Unusable
from penstock.stores.http.verify import Verification
from penstock.stores.s3.dialect import S3_CODES, Amazon, BucketAddress, Cluster, Dialect
from penstock.stores.s3.driver import S3Driver
from penstock.values import Span
from tests.servers.hostile import document


class Nobody:
    def current(self):
        return None

    def refresh_if_due(self):
        pass

    def renew(self):
        pass


class OSS(Dialect):
    prefix = "x-oss-"
    copy_pin = "x-oss-copy-source-if-match"
    create = ("x-oss-forbid-overwrite", "true")
    replace = ""
    conditions_begin = True
    read_headers: ClassVar = {"x-oss-range-behavior": "standard"}


class GCS(Dialect):
    prefix = "x-goog-"
    verification = Verification(version="x-goog-generation", size="x-goog-stored-content-length")
    version_element = "Generation"
    pin = "x-goog-if-generation-match"
    copy_pin = "x-goog-copy-source-if-generation-match"
    create = ("x-goog-if-generation-match", "0")
    replace = "x-goog-if-generation-match"
    quotes = False


NEW, OLD = Attributes("text/plain", {"note": "x"}, create_only=True), Attributes("text/plain", replaces="17")


def _driver(kind):
    return S3Driver(BucketAddress("b", "https://h", virtual=True, scheme="gs"), "r", Nobody(), kind())


def _headers(exchange):
    lines = [line.partition(":")[::2] for line in exchange.request.headers]
    return {name.lower(): value.strip() for name, value in lines if value}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Amazon, {"x-amz-meta-note": "x", "if-none-match": "*"}),
        (OSS, {"x-oss-meta-note": "x", "x-oss-forbid-overwrite": "true"}),
        (GCS, {"x-goog-meta-note": "x", "x-goog-if-generation-match": "0"}),
    ],
)
def test_a_create_only_put_has_the_dialects_condition_and_metadata(kind, expected):
    assert _headers(_driver(kind).put("k", Payload(b"x"), NEW)) == {"content-type": "text/plain", **expected}


@pytest.mark.parametrize(
    ("kind", "expected"), [(Amazon, {"if-match": '"17"'}), (OSS, {}), (GCS, {"x-goog-if-generation-match": "17"})]
)
def test_a_replacement_is_held_to_a_version_as_the_dialect_has_it(kind, expected):
    assert _headers(_driver(kind).put("k", Payload(b"x"), OLD)) == {"content-type": "text/plain", **expected}
    assert _headers(_driver(kind).complete("k", "u", ["e"], replaces="17")) == expected


def test_an_uploads_condition_is_sent_where_the_dialect_wants_it():
    assert "x-oss-forbid-overwrite" in _headers(_driver(OSS).create("k", NEW))
    assert "x-oss-forbid-overwrite" in _headers(_driver(OSS).complete("k", "u", ["e"], create_only=True))
    assert "if-none-match" not in _headers(_driver(Amazon).create("k", NEW))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Amazon, {"if-match": '"17"', "range": "bytes=2-3"}),
        (OSS, {"if-match": '"17"', "range": "bytes=2-3", "x-oss-range-behavior": "standard"}),
        (GCS, {"x-goog-if-generation-match": "17", "range": "bytes=2-3"}),
    ],
)
def test_a_read_is_held_to_a_version_as_the_dialect_has_it(kind, expected):
    assert _headers(_driver(kind).read(Span("k", 2, 4, "17"), Buffer.allocate(2))) == expected


def test_a_copy_names_its_source_and_version_as_the_dialect_has_it():
    source = {"x-goog-copy-source": "b/from%20here", "x-goog-copy-source-if-generation-match": "17"}
    assert _headers(_driver(GCS).copy("from here", "to", "17")) == source
    part = _headers(_driver(OSS).copy_part("to", "u", UploadPart(1, 0), Span("k", 0, 4, "e")))
    assert part == {
        "x-oss-copy-source": "b/k",
        "x-oss-copy-source-if-match": '"e"',
        "x-oss-copy-source-range": "bytes=0-3",
    }


def test_a_generation_is_the_version_in_listings_heads_reads_and_writes():
    driver = _driver(GCS)
    entry = "<Contents><Key>k</Key><Size>4</Size><ETag>&quot;e&quot;</ETag><Generation>17</Generation></Contents>"
    body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{entry}</ListBucketResult>".encode()
    assert driver.list("").parse(Response(200, body=body)).entries[0].etag == "17"
    headers = {"etag": '"e"', "x-goog-generation": "17", "x-goog-stored-content-length": "4", "content-length": "9"}
    found = driver.head("k").parse(Response(200, headers | {"x-goog-meta-note": "x"}))
    assert (found.etag, found.size, found.metadata) == ("17", 4, {"note": "x"})
    assert driver.put("k", Payload(b""), NEW).parse(Response(200, headers)) == "17"
    assert driver.part("k", "u", UploadPart(1, 0), Payload(b"")).parse(Response(200, headers)) == "e"
    completed = document("CompleteMultipartUploadResult", ETag='"e-2"')
    assert driver.complete("k", "u", ["e"]).parse(Response(200, headers, completed)) == "17"
    buffer = Buffer.allocate(4)
    exchange = driver.read(Span("k", 0, 4, "17", whole=True), buffer)
    assert exchange.request.wants == ("x-goog-generation",)
    assert exchange.parse(Response(200, {"x-goog-generation": "17"}, received=4)) == 4
    with pytest.raises(Changed):
        exchange.parse(Response(200, {"x-goog-generation": "18"}, received=4))
    assert driver.url("k") == "gs://b/k"


class _Sum:
    def __init__(self, stored):
        self._wanted, self._sum = stored.split(","), 0

    def update(self, data):
        self._sum += sum(data)

    def matches(self):
        return f"sum={self._sum}" in self._wanted


def test_a_digest_of_another_kind_is_one_function():
    class Summed(GCS):
        verification = Verification(digests={"x-goog-hash": _Sum})

    driver = _driver(Summed)
    answer = {"content-length": "2", "x-goog-hash": "md5=x,sum=3"}
    assert driver.get("k", "").parse(Response(200, answer, b"\1\2")) == b"\1\2"
    with pytest.raises(Exception, match="x-goog-hash"):
        driver.get("k", "").parse(Response(200, answer, b"\1\3"))


LOCKED = "Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object requests with Object Lock parameters"


@pytest.mark.parametrize("verb", ["put", "part"])
def test_a_bucket_whose_objects_are_locked_gets_the_md5_of_bodies_after_one_refusal(verb):
    driver, body = _driver(Amazon), Payload(b"data", sha256(b"data").hexdigest())
    made = {
        "put": lambda: driver.put("k", body, Attributes("text/plain")),
        "part": lambda: driver.part("k", "u", UploadPart(1, 0), body),
    }[verb]
    first, beside = made(), made()
    refused = Response(400, body=document("Error", Code="InvalidRequest", Message=LOCKED))
    for exchange in (first, beside):  # both were on their way
        assert "content-md5" not in _headers(exchange)
        with pytest.raises(Unusable) as caught:
            exchange.parse(refused)
        assert (caught.value.code, caught.value.retries) == (MOVED, 1)
    again = made()
    assert _headers(again)["content-md5"] == b64encode(md5(b"data", usedforsecurity=False).digest()).decode()
    digest = driver.abilities.digest()
    digest.update(b"data")
    body = Payload(b"data", digest.hexdigest())  # as it is made from now on, where the bytes come from
    assert _headers(made()) == _headers(again)
    assert body.later == {}, "nothing was digested for the request"
    with pytest.raises(Unusable) as caught:
        again.parse(refused)
    assert caught.value.retries == 0, "it had what it wants"


# -- S3's code table against the lists of others: AWS's documentation, botocore's service model and its retry lists --


# "List of error codes" of the Amazon S3 API reference (2006-03-01), with the HTTP status given there and the error that
# a caller of Penstock needs. Codes of requests that Penstock never sends (ACLs, policies, websites, POST forms,
# inventories) are told by their status: whoever meets one has another server, or a proxy, before them.
DOCUMENTED = {
    "AccessControlListNotSupported": (400, "Unusable"),
    "AccessDenied": (403, "Forbidden"),
    "AccountProblem": (403, "Forbidden"),
    "AllAccessDisabled": (403, "Forbidden"),
    "AmbiguousGrantByEmailAddress": (400, "Unusable"),
    "AuthorizationHeaderMalformed": (400, "ConfigError"),
    "AuthorizationQueryParametersError": (400, "Unusable"),
    "BadDigest": (400, "ChecksumMismatch"),
    "BucketAlreadyExists": (409, "AlreadyExists"),
    "BucketAlreadyOwnedByYou": (409, "AlreadyExists"),
    "BucketHasAccessPointsAttached": (400, "Unusable"),
    "BucketNotEmpty": (409, "Unusable"),
    "ClientTokenConflict": (409, "Conflict"),
    "ConnectionClosedByRequester": (400, "Unusable"),
    "ConditionalRequestConflict": (409, "Transient"),
    "CredentialsNotSupported": (400, "Unusable"),
    "CrossLocationLoggingProhibited": (403, "Forbidden"),
    "DeviceNotActiveError": (400, "Unusable"),
    "EndpointNotFound": (400, "Unusable"),
    "EntityTooLarge": (400, "Unusable"),
    "EntityTooSmall": (400, "Unusable"),
    "ExpiredToken": (400, "Unauthenticated"),
    "IllegalLocationConstraintException": (400, "ConfigError"),
    "IllegalVersioningConfigurationException": (400, "Unusable"),
    "IncompleteBody": (400, "Transient"),
    "IncorrectNumberOfFilesInPostRequest": (400, "Unusable"),
    "InlineDataTooLarge": (400, "Unusable"),
    "InternalError": (500, "Transient"),
    "InvalidAccessKeyId": (403, "Unauthenticated"),
    "InvalidAccessPoint": (400, "Unusable"),
    "InvalidAddressingHeader": (400, "Unusable"),
    "InvalidArgument": (400, "Unusable"),
    "InvalidBucketName": (400, "InvalidURL"),
    "InvalidBucketState": (409, "Conflict"),
    "InvalidDigest": (400, "ChecksumMismatch"),
    "InvalidEncryptionAlgorithmError": (400, "Unusable"),
    "InvalidLocationConstraint": (400, "ConfigError"),
    "InvalidObjectState": (403, "Forbidden"),
    "InvalidPart": (400, "Conflict"),
    "InvalidPartOrder": (400, "Bug"),
    "InvalidPayer": (403, "Forbidden"),
    "InvalidPolicyDocument": (400, "Unusable"),
    "InvalidRange": (416, "Truncated"),
    "InvalidRegion": (403, "Forbidden"),
    "InvalidRequest": (400, "Unusable"),
    "InvalidSecurity": (403, "Unauthenticated"),
    "InvalidSOAPRequest": (400, "Unusable"),
    "InvalidStorageClass": (400, "Unusable"),
    "InvalidTargetBucketForLogging": (400, "Unusable"),
    "InvalidToken": (400, "Unauthenticated"),
    "InvalidURI": (400, "InvalidURL"),
    "KeyTooLongError": (400, "InvalidURL"),
    "MalformedACLError": (400, "Unusable"),
    "MalformedPOSTRequest": (400, "Unusable"),
    "MalformedXML": (400, "Unusable"),
    "MaxMessageLengthExceeded": (400, "Unusable"),
    "MaxPostPreDataLengthExceededError": (400, "Unusable"),
    "MetadataTooLarge": (400, "Unusable"),
    "MethodNotAllowed": (405, "Unsupported"),
    "MissingAttachment": (400, "Unusable"),
    "MissingAuthenticationToken": (403, "Unauthenticated"),
    "MissingContentLength": (411, "Bug"),
    "MissingRequestBodyError": (400, "Unusable"),
    "MissingSecurityElement": (400, "Unusable"),
    "MissingSecurityHeader": (400, "Unauthenticated"),
    "NoLoggingStatusForKey": (400, "Unusable"),
    "NoSuchAccessPoint": (404, "NotFound"),
    "NoSuchBucket": (404, "NotFound"),
    "NoSuchBucketPolicy": (404, "NotFound"),
    "NoSuchCORSConfiguration": (404, "NotFound"),
    "NoSuchKey": (404, "NotFound"),
    "NoSuchLifecycleConfiguration": (404, "NotFound"),
    "NoSuchObjectLockConfiguration": (404, "NotFound"),
    "NoSuchTagSet": (404, "NotFound"),
    "NoSuchUpload": (404, "NotFound"),
    "NoSuchVersion": (404, "NotFound"),
    "NoSuchWebsiteConfiguration": (404, "NotFound"),
    "NotDeviceOwnerError": (400, "Unusable"),
    "NotImplemented": (501, "Unsupported"),
    "NotModified": (304, "ConfigError"),
    "NotSignedUp": (403, "Forbidden"),
    "ObjectLockConfigurationNotFoundError": (404, "NotFound"),
    "OperationAborted": (409, "Transient"),
    "OwnershipControlsNotFoundError": (404, "NotFound"),
    "PermanentRedirect": (301, "ConfigError"),
    "PreconditionFailed": (412, "PreconditionFailed"),
    "Redirect": (307, "Transient"),
    "ReplicationConfigurationNotFoundError": (404, "NotFound"),
    "RequestExpired": (400, "Unauthenticated"),
    "RequestHeaderSectionTooLarge": (400, "Unusable"),
    "RequestIsNotMultiPartContent": (400, "Unusable"),
    "RequestTimeout": (400, "TimedOut"),
    "RequestTimeTooSkewed": (403, "Unauthenticated"),
    "RequestTorrentOfBucketError": (400, "Unusable"),
    "RestoreAlreadyInProgress": (409, "Conflict"),
    "ServerSideEncryptionConfigurationNotFoundError": (400, "Unusable"),
    "ServiceUnavailable": (503, "Throttled"),
    "SignatureDoesNotMatch": (403, "Unauthenticated"),
    "SlowDown": (503, "Throttled"),
    "TemporaryRedirect": (307, "Transient"),
    "TokenCodeInvalidError": (400, "Unusable"),
    "TokenRefreshRequired": (400, "Unauthenticated"),
    "TooManyAccessPoints": (400, "Unusable"),
    "TooManyBuckets": (400, "Unusable"),
    "TooManyMultiRegionAccessPointregionsError": (400, "Unusable"),
    "UnauthorizedAccess": (403, "Forbidden"),
    "UnexpectedContent": (400, "Unusable"),
    "UnexpectedIPError": (403, "Forbidden"),
    "UnresolvableGrantByEmailAddress": (400, "Unusable"),
    "UserKeyMustBeSpecified": (400, "Unusable"),
    "XAmzContentSHA256Mismatch": (400, "ChecksumMismatch"),
}
# From no list of AWS's S3: where else a code comes from, and the error that a caller needs.
ELSEWHERE = {
    "InvalidRegionName": (400, "ConfigError"),  # STS-like endpoints of AWS
    "QuotaExceeded": (403, "NoSpace"),  # Ceph
    "TooManyRequests": (429, "Throttled"),  # R2, Ceph
    "XMinioServerNotInitialized": (503, "Transient"),  # MinIO
    "XMinioStorageFull": (507, "NoSpace"),  # MinIO
}
MODEL = botocore.loaders.Loader().load_service_model("s3", "service-2")["shapes"]
RETRIED = {
    *standard.TransientRetryableChecker._TRANSIENT_ERROR_CODES,
    *standard.ThrottledRetryableChecker._THROTTLED_ERROR_CODES,
}
# Retried by botocore for other services than S3.
OTHER_SERVICES = {
    *("EC2ThrottledException", "LimitExceededException", "ProvisionedThroughputExceededException"),
    "TransactionInProgressException",
}


def _error(status, code):
    return S3_CODES.refusal(Response(status, body=document("Error", Code=code)), "read", "s3://b/k").error


@pytest.mark.parametrize("code", DOCUMENTED)
def test_every_documented_code_has_the_error_that_a_caller_needs(code):
    status, name = DOCUMENTED[code]
    assert type(_error(status, code)) is getattr(errors, name)


def test_every_code_of_botocores_model_has_the_error_of_its_kind():
    for code, shape in MODEL.items():
        if shape.get("exception"):
            error = _error(shape["error"]["httpStatusCode"], code)
            kind = {403: errors.Forbidden, 404: errors.NotFound, 409: errors.AlreadyExists}
            assert isinstance(error, kind.get(shape["error"]["httpStatusCode"], errors.Unusable)), code


@pytest.mark.parametrize("code", sorted(RETRIED - OTHER_SERVICES))
def test_error_codes_retried_by_aws_sdk_are_transient(code):
    assert isinstance(_error(400, code), Transient)


def test_no_row_of_the_table_is_in_no_list():
    assert {*S3_CODES.codes} <= {*DOCUMENTED, *ELSEWHERE, *RETRIED, "ThrottlingException"}


@pytest.mark.parametrize("code", ELSEWHERE)
def test_every_code_of_other_stores_has_the_error_that_a_caller_needs(code):
    status, name = ELSEWHERE[code]
    assert type(_error(status, code)) is getattr(errors, name)


# As botocore's S3RegionRedirector has it, and as AWS documents which codes ask for new credentials.
REGION = {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect"}
RENEWED = {"ExpiredToken", "InvalidToken", "RequestExpired", "TokenRefreshRequired"}


def test_regions_are_followed_where_awss_sdk_follows_them():
    followed = {code for code, meaning in S3_CODES.codes.items() if meaning.region}
    assert followed >= REGION
    assert followed - REGION == {"InvalidLocationConstraint", "InvalidRegionName", "Redirect", "TemporaryRedirect"}
    assert {status for status, meaning in S3_CODES.statuses.items() if meaning.region} == {301, 307, 400}


def test_credentials_are_renewed_for_codes_that_report_expiry():
    assert {code for code, meaning in S3_CODES.codes.items() if meaning.renews} == RENEWED
    assert {status for status, meaning in S3_CODES.statuses.items() if meaning.renews} == {400, 403}
    assert all(S3_CODES.codes[code].error is Unauthenticated for code in RENEWED)


def test_the_right_region_is_named_wherever_the_answer_has_it():
    body = document("Error", Code="AuthorizationHeaderMalformed", Region="eu-west-1")
    refusal = S3_CODES.refusal(Response(400, body=body), "read", "")
    assert ("region='eu-west-1'" in str(refusal.error), refusal.region) == (True, "eu-west-1")
    headers = {"x-amz-bucket-region": "eu-west-2"}
    refusal = S3_CODES.refusal(Response(301, headers, document("Error", Code="PermanentRedirect")), "read", "")
    assert (type(refusal.error), refusal.region) == (ConfigError, "eu-west-2")


@pytest.mark.parametrize("region", ["evil.com", "a/b", "a@b", "x" * 41, "EU", "a b", "é", "%2e"])
def test_unsafe_region_in_refusal_is_discarded(region):
    body = document("Error", Code="AuthorizationHeaderMalformed", Region=region)
    for response in (Response(400, body=body), Response(301, {"x-amz-bucket-region": region})):
        assert S3_CODES.refusal(response, "read", "").region == ""


def test_key_details_in_server_refusal_are_hidden_from_error():
    body = document(
        "Error", Code="SignatureDoesNotMatch", AWSAccessKeyId="ID", StringToSign="TOKEN", SignatureProvided="S"
    )
    error = S3_CODES.refusal(Response(403, body=body), "read", "").error
    assert isinstance(error, PenstockError)
    assert not {"ID", "TOKEN"} & set(str(error).replace("_", " ").split())


def test_cluster_is_refused_versions():
    driver = _driver(Cluster)
    for verb in (driver.versioning, driver.list_versions):
        with pytest.raises(Unsupported, match="this kind of store has none"):
            verb("")
