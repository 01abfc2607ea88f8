"""Signed queries are the ones that Amazon's and botocore's texts give, byte for byte."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import pytest

from penstock.engine.contracts.credentials import BearerToken, Credentials
from penstock.errors import Unsupported
from penstock.stores.s3.signing import Address, amazon_query

MAY_2013 = datetime(2013, 5, 24, tzinfo=UTC).timestamp()


def test_the_example_of_amazons_reference():
    # Amazon S3 API reference, Authenticating Requests: Using Query Parameters.
    host, path = "examplebucket.s3.amazonaws.com", "/test.txt"
    address = Address("examplebucket", "test.txt", host, "us-east-1", "GET", path, 86_400, MAY_2013)
    keys = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    assert amazon_query(address, keys) == (
        "X-Amz-Algorithm=AWS4-HMAC-SHA256"
        "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
        "&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
        "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
    )


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize("token", ["", "a/token+="])
def test_botocore_signs_alike(method, token, monkeypatch):
    url = "https://h:9/bkt/a%20b%2B%C3%A9"
    request = botocore.awsrequest.AWSRequest(method, url)
    keys = botocore.credentials.Credentials("AK", "SK", token or None)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: datetime.fromtimestamp(MAY_2013, UTC))
    botocore.auth.S3SigV4QueryAuth(keys, "s3", "eu-1", expires=600).add_auth(request)
    theirs = parse_qs(urlsplit(request.url).query)
    address = Address("bkt", "a%20b%2B%C3%A9", "h:9", "eu-1", method, "/bkt/a%20b%2B%C3%A9", 600, MAY_2013)
    assert parse_qs(amazon_query(address, Credentials("AK", "SK", token))) == theirs


def test_a_bearer_token_signs_nothing():
    address = Address("b", "k", "h", "r", "GET", "/k", 60, 0)
    with pytest.raises(Unsupported, match="signs no address"):
        amazon_query(address, BearerToken("t"))
