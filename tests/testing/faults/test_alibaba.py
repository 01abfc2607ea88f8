"""OSS as an HTTP client sees it: who may come in, what is refused, what is named."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import quote, urlsplit

import pytest

from penstock.testing.faults import FaultServer, Settings

SETTINGS = Settings(dialect="oss", region="cn-hangzhou", least_part_bytes=4)


@pytest.fixture(scope="module")
def server():
    with FaultServer.within(SETTINGS) as server:
        server.make("b")
        yield server


@pytest.fixture
def ask(server):
    """Send one request, signed; returns status, headers, and body."""

    def asked(method, key, query="", body=b"", region="cn-hangzhou", **headers):
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        sent |= {
            "x-oss-date": time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()),
            "x-oss-content-sha256": "UNSIGNED-PAYLOAD",
        }
        sent.setdefault("authorization", _proof(method, key, query, sent, region))
        with closing(HTTPConnection(urlsplit(server.endpoint).netloc, timeout=30)) as line:
            line.request(method, f"/b/{quote(key)}{'?' if query else ''}{query}", body, sent)
            answer = line.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    return asked


def _proof(method, key, query, headers, region):
    day = headers["x-oss-date"][:8]
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers) if name.startswith(("x-oss-", "content-")))
    search = "&".join(sorted(pair.removesuffix("=") for pair in query.split("&") if pair))
    canonical = f"{method}\n/b/{quote(key)}\n{search}\n{lines}\n\nUNSIGNED-PAYLOAD"
    scope = f"{day}/{region}/oss/aliyun_v4_request"
    text = f"OSS4-HMAC-SHA256\n{headers['x-oss-date']}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    secret = f"aliyun_v4{SETTINGS.secret_key}".encode()
    for word in (day, region, "oss", "aliyun_v4_request", text):
        secret = hmac.digest(secret, word.encode(), "sha256")
    return f"OSS4-HMAC-SHA256 Credential={SETTINGS.access_key}/{scope},Signature={secret.hex()}"


def test_an_object_has_a_checksum_wherever_it_is_named(ask):
    checksum = str(0x995DC9BBDF1939FA)
    assert ask("PUT", "k", body=b"123456789")[1]["x-oss-hash-crc64ecma"] == checksum
    for method, headers in (("GET", {}), ("HEAD", {}), ("GET", {"range": "bytes=0-1"})):
        assert ask(method, "k", **headers)[1]["x-oss-hash-crc64ecma"] == checksum


def test_an_overwrite_may_be_forbidden(ask):
    assert ask("PUT", "new", body=b"1", x_oss_forbid_overwrite="true")[0] == 200
    for method, query in (("PUT", ""), ("POST", "uploads=")):
        status, _, body = ask(method, "new", query, x_oss_forbid_overwrite="true")
        assert (status, b"<Code>FileAlreadyExists</Code>" in body) == (409, True)
    assert ask("PUT", "new", body=b"2", if_none_match="*")[0] == 200, "a header that OSS does not know"


def test_another_md5_is_refused_before_it_is_stored(ask, server):
    wrong = base64.b64encode(hashlib.md5(b"other", usedforsecurity=False).digest()).decode()
    status, _, body = ask("PUT", "damaged", body=b"body", content_md5=wrong)
    assert (status, b"<Code>InvalidDigest</Code>" in body) == (400, True)
    assert "damaged" not in server.objects("b")


def test_a_range_beyond_the_end_is_the_whole_unless_asked_otherwise(ask):
    ask("PUT", "r", body=b"12345")
    assert ask("GET", "r", range="bytes=2-9")[::2] == (200, b"12345")
    assert ask("GET", "r", range="bytes=2-9", x_oss_range_behavior="standard")[::2] == (206, b"345")
    assert ask("GET", "r", range="bytes=9-10", x_oss_range_behavior="standard")[0] == 416


def test_a_page_has_a_hundred_keys_and_an_escaped_token(ask, server):
    for number in range(101):
        server.put("b", f"page/{number:03}", b"")
    _, _, body = ask("GET", "", "encoding-type=url&list-type=2&prefix=page%2F")
    assert body.count(b"<Contents>") == 100
    token = body.partition(b"<NextContinuationToken>")[2].partition(b"<")[0]
    assert b"%3D" in token or b"=" not in token


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"authorization": ""}, b"AccessDenied"),
        ({"authorization": "AWS4-HMAC-SHA256 x"}, b"AccessDenied"),
        ({"region": "cn-beijing"}, b"AccessDenied"),
        ({"x_amz_date": "x"}, b"InvalidArgument"),
    ],
)
def test_request_with_invalid_authorization_or_date_is_refused(ask, change, code):
    status, _, body = ask("GET", "k", **change)
    assert status in (400, 403)
    assert b"<Code>%s</Code>" % code in body
    assert (b"<Endpoint>oss-cn-hangzhou.aliyuncs.com</Endpoint>" in body) is ("region" in change)


def test_head_has_its_error_in_a_header(ask):
    status, headers, body = ask("HEAD", "none")
    assert (status, body) == (404, b"")
    assert b"<Code>NoSuchKey</Code>" in base64.b64decode(headers["x-oss-err"])
