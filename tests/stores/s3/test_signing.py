"""Signatures are AWS's own: its published examples, and botocore's opinion on everything else."""

import datetime as dt
from hashlib import sha256

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.contracts.credentials import Credentials
from penstock.stores.http.headers import escape, query_string, trim_headers
from penstock.stores.s3.signing import EMPTY_SHA256, S3Signer

# "Signature Calculations for the Authorization Header", Amazon S3 API reference.
EXAMPLE = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
HOST = "examplebucket.s3.amazonaws.com"
MIDNIGHT = dt.datetime(2013, 5, 24, tzinfo=dt.UTC).timestamp()
BODY = b"Welcome to Amazon S3."


def _signer(credentials=EXAMPLE, clock=lambda: MIDNIGHT, region="us-east-1"):
    return S3Signer(HOST, region, lambda: credentials, clock)


def _signature(lines):
    return next(line for line in lines if line.startswith("Authorization")).rpartition("Signature=")[2]


@pytest.mark.parametrize(
    ("method", "path", "query", "headers", "digest", "signature"),
    [
        (
            "GET",
            "/test.txt",
            {},
            {"range": "bytes=0-9"},
            EMPTY_SHA256,
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            "PUT",
            "/test%24file.text",
            {},
            {"date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"},
            sha256(BODY).hexdigest(),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        (
            "GET",
            "/",
            {"lifecycle": ""},
            {},
            EMPTY_SHA256,
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        (
            "GET",
            "/",
            {"prefix": "J", "max-keys": "2"},
            {},
            EMPTY_SHA256,
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
    ids=["get", "put", "lifecycle", "list"],
)
def test_aws_s_published_examples(method, path, query, headers, digest, signature):
    assert _signature(_signer().sign(method, path, query_string(query), headers, digest)) == signature


_text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
_values = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=20).filter(str.strip)
_names = st.from_regex(r"[a-z][a-z0-9-]{0,10}", fullmatch=True)


@given(
    _text,
    st.dictionaries(
        st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=8), _text, max_size=4
    ),
    st.dictionaries(_names.map("x-amz-meta-{}".format), _values, max_size=3),
    st.sampled_from(["", "session+token/=="]),
)
def test_botocore_agrees(key, query, headers, token):
    path, search = "/" + escape(key), query_string(query)
    request = AWSRequest("GET", f"https://{HOST}{path}" + (f"?{search}" if search else ""), headers=headers)
    request.context["client_config"] = None
    theirs = BotoCredentials(EXAMPLE.access_key, EXAMPLE.secret_key, token or None)
    S3SigV4Auth(theirs, "s3", "us-east-1").add_auth(request)
    stamp = dt.datetime.strptime(request.context["timestamp"], "%Y%m%dT%H%M%SZ").replace(tzinfo=dt.UTC)
    credentials = Credentials(EXAMPLE.access_key, EXAMPLE.secret_key, token)
    digest = request.headers["X-Amz-Content-SHA256"]
    lines = _signer(credentials, stamp.timestamp).sign("GET", path, search, trim_headers(headers), digest)
    assert _signature(lines) == request.headers["Authorization"].rpartition("Signature=")[2]


def test_without_credentials_nothing_is_signed():
    assert _signer(None).sign("GET", "/key", "", {"range": "bytes=0-9"}) == ("range: bytes=0-9",)


def test_new_credentials_and_a_new_day_take_effect_at_once():
    now, held = [MIDNIGHT], [EXAMPLE]
    signer = S3Signer(HOST, "us-east-1", lambda: held[0], lambda: now[0])

    def signature():
        lines = signer.sign("GET", "/key", "", {})
        fresh = S3Signer(HOST, "us-east-1", lambda: held[0], lambda: now[0]).sign("GET", "/key", "", {})
        assert lines == fresh, "what is remembered must not show"
        return _signature(lines)

    seen = [signature()]
    for now[0], held[0] in (
        (MIDNIGHT + 1, EXAMPLE),
        (MIDNIGHT + 86_400, EXAMPLE),
        (MIDNIGHT + 86_400, Credentials("other", "other")),
    ):
        seen.append(signature())
    assert len(set(seen)) == 4
