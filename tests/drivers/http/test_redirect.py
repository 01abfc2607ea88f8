"""A redirect is followed to the same object of the same service only, and never from TLS to none."""

import pytest

from penstock.drivers.http.redirect import is_within, redirected

AMAZON = is_within("amazonaws.com")
URL = "https://b.s3.us-east-1.amazonaws.com/train/a%20b"
OTHER = "https://b.s3.eu-west-1.amazonaws.com"


def test_another_host_of_the_service_is_followed():
    assert redirected(URL, f"{OTHER}/train/a%20b", AMAZON) == OTHER
    assert redirected(URL, f"{OTHER.upper()}/train/a%20b", AMAZON) == OTHER


def test_the_same_host_is_followed_and_from_no_tls_to_tls():
    for location in ("http://h:9000/b/k", "https://h/b/k", "https://h:443/b/k"):
        assert redirected("http://h:9000/b/k", location, is_within("")) == location.removesuffix("/b/k")


@pytest.mark.parametrize(
    "location",
    [
        "https://evil.com/train/a%20b",
        "https://amazonaws.com.evil.com/train/a%20b",
        "https://evilamazonaws.com/train/a%20b",
        "https://amazonaws.com@evil.com/train/a%20b",
        "https://user:word@b.s3.eu-west-1.amazonaws.com/train/a%20b",
        "http://b.s3.eu-west-1.amazonaws.com/train/a%20b",
        "http://b.s3.us-east-1.amazonaws.com/train/a%20b",
        "https://b.s3.eu-west-1.amazonaws.com:8443/train/a%20b",
        "https://b.s3.us-east-1.amazonaws.com:8443/train/a%20b",
        "https://b.s3.eu-west-1.amazonaws.com/train/other",
        "https://b.s3.eu-west-1.amazonaws.com/train/a%20b?versionId=1",
        "https://b.s3.eu-west-1.amazonaws.com",
        "//b.s3.eu-west-1.amazonaws.com/train/a%20b",
        "/train/a%20b",
        "ftp://b.s3.eu-west-1.amazonaws.com/train/a%20b",
        "file:///etc/passwd",
        "https://[::1/train/a%20b",
        "https://b.s3.eu-west-1.amazonaws.com:port/train/a%20b",
        "https://b.é3.amazonaws.com/train/a%20b",
        "https:///train/a%20b",
        "",
    ],
)
def test_no_other_redirect_is_followed(location):
    assert redirected(URL, location, AMAZON) == ""


def test_without_a_domain_no_other_host_is_followed():
    assert redirected("http://10.0.0.1:9000/b/k", "http://10.0.0.2:9000/b/k", is_within("")) == ""
    assert redirected("http://h:9000/b/k", "http://h:9001/b/k", is_within("")) == ""
