"""Google's signature against the fault server's own reading of it, and tokens as they change."""

from __future__ import annotations

from hashlib import sha256
from urllib.parse import parse_qsl

import pytest

from penstock.engine.contracts.credentials import BearerToken, Credentials
from penstock.errors import Unsupported
from penstock.stores.gcs.driver import Google, ServiceToken
from penstock.stores.s3.dialect import BucketAddress
from penstock.stores.s3.signing import Address
from penstock.testing.faults.amazon import Scheme, check_signature
from penstock.testing.faults.message import Refused, Request
from tests.stores.gcs.keys import EMAIL, new_key

BUCKET = BucketAddress("b", None, virtual=False)
KEYS = Credentials("GOOG1ID", "secret")
NOW = 1_770_000_000


def _headers(lines):
    return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.mark.parametrize("payer", ["", "my-project"])
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_an_hmac_signature_is_googles(method, payer, monkeypatch):
    monkeypatch.setattr("time.time", lambda: NOW)
    sign = Google(keys=True, user_project=payer).signer(BUCKET, "storage.googleapis.com", "auto", lambda: KEYS)
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
    sign = Google(keys=False, user_project="payer").signer(BUCKET, "h", "auto", lambda: tokens[-1])
    first = sign("GET", "/b/k", "", {"range": "bytes=0-1"})
    assert first == ("Authorization: Bearer one", "x-goog-user-project: payer", "range: bytes=0-1")
    tokens.append(BearerToken("two"))
    assert sign("GET", "/b/k", "", {})[0] == "Authorization: Bearer two"
    tokens.append(None)
    assert sign("GET", "/b/k", "", {"a": "b"}) == ("a: b",), "without credentials nobody pays either"


ADDRESS = Address("b", "a%20b", "storage.googleapis.com", "auto", "GET", "/b/a%20b", 600, NOW)


def test_a_service_account_signs_addresses_with_its_private_key():
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import padding
    from google.auth.crypt import RSASigner

    private = new_key()
    token = ServiceToken("t", None, "a file", EMAIL, RSASigner.from_string(private).sign)
    query = Google(keys=False, user_project="payer").signed_query(ADDRESS, token)
    fields, _, signature = query.rpartition("&X-Goog-Signature=")
    given = dict(parse_qsl(fields))
    assert given["X-Goog-Algorithm"] == "GOOG4-RSA-SHA256"
    assert given["X-Goog-Credential"] == f"{EMAIL}/20260202/auto/storage/goog4_request"
    assert (given["X-Goog-Expires"], given["userProject"]) == ("600", "payer")
    canonical = f"GET\n/b/a%20b\n{fields}\nhost:storage.googleapis.com\n\nhost\nUNSIGNED-PAYLOAD"
    digest = sha256(canonical.encode()).hexdigest()
    text = f"GOOG4-RSA-SHA256\n{given['X-Goog-Date']}\n20260202/auto/storage/goog4_request\n{digest}"
    public = serialization.load_pem_private_key(private.encode(), None).public_key()
    public.verify(bytes.fromhex(signature), text.encode(), padding.PKCS1v15(), hashes.SHA256())
    assert private not in repr(token)


def test_an_access_token_signs_no_address():
    for token in (BearerToken("t"), ServiceToken("t")):
        with pytest.raises(Unsupported, match="HMAC key"):
            Google(keys=False).signed_query(ADDRESS, token)
