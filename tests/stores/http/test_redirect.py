"""A redirect is followed to the same object of the same service only, and never from TLS to none."""

import pytest

from penstock.stores.s3.driver import find_redirect_origin, is_of_cluster, is_within

AMAZON = is_within("amazonaws.com")
URL = "https://b.s3.us-east-1.amazonaws.com/train/a%20b"
OTHER = "https://b.s3.eu-west-1.amazonaws.com"


def test_another_host_of_the_service_is_followed():
    assert find_redirect_origin(URL, f"{OTHER}/train/a%20b", AMAZON) == OTHER
    assert find_redirect_origin(URL, f"{OTHER.upper()}/train/a%20b", AMAZON) == OTHER


def test_the_same_host_is_followed_and_from_no_tls_to_tls():
    for location in ("http://h:9000/b/k", "https://h/b/k", "https://h:443/b/k"):
        assert find_redirect_origin("http://h:9000/b/k", location, is_within("")) == location.removesuffix("/b/k")


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
    assert find_redirect_origin(URL, location, AMAZON) == ""


def test_without_a_domain_no_other_host_is_followed():
    assert find_redirect_origin("http://10.0.0.1:9000/b/k", "http://10.0.0.2:9000/b/k", is_within("")) == ""
    assert find_redirect_origin("http://h:9000/b/k", "http://h:9001/b/k", is_within("")) == ""


@pytest.mark.parametrize(
    ("gateway", "members", "host", "member"),
    [
        ("gw.ais.example.com", (), "gw.ais.example.com", True),
        ("gw.ais.example.com", (), "t1.ais.example.com", True),
        ("gw.ais.example.com", (), "t1.other.example.com", False),
        ("gw.ais.example.com", (), "evil-ais.example.com", False),
        ("gw.com", (), "t.com", False),  # no public suffix is a cluster's domain
        ("gw", (), "t", False),
        ("gw", ("10.0.0.0/16", "t.example"), "10.0.3.4", True),
        ("gw", ("10.0.0.0/16", "t.example"), "10.1.3.4", False),
        ("gw", ("10.0.0.0/16", "t.example"), "a.t.example", True),
        ("10.0.0.5", (), "10.0.200.7", True),
        ("10.0.0.5", (), "10.1.0.7", False),
        ("8.8.8.8", (), "8.8.4.4", False),
        ("fd00::1", (), "fd00::2", True),
        ("fd00::1", (), "fd01::2", False),
    ],
)
def test_cluster_membership_follows_gateway_domain_subnet_or_named_members(gateway, members, host, member):
    assert is_of_cluster(gateway, members)(host) is member


def test_in_a_cluster_ports_and_spelling_of_paths_do_not_matter():
    url, inside = "http://gw:51080/s3/b/a%20b", is_of_cluster("gw", ("t",))
    assert find_redirect_origin(url, "http://t:51081/s3/b/a b", inside, cluster=True) == "http://t:51081"
    for location in ("http://t:51081/s3/b/other", "http://u:51081/s3/b/a b", "http://me@t/s3/b/a b"):
        assert find_redirect_origin(url, location, inside, cluster=True) == ""
    assert find_redirect_origin(url.replace("http:", "https:"), "http://t:51081/s3/b/a b", inside, cluster=True) == ""
