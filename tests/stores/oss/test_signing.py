"""Signatures are OSS's own: the vectors of Alibaba's SDKs, and what a request has that they do not cover."""

from __future__ import annotations

import pytest

from penstock.engine.contracts.credentials import Credentials
from penstock.stores.http.headers import escape, query_string, trim_headers
from penstock.stores.oss.dialect import OSSSigner, oss_query
from penstock.stores.s3.dialect import BucketAddress
from penstock.stores.s3.signing import Address

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
