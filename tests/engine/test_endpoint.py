"""An endpoint has one form, whatever was typed, and a bucket goes into the host only where that can work."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.endpoint import is_here, is_public, normal, path_style
from penstock.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "form"),
    [
        *((same, same) for same in ("https://host", "http://host:443", "http://minio_1:9000", "http://[::1]:9000")),
        *(("HTTPS://Host.Example/", "https://host.example"), ("http://127.0.0.1:9000", "http://127.0.0.1:9000")),
        *(("https://host:443", "https://host"), ("http://host:80/", "http://host")),
        ("https://Host/S3/", "https://host/S3"),
        ("http://host:80/a/b_c~.d/%C3%A9", "http://host/a/b_c~.d/%C3%A9"),
    ],
)
def test_an_endpoint_has_one_form(text, form):
    assert normal(text, "x") == form
    assert normal(form, "x") == form


@pytest.mark.parametrize(
    ("text", "says"),
    [
        *((text, "http://") for text in ("", "host", "localhost:9000", "ftp://host")),
        *((f"http{text}", "host") for text in ("s://", "s://:9000", "s://-host", "://[fe80::1%25eth0]:9000")),
        *((f"https://{text}", "not a URL") for text in ("host:99999", "host:port", "[::1")),
        *((f"https://host/{text}", "path") for text in ("/x", "a/../b", ".", "a+b", "%c3")),
        ("https://host:0", "port"),
        ("https://s3.eu-west-1.amazonaws.com/bucket", "s3://bucket/key"),
        ("https://host?", "query"),
        ("https://host#x", "fragment"),
        ("https://host\n", "line break"),
        ("https://ho st", "space"),
        ("https://höst", "ASCII"),
        ("https://hush:hush@host", "credentials"),
        ("hush@host", "credentials"),
    ],
)
def test_invalid_endpoint_error_names_its_origin_and_hides_secrets(text, says):
    with pytest.raises(ConfigError, match=says) as caught:
        normal(text, "AWS_ENDPOINT_URL")
    assert str(caught.value).startswith("AWS_ENDPOINT_URL ")
    assert "hush" not in str(caught.value)


@given(st.text(max_size=30) | st.text(st.sampled_from("htps:/@[]%.1:a#?"), max_size=30).map("http://{}".format))
def test_any_text_gives_a_stable_form_or_our_error(text):
    try:
        form = normal(text, "x")
    except ConfigError:
        return
    assert normal(form, "x") == form


@pytest.mark.parametrize(
    ("bucket", "endpoint", "path"),
    [
        *((name, None, name != "bucket") for name in ("bucket", "my.bucket", "Bucket")),
        *((name, "https://oss.example", name != "bucket") for name in ("bucket", "my.bucket")),
        ("my.bucket", "http://oss.example", False),
        *((name, "http://oss.example", True) for name in ("Bucket", "my_bucket", "-bucket", "my..bucket", "b" * 64)),
        *(("bucket", endpoint, True) for endpoint in ("http://127.0.0.1:9000", "http://[::1]:9000")),
    ],
)
def test_virtual_addressing_gives_way_where_it_cannot_work(bucket, endpoint, path):
    assert path_style(bucket, "virtual", endpoint) is path
    assert path_style(bucket, "path", endpoint) is True


def test_a_bucket_that_the_endpoint_ends_in_is_refused():
    for addressing in ("path", "virtual"):
        with pytest.raises(ConfigError, match="s3://bucket/key"):
            path_style("bucket", addressing, "https://host/bucket")
    assert path_style("bucket", "path", "https://bucket")
    assert path_style("bucket", "path", "https://host/my-bucket")


@pytest.mark.parametrize(
    ("url", "here"),
    [
        *((url, True) for url in ("http://127.0.0.1:9", "http://localhost", "http://bkt.localhost:9", "http://[::1]")),
        *((url, False) for url in ("http://10.0.0.1", "http://localhost.evil.example", "http://gw:51080/s3")),
    ],
)
def test_this_machine_is_known_by_its_names(url, here):
    assert is_here(url) is here


PUBLIC = ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]
NOT_PUBLIC = [
    "0.0.0.0",  # noqa: S104  no server
    *("127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254"),
    *("224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1"),
    *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::1", "", "host"),
]


@pytest.mark.parametrize("address", PUBLIC + NOT_PUBLIC)
def test_address_is_public_according_to_the_address_it_embeds(address):
    assert is_public(address) is (address in PUBLIC)
