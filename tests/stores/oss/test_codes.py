"""OSS's code table: each documented code has the error that a caller needs, and HEAD's codes are read from a header."""

from __future__ import annotations

from base64 import b64encode

import pytest

from penstock import errors
from penstock.engine.contracts.exchange import Response
from penstock.errors import ConfigError, Forbidden, NotFound, Unauthenticated
from penstock.stores.oss.dialect import OSS_CODES
from tests.servers.hostile import document

# "Error codes" of the OSS API reference, those that a request of Penstock can meet, with the HTTP status given there.
DOCUMENTED = {
    "AccessDenied": (403, "Forbidden"),
    "AccessForbidden": (403, "Forbidden"),
    "AccessKeyIdAndSecurityTokenNotMatch": (403, "Unauthenticated"),
    "BadRequest": (400, "Transient"),
    "BucketAlreadyExists": (409, "AlreadyExists"),
    "BucketDisable": (403, "Forbidden"),
    "CnameDenied": (403, "ConfigError"),
    "DownloadTrafficRateLimitExceeded": (503, "Throttled"),
    "EntityTooLarge": (400, "Unusable"),
    "EntityTooSmall": (400, "Unusable"),
    "FileAlreadyExists": (409, "AlreadyExists"),
    "FileImmutable": (409, "Forbidden"),
    "FilePartInterity": (400, "Conflict"),
    "FilePartNotExist": (400, "Conflict"),
    "FilePartStale": (400, "Conflict"),
    "InDebt": (403, "Forbidden"),
    "InDebtOverdue": (403, "Forbidden"),
    "InternalError": (500, "Transient"),
    "InvalidAccessKeyId": (403, "Unauthenticated"),
    "InvalidArgument": (400, "Unusable"),
    "InvalidBucketName": (400, "InvalidURL"),
    "InvalidDigest": (400, "ChecksumMismatch"),
    "InvalidObjectName": (400, "InvalidURL"),
    "InvalidObjectState": (403, "Forbidden"),
    "InvalidPart": (400, "Conflict"),
    "InvalidPartOrder": (400, "Bug"),
    "InvalidRange": (416, "Truncated"),
    "InvalidSecurityToken": (403, "Unauthenticated"),
    "MalformedXML": (400, "Unusable"),
    "MethodNotAllowed": (405, "Unsupported"),
    "MissingContentLength": (411, "Bug"),
    "NoSuchBucket": (404, "NotFound"),
    "NoSuchKey": (404, "NotFound"),
    "NoSuchUpload": (404, "NotFound"),
    "NotImplemented": (501, "Unsupported"),
    "OperationNotSupported": (400, "Unsupported"),
    "PreconditionFailed": (412, "PreconditionFailed"),
    "PublicEndpointForbidden": (403, "ConfigError"),
    "QpsLimitExceeded": (503, "Throttled"),
    "RequestTimeTooSkewed": (403, "Unauthenticated"),
    "RequestTimeout": (400, "TimedOut"),
    "SecondLevelDomainForbidden": (403, "ConfigError"),
    "SecurityTokenExpired": (403, "Unauthenticated"),
    "ServiceUnavailable": (503, "Throttled"),
    "SignatureDoesNotMatch": (403, "Unauthenticated"),
    "TotalQpsLimitExceeded": (503, "Throttled"),
    "UploadTrafficRateLimitExceeded": (503, "Throttled"),
    "UserDisable": (403, "Forbidden"),
}


def _refusal(status, headers=None, **texts):
    return OSS_CODES.refusal(Response(status, headers or {}, document("Error", **texts)), "read", "oss://b/k")


@pytest.mark.parametrize("code", DOCUMENTED)
def test_every_documented_code_has_the_error_that_a_caller_needs(code):
    status, name = DOCUMENTED[code]
    assert type(_refusal(status, Code=code).error) is getattr(errors, name)


def test_every_row_is_documented():
    assert {*OSS_CODES.codes} <= {*DOCUMENTED}


def test_advice_names_oss_settings_only():
    advice = " ".join(row.advice for row in (*OSS_CODES.codes.values(), *OSS_CODES.statuses.values()))
    assert "OSS_ACCESS_KEY_ID" in advice
    assert "AWS" not in advice


def test_credentials_are_renewed_where_they_have_expired():
    renewed = {code for code, row in OSS_CODES.codes.items() if row.renews}
    assert renewed == {"AccessKeyIdAndSecurityTokenNotMatch", "InvalidSecurityToken", "SecurityTokenExpired"}
    assert all(OSS_CODES.codes[code].error is Unauthenticated for code in renewed)


def test_the_region_is_named_wherever_the_answer_has_an_endpoint():
    for endpoint in ("oss-cn-beijing.aliyuncs.com", "oss-cn-beijing-internal.aliyuncs.com"):
        refusal = _refusal(403, Code="AccessDenied", Endpoint=endpoint)
        assert (type(refusal.error), refusal.region, refusal.meaning.region) == (ConfigError, "cn-beijing", True)
        assert "OSSOptions(region='cn-beijing') or set OSS_REGION" in str(refusal.error)
    assert type(_refusal(403, Code="AccessDenied").error) is Forbidden


@pytest.mark.parametrize("host", ["oss-evil.example", "oss-a.aliyuncs.com.evil", "oss-a/b.aliyuncs.com", "evil.com"])
def test_a_strange_endpoint_names_no_region(host):
    assert _refusal(403, Code="AccessDenied", Endpoint=host).region == ""


def test_the_code_of_a_head_is_read_from_its_header():
    body = document("Error", Code="NoSuchBucket", Message="The specified bucket does not exist.")
    response = Response(404, {"x-oss-err": b64encode(body).decode()})
    refusal = OSS_CODES.refusal(response, "look up", "oss://b/k")
    assert (type(refusal.error), refusal.error.code, refusal.meaning.missing) == (NotFound, "NoSuchBucket", "bucket")
    broken = OSS_CODES.refusal(Response(404, {"x-oss-err": "é no base64"}), "look up", "oss://b/k")
    assert (type(broken.error), broken.error.code) == (NotFound, "")
