"""Requests and answers in OSS's words, without a server: addressing, conditions, checksums, listings."""

from __future__ import annotations

import pytest

from penstock.engine.buffer import Buffer
from penstock.engine.contracts.credentials import Credentials
from penstock.engine.contracts.driver import Attributes, Payload, UploadPart
from penstock.engine.contracts.exchange import Response
from penstock.errors import AlreadyExists, ChecksumMismatch, ConfigError
from penstock.stores.oss.dialect import Alibaba, Crc64, Crc64Md5
from penstock.stores.s3.dialect import BucketAddress
from penstock.stores.s3.driver import S3Driver
from penstock.values import Span
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
    with pytest.raises(ChecksumMismatch, match="other bytes than were sent") as caught:
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
