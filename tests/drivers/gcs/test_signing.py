"""Google's signature against the fault server's own reading of it, and tokens as they change."""

from __future__ import annotations

import pytest

from penstock.drivers.gcs.signing import bearer, hmac_keys
from penstock.drivers.s3 import Bucket
from penstock.protocols.credentials import BearerToken, Credentials
from penstock.testing.faults.message import Refused, Request
from penstock.testing.faults.signature import Scheme, check_signature

BUCKET = Bucket("b", None, virtual=False)
KEYS = Credentials("GOOG1ID", "secret")
NOW = 1_770_000_000


def _headers(lines):
    return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.mark.parametrize("payer", ["", "my-project"])
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_an_hmac_signature_is_googles(method, payer, monkeypatch):
    monkeypatch.setattr("time.time", lambda: NOW)
    sign = hmac_keys(payer)(BUCKET, "storage.googleapis.com", "auto", lambda: KEYS)
    given = {"accept-encoding": "gzip", "x-goog-meta-a": "1", "range": "bytes=0-1"}
    sent = {"host": "storage.googleapis.com", **_headers(sign(method, "/b/a%20b", "x=1", given, "ab" * 32))}
    assert sent["x-goog-content-sha256"] == "UNSIGNED-PAYLOAD"
    assert sent.get("x-goog-user-project", "") == payer
    assert sent["authorization"].startswith("GOOG4-HMAC-SHA256 Credential=GOOG1ID/20260202/auto/storage/goog4_request,")
    rewritten = {**sent, "accept-encoding": "gzip(gfe)"}
    scheme = Scheme("GOOG4", "storage", "x-goog-")
    request = Request(method, "/b/a%20b", "x=1", rewritten, bytearray())
    check_signature(request, {"GOOG1ID": "secret"}, frozenset({"auto"}), NOW, scheme)
    with pytest.raises(Refused, match="SignatureDoesNotMatch"):
        changed = Request(method, "/b/other", "x=1", rewritten, bytearray())
        check_signature(changed, {"GOOG1ID": "secret"}, frozenset({"auto"}), NOW, scheme)


def test_each_request_has_the_present_token():
    tokens = [BearerToken("one")]
    sign = bearer("payer")(BUCKET, "h", "auto", lambda: tokens[-1])
    first = sign("GET", "/b/k", "", {"range": "bytes=0-1"})
    assert first == ("Authorization: Bearer one", "x-goog-user-project: payer", "range: bytes=0-1")
    tokens.append(BearerToken("two"))
    assert sign("GET", "/b/k", "", {})[0] == "Authorization: Bearer two"
    tokens.append(None)
    assert sign("GET", "/b/k", "", {"a": "b"}) == ("a: b",), "without credentials nobody pays either"
