"""Requests and answers in OSS's words, without a server: addressing, conditions, checksums, listings."""

from __future__ import annotations

import base64
import hashlib
from base64 import b64encode

import pytest

from penstock import errors
from penstock.engine.buffer import Buffer
from penstock.engine.contracts.credentials import Credentials
from penstock.engine.contracts.driver import Attributes, Payload, UploadPart
from penstock.engine.contracts.exchange import Response
from penstock.errors import AlreadyExists, ChecksumMismatch, ConfigError, Forbidden, NotFound, Unauthenticated
from penstock.stores.http.headers import escape, query_string, trim_headers
from penstock.stores.oss.dialect import (
    OSS_CODES,
    Alibaba,
    Crc64,
    Crc64Md5,
    OSSSigner,
    oss_query,
    stored_sum,
)
from penstock.stores.s3.dialect import BucketAddress
from penstock.stores.s3.driver import S3Driver
from penstock.stores.s3.signing import Address
from penstock.values import Checksum, Span
from tests.servers.hostile import document

DATA = b"123456789"
CRC = str(0x995DC9BBDF1939FA)
NAMED = {"x-oss-hash-crc64ecma": CRC, "etag": '"A"'}


class Identity:
    def current(self):
        return Credentials("id", "secret", "token")

    def refresh_if_due(self):
        pass

    def renew(self):
        pass


def _driver(endpoint=None, *, virtual=True, cname=False):
    return S3Driver(BucketAddress("b", endpoint, virtual, "oss", cname), "cn-hangzhou", Identity(), Alibaba())


def _payload(kind, data=DATA):
    digest = kind()
    digest.update(data)
    return Payload(data, digest.hexdigest())


def _headers(exchange):
    lines = [line.partition(":")[::2] for line in exchange.request.headers]
    return {name.lower(): value.strip() for name, value in lines if value}


@pytest.mark.parametrize(
    ("driver", "url"),
    [
        (_driver(), "https://b.oss-cn-hangzhou.aliyuncs.com/a%20b"),
        (
            _driver("https://oss-cn-hangzhou-internal.aliyuncs.com"),
            "https://b.oss-cn-hangzhou-internal.aliyuncs.com/a%20b",
        ),
        (_driver("https://data.example.com", virtual=False, cname=True), "https://data.example.com/a%20b"),
        (_driver("http://127.0.0.1:9", virtual=False), "http://127.0.0.1:9/b/a%20b"),
    ],
    ids=["virtual", "internal", "cname", "path"],
)
def test_addressing(driver, url):
    assert driver.head("a b").request.url == url
    listed = driver.list("").request.url
    assert listed.partition("?")[0] == url.removesuffix("/a%20b") + ("" if url.endswith("/b/a%20b") else "/")
    assert "max-keys=1000" in listed


def test_reads_want_the_standard_behaviour_of_ranges_and_are_signed_as_a_whole():
    headers = _headers(_driver().read(Span("k", 0, 4, "A"), Buffer.allocate(4)))
    assert headers["x-oss-range-behavior"] == "standard"
    assert headers["x-oss-security-token"] == "token"
    assert "/cn-hangzhou/oss/aliyun_v4_request,AdditionalHeaders=if-match;range,Signature=" in headers["authorization"]


def test_a_whole_read_is_compared():
    exchange = _driver().read(Span("k", 0, 9, "A", whole=True), target := Buffer.allocate(9))
    target.view()[:] = DATA
    assert exchange.parse(Response(200, NAMED, received=9)) == 9
    with pytest.raises(ChecksumMismatch, match="x-oss-hash-crc64ecma"):
        exchange.parse(Response(200, {**NAMED, "x-oss-hash-crc64ecma": "1"}, received=9))


def test_create_only_write_forbids_overwrite_at_start_and_completion():
    driver, new = _driver(), Attributes(create_only=True)
    for exchange in (
        driver.put("k", Payload(b"x"), new),
        driver.create("k", new),
        driver.complete("k", "u", ["A"], create_only=True),
    ):
        assert _headers(exchange)["x-oss-forbid-overwrite"] == "true"
    with pytest.raises(AlreadyExists):
        driver.put("k", Payload(b"x"), new).parse(Response(409, body=document("Error", Code="FileAlreadyExists")))
    old = _headers(driver.put("k", Payload(b"x"), Attributes(replaces="A")))
    assert not {"if-match", "x-oss-forbid-overwrite"} & {*old}


def test_a_put_has_an_md5_and_its_answer_is_compared():
    exchange = _driver().put("k", _payload(Crc64Md5), Attributes())
    assert _headers(exchange)["content-md5"] == "JfnnlDI7RTiF9RgfG2JNCw=="
    assert exchange.parse(Response(200, NAMED)) == "A"
    with pytest.raises(ChecksumMismatch, match="the stored bytes differ") as caught:
        exchange.parse(Response(200, {**NAMED, "x-oss-hash-crc64ecma": "1"}))
    assert (caught.value.url, caught.value.code) == ("oss://b/k", "")


def test_the_answer_to_a_part_is_compared():
    exchange = _driver().part("k", "u", UploadPart(1, 0), _payload(Crc64))
    assert "content-md5" not in _headers(exchange)
    assert exchange.parse(Response(200, NAMED)) == "A"
    with pytest.raises(ChecksumMismatch):
        exchange.parse(Response(200, {**NAMED, "x-oss-hash-crc64ecma": "1"}))


def test_a_copys_source_begins_with_a_slash():
    assert _headers(_driver().copy("a b", "k", "A")) | {
        "x-oss-copy-source": "/b/a%20b",
        "x-oss-copy-source-if-match": '"A"',
    } == _headers(_driver().copy("a b", "k", "A"))


def test_a_listings_token_is_escaped_as_its_keys_are():
    texts = {"EncodingType": "url", "IsTruncated": "true", "NextContinuationToken": "CgJi%2Ba%3D"}
    page = _driver().list("").parse(Response(200, body=document("ListBucketResult", **texts)))
    assert page.token == "CgJi+a="
    assert "continuation-token=CgJi%2Ba%3D&" in _driver().list("", token=page.token).request.url

    class Plain(Alibaba):
        escaped_token = False

    plain = S3Driver(BucketAddress("b", None, virtual=True), "r", Identity(), Plain())
    assert plain.list("").parse(Response(200, body=document("ListBucketResult", **texts))).token == "CgJi%2Ba%3D"


def test_another_region_is_followed_within_alibabas_own_hosts():
    driver = _driver()
    refused = Response(403, body=document("Error", Code="AccessDenied", Endpoint="oss-cn-beijing.aliyuncs.com"))
    with pytest.raises(ConfigError, match="the bucket is in region cn-beijing") as caught:
        driver.head("k").parse(refused)
    assert caught.value.retries == 3
    assert driver.head("k").request.url == "https://b.oss-cn-beijing.aliyuncs.com/k"
    assert "/cn-beijing/oss/" in _headers(driver.head("k"))["authorization"]


# -- OSS's code table: each documented code has the error that a caller needs; HEAD's codes are read from a header --


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


# -- OSS's checksum is CRC-64/XZ; a PUT's digest has an MD5 besides, and begins with that of a part --


CHECK = 0x995DC9BBDF1939FA  # of b"123456789": the catalogue of parametrised CRC algorithms


def _digest(kind, *pieces):
    digest = kind()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


@pytest.mark.parametrize(
    "pieces", [(b"123456789",), (b"1234", bytearray(b"56"), memoryview(b"789")), (b"", b"123456789")]
)
def test_the_checksum_is_the_catalogues(pieces):
    assert _digest(Crc64, *pieces) == f"{CHECK:016x}"
    assert _digest(Crc64) == "0" * 16


def test_a_puts_digest_begins_with_a_parts():
    digest = _digest(Crc64Md5, b"1234", b"56789")
    assert digest == f"{CHECK:016x}{hashlib.md5(b'123456789', usedforsecurity=False).hexdigest()}"
    named = base64.b64encode(bytes.fromhex(digest[16:])).decode()
    assert Alibaba().body_headers(digest) == {"content-md5": named}
    assert Alibaba().body_headers(digest[:16]) == {}


def test_stored_checksum_is_compared_with_the_digest():
    digest = _digest(Crc64Md5, b"123456789")
    assert Alibaba().stored_as({"x-oss-hash-crc64ecma": str(CHECK)}, digest)
    assert Alibaba().stored_as({}, digest)
    assert not Alibaba().stored_as({"x-oss-hash-crc64ecma": str(CHECK ^ 1)}, digest)
    assert Checksum("", str(CHECK), stored_sum).holds(b"123456789")
    assert not Checksum("", str(CHECK), stored_sum).holds(memoryview(b"123456780"))
    assert not Checksum("", "no number", stored_sum).holds(b"123456789")


# -- Signatures are OSS's own: the vectors of Alibaba's SDKs, and what a request has that they do not cover --


BUCKET = BucketAddress("bucket", "https://oss-cn-hangzhou.aliyuncs.com", virtual=True, scheme="oss")
QUERY = {"param1": "value1", "+param1": "value3", "|param1": "value4", "+param2": "", "|param2": "", "param2": ""}
HEADERS = {"x-oss-head1": "value", "content-type": "text/plain"}
MORE = {**HEADERS, "abc": "value", "zabc": "value"}
KEY = "/" + escape("1234+-/123/1.txt")


def _signer(now, token="", bucket=BUCKET):
    return OSSSigner(bucket, "cn-hangzhou", lambda: Credentials("ak", "sk", token), lambda: now)


def _proof(lines):
    return next(line for line in lines if line.startswith("Authorization:")).removeprefix("Authorization:")


# tests/unit/signer/test_v4.py of alibabacloud-oss-python-sdk-v2, the same in its siblings for Go, C++ and Java.
@pytest.mark.parametrize(
    ("now", "token", "headers", "scope", "signature"),
    [
        (1702743657, "", HEADERS, "20231216", "e21d18daa82167720f9b1047ae7e7f1ce7cb77a31e8203a7d5f4624fa0284afe"),
        (1702784856, "token", HEADERS, "20231217", "b94a3f999cf85bcdc00d332fbd3734ba03e48382c36fa4d5af5df817395bd9ea"),
        (1702747512, "", MORE, "20231216", "4a4183c187c07c8947db7620deb0a6b38d9fbdd34187b6dbaccb316fa251212f"),
    ],
    ids=["plain", "token", "additional"],
)
def test_the_vectors_of_alibabas_sdks(now, token, headers, scope, signature):
    lines = _signer(now, token).sign("PUT", KEY, query_string(QUERY), trim_headers(headers))
    additional = "AdditionalHeaders=abc;zabc," if "abc" in headers else ""
    credential = f"ak/{scope}/cn-hangzhou/oss/aliyun_v4_request"
    assert _proof(lines) == f"OSS4-HMAC-SHA256 Credential={credential},{additional}Signature={signature}"
    assert ("x-oss-security-token:token" in lines) is bool(token)


def test_the_bucket_is_signed_wherever_it_stands_in_the_url():
    here = _proof(_signer(0).sign("GET", "/a/b", "", {}))
    for bucket, path in (
        (BucketAddress("bucket", "http://127.0.0.1:9", virtual=False), "/bucket/a/b"),
        (BucketAddress("bucket", "http://127.0.0.1:9/gate", virtual=False), "/gate/bucket/a/b"),
        (BucketAddress("bucket", "https://data.example.com", virtual=False, cname=True), "/a/b"),
    ):
        assert _proof(_signer(0, bucket=bucket).sign("GET", path, "", {})) == here
    other = BucketAddress("other", BUCKET.endpoint, virtual=True)
    assert _proof(_signer(0, bucket=other).sign("GET", "/a/b", "", {})) != here


def test_the_buckets_own_path_ends_in_a_slash():
    path = BucketAddress("bucket", "http://127.0.0.1:9", virtual=False)
    lines = [
        signer.sign("GET", at, "uploads=", {}) for signer, at in ((_signer(0), "/"), (_signer(0, "", path), "/bucket"))
    ]
    assert _proof(lines[0]) == _proof(lines[1])


def test_without_credentials_nothing_is_signed():
    signer = OSSSigner(BUCKET, "cn-hangzhou", lambda: None)
    assert signer.sign("GET", "/key", "", {"range": "bytes=0-9"}) == ("range: bytes=0-9",)


def test_new_credentials_a_new_second_and_a_new_day_take_effect_at_once():
    first = Credentials("ak", "sk")
    now, held = [1702743657], [first]
    signer = OSSSigner(BUCKET, "cn-hangzhou", lambda: held[0], lambda: now[0])
    seen = []
    for now[0], held[0] in (
        (1702743657, first),
        (1702743658, first),
        (1702743658 + 86_400, first),
        (1702743658 + 86_400, Credentials("other", "other", "100%token")),
    ):
        lines = signer.sign("GET", "/key", "", {"range": "bytes=0-9"})
        fresh = OSSSigner(BUCKET, "cn-hangzhou", lambda: held[0], lambda: now[0])
        assert lines == fresh.sign("GET", "/key", "", {"range": "bytes=0-9"}), "what is remembered must not show"
        seen.append(_proof(lines))
    assert len({*seen}) == len(seen)


# By alibabacloud-oss-v2 1.4.1, SignerV4 with auth_method_query, for a PUT with Content-Type: application/octet-stream.
@pytest.mark.parametrize(
    ("method", "token", "signature"),
    [
        ("GET", "", "92f9c1402e144fa4be2ae729480d407310a8d954e6cf01cc0de15ecda321a664"),
        ("PUT", "", "0e717af8b0924511cf89dce13176405c8e864731295aee4de5632195e2d70e22"),
        ("GET", "to/ken=", "602103b57ecaa439d9001378eaa656fb6855c6b29f56a83982dc5bc002282271"),
        ("PUT", "to/ken=", "b792fd379281504a95e34bf215494cb424cdcd5a289ced5f44e5809d2c336b57"),
    ],
)
def test_signed_addresses_are_those_of_alibabas_sdk(method, token, signature):
    key, host = "a%20b%2Bc/d.txt", "bucket.oss-cn-hangzhou.aliyuncs.com"
    address = Address("bucket", key, host, "cn-hangzhou", method, f"/{key}", 600, 1702743657)
    query = oss_query(address, Credentials("ak", "sk", token))
    assert query.endswith(f"&x-oss-signature={signature}")
    assert ("x-oss-security-token=to%2Fken%3D&" in query) is bool(token)
