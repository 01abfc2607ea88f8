"""Google's XML as an HTTP client sees it: generations, conditions, digests, what is refused and what is ignored."""

from __future__ import annotations

import gzip
import hmac
import html
import json
import time
from contextlib import closing
from hashlib import sha256
from http.client import HTTPConnection
from urllib.parse import quote, urlsplit

import pytest

from penstock.testing.faults import FAULTS, FaultServer, Match, Settings
from penstock.testing.faults.google import crc32c

SETTINGS = Settings(dialect="gcs", tokens=("good",), least_part_bytes=4)
BEARER = {"authorization": "Bearer good"}
IF = "x-goog-if-generation-match"


@pytest.fixture(scope="module")
def server():
    with FaultServer.within(SETTINGS) as server:
        server.make("b")
        yield server


@pytest.fixture
def ask(server):
    """Send one request; returns status, headers (repeated ones joined), and body."""

    def asked(method, target, body=b"", **headers):
        sent = {name.replace("_", "-"): value for name, value in {**BEARER, **headers}.items() if value is not None}
        with closing(HTTPConnection(urlsplit(server.endpoint).netloc, timeout=30)) as line:
            line.request(method, target, body, sent)
            answer = line.getresponse()
            got = {}
            for name, value in answer.getheaders():
                got[name.lower()] = ", ".join(filter(None, (got.get(name.lower()), value)))
            return answer.status, got, answer.read()

    return asked


def _put(ask, key, body=b"body", **headers):
    status, got, _ = ask("PUT", f"/b/{quote(key)}", body, **headers)
    return got["x-goog-generation"] if status == 200 else (status, _)


def test_an_object_has_a_generation_a_digest_and_its_stored_size(ask):
    first = _put(ask, "k", content_type="text/plain", x_goog_meta_who="me")
    status, headers, body = ask("GET", "/b/k", accept_encoding="gzip")
    assert (status, body, headers["x-goog-generation"], headers["x-goog-meta-who"]) == (200, b"body", first, "me")
    assert headers["x-goog-hash"].split(", ")[0] == f"crc32c={crc32c(b'body')}"
    assert headers["x-goog-hash"].split(", ")[1].startswith("md5=")
    assert (headers["x-goog-stored-content-length"], headers["x-goog-stored-content-encoding"]) == ("4", "identity")
    status, headers, body = ask("GET", "/b/k", range="bytes=1-2")
    assert (status, body, headers["content-range"]) == (206, b"od", "bytes 1-2/4")
    assert headers["x-goog-hash"].startswith(f"crc32c={crc32c(b'body')}"), "of the whole object, on a range too"
    assert int(_put(ask, "k")) > int(first)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_read_is_held_to_a_generation(ask, method):
    generation = _put(ask, "k")
    assert ask(method, "/b/k", **{IF: generation})[0] == 200
    assert ask(method, "/b/k", **{IF: "7"})[0] == 412


def test_put_enforces_generation_match_and_ignores_if_none_match(ask):
    generation = _put(ask, "conditional", **{IF: "0"})
    assert _put(ask, "conditional", **{IF: "0"})[0] == 412
    assert _put(ask, "conditional", **{IF: "7"})[0] == 412
    second = _put(ask, "conditional", **{IF: generation})
    assert second != generation
    assert _put(ask, "conditional", if_none_match="*") != second, "written over what was there"


def test_delete_enforces_generation_match_and_missing_key_returns_404(ask):
    _put(ask, "k")
    assert ask("DELETE", "/b/k", **{IF: "7"})[0] == 412
    assert ask("DELETE", "/b/k")[0] == 204
    status, _, body = ask("DELETE", "/b/k")
    assert (status, b"NoSuchKey" in body) == (404, True)


@pytest.mark.parametrize("name", ["crc32c", "md5"])
def test_a_body_of_another_digest_is_refused(ask, name):
    assert _put(ask, "k", x_goog_hash=f"crc32c={crc32c(b'body')}") > "0"
    status, body = _put(ask, "k", x_goog_hash=f"{name}=AAAAAA==")
    assert (status, b"BadDigest" in body) == (400, True)


def _begin(ask, **headers):
    status, _, body = ask("POST", "/b/large?uploads", **headers)
    return status, body.partition(b"<UploadId>")[2].partition(b"</UploadId>")[0] if status == 200 else body


def test_an_upload_takes_no_condition_where_it_begins_nor_where_it_ends(ask):
    status, body = _begin(ask, **{IF: "0"})
    assert (status, b"NotImplemented" in body) == (400, True)
    _, name = _begin(ask, x_goog_meta_who="me")
    target = f"/b/large?uploadId={quote(html.unescape(name.decode()), safe='')}"
    _, headers, _ = ask("PUT", f"{target}&partNumber=1", b"12345")
    parts = f"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{headers['etag']}</ETag></Part>"
    parts += "</CompleteMultipartUpload>"
    status, _, body = ask("POST", target, parts.encode(), **{IF: "0"})
    assert (status, b"NotImplemented" in body) == (400, True)
    status, headers, _ = ask("POST", target, parts.encode())
    assert status == 200
    _, found, body = ask("GET", "/b/large")
    assert (found["x-goog-generation"], found["x-goog-meta-who"], body) == (
        headers["x-goog-generation"],
        "me",
        b"12345",
    )
    assert "md5" not in found["x-goog-hash"]


def test_copy_enforces_source_and_target_generation_match(ask):
    generation = _put(ask, "from", x_goog_meta_who="me")
    copies = {"x-goog-copy-source": "b/from", "x-goog-copy-source-if-generation-match": generation}
    status, headers, body = ask("PUT", "/b/to", **copies, **{IF: "0"})
    assert (status, b"CopyObjectResult" in body) == (200, True)
    assert ask("HEAD", "/b/to")[1]["x-goog-generation"] == headers["x-goog-generation"] != generation
    assert ask("PUT", "/b/to", **copies, **{IF: "0"})[0] == 412
    assert ask("PUT", "/b/to", **{**copies, "x-goog-copy-source-if-generation-match": "7"})[0] == 412


def test_an_object_is_moved_by_the_json_api_on_a_condition(ask):
    generation = _put(ask, "a/from", x_goog_meta_who="me")
    move = f"/storage/v1/b/b/o/{quote('a/from', safe='')}/moveTo/o/{quote('a/to', safe='')}"
    status, _, body = ask("POST", f"{move}?ifGenerationMatch=7")
    assert (status, json.loads(body)["error"]["errors"][0]["reason"]) == (412, "conditionNotMet")
    assert ask("POST", f"{move}?ifSourceGenerationMatch=7")[0] == 412
    status, _, body = ask("POST", f"{move}?ifGenerationMatch=0&ifSourceGenerationMatch={generation}")
    assert (status, json.loads(body)["name"]) == (200, "a/to")
    found = ask("HEAD", "/b/a/to")[1]
    assert (found["x-goog-generation"], found["x-goog-meta-who"]) == (json.loads(body)["generation"], "me")
    assert ask("HEAD", "/b/a/from")[0] == 404
    status, _, body = ask("POST", move)
    assert (status, json.loads(body)["error"]["code"]) == (404, 404)


def test_identity_read_of_gzip_object_is_decompressed_and_ignores_range(ask):
    stored = gzip.compress(b"0123456789" * 10)
    _put(ask, "z", stored, content_encoding="gzip")
    status, headers, body = ask("GET", "/b/z", range="bytes=0-3", accept_encoding="identity")
    assert (status, body) == (200, b"0123456789" * 10)
    assert not {"content-length", "etag", "content-encoding"} & set(headers)
    assert headers["x-goog-stored-content-encoding"] == "gzip"
    status, headers, body = ask("GET", "/b/z", range="bytes=0-3", accept_encoding="gzip")
    assert (status, body, headers["content-encoding"]) == (206, stored[:4], "gzip")


def test_a_listing_names_generations(ask):
    generation = _put(ask, "listed/k")
    _, _, body = ask("GET", "/b?list-type=2&prefix=listed/")
    assert f"<Generation>{generation}</Generation>".encode() in body


@pytest.mark.parametrize("how", [None, "Bearer bad", "Basic x"])
def test_request_with_missing_or_invalid_authorization_is_refused(ask, how):
    status, _, body = ask("GET", "/b/k", authorization=how)
    assert (status, b"<Code>" in body) in ((401, True), (400, True))
    if how != "Basic x":
        assert b"AuthenticationRequired" in body


def test_tokens_are_exchanged(server, ask):
    server.admit("other")
    assert ask("GET", "/b?list-type=2")[0] == 401
    assert ask("GET", "/b?list-type=2", authorization="Bearer other")[0] == 200
    server.admit(*SETTINGS.tokens)


def _signed(server, method, path, *, name="GOOG4", prefix="x-goog-", extra=()):
    """Sign as Google's documentation says, without the driver."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    headers = {
        "host": urlsplit(server.endpoint).netloc,
        f"{prefix}content-sha256": "UNSIGNED-PAYLOAD",
        f"{prefix}date": stamp,
        **dict(extra),
    }
    signed = ";".join(sorted(headers))
    lines = "".join(f"{each}:{headers[each]}\n" for each in sorted(headers))
    canonical = f"{method}\n{path}\n\n{lines}\n{signed}\nUNSIGNED-PAYLOAD"
    scope = f"{stamp[:8]}/auto/storage/{name.lower()}_request"
    text = f"{name}-HMAC-SHA256\n{stamp}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
    key = f"{name}{SETTINGS.secret_key}".encode()
    for word in (*scope.split("/"), text):
        key = hmac.digest(key, word.encode(), "sha256")
    proof = f"{name}-HMAC-SHA256 Credential={SETTINGS.access_key}/{scope},SignedHeaders={signed},Signature={key.hex()}"
    return {**headers, "authorization": proof}


def test_an_hmac_signature_of_googles_kind_comes_in(server, ask):
    _put(ask, "k")
    assert ask("GET", "/b/k", **_signed(server, "GET", "/b/k"))[0] == 200
    assert ask("GET", "/b/other", **_signed(server, "GET", "/b/k"))[0] == 403


def test_no_signature_of_amazons_kind_and_none_over_accept_encoding_comes_in(server, ask):
    status, _, body = ask("GET", "/b/k", **_signed(server, "GET", "/b/k", name="AWS4"))
    assert (status, b"MalformedSecurityHeader" in body) == (400, True)
    status, _, body = ask("GET", "/b/k", **_signed(server, "GET", "/b/k", extra=[("accept-encoding", "gzip")]))
    assert (status, b"SignatureDoesNotMatch" in body) == (403, True)
    assert ask("GET", "/b/k", x_amz_date="x")[0] == 400


def test_faults_are_worded_as_here(server, ask):
    server.fail(FAULTS["expired"], when=Match(verb="get"))
    assert ask("GET", "/b/k")[0] == 401
    _put(ask, "k")
    server.fail(FAULTS["etag"], when=Match(verb="get"))
    assert ask("GET", "/b/k")[1]["x-goog-generation"] == "1"
    server.fail(FAULTS["301"], when=Match(verb="get"))
    assert ask("GET", "/b/k")[0] == 200
    server.heal()
