"""``gs://``: names of buckets and keys, advice for web addresses, and how a bucket is opened."""

from __future__ import annotations

import sys

import pytest

import penstock as ps
from penstock.errors import ConfigError, InvalidURL, MissingExtra
from penstock.source import open_source
from penstock.stores.gcs.options import GCSOptions
from penstock.stores.gcs.store import GCS
from penstock.stores.s3.options import S3Options
from penstock.stores.urls import parse
from penstock.testing.faults import FaultServer, Settings


@pytest.mark.parametrize("scheme", ["gs", "gcs"])
def test_both_schemes_are_googles(scheme):
    assert type(parse(f"{scheme}://bucket/a/b").store) is GCS
    assert parse(f"{scheme}://bucket/a/b").url == f"{scheme}://bucket/a/b"


@pytest.mark.parametrize("bucket", ["abc", "a-b_c.d", "1bucket", "a" * 63, "example.com"])
def test_a_bucket_may_be_called_so(bucket):
    assert parse(f"gs://{bucket}/").bucket == bucket


@pytest.mark.parametrize("bucket", ["ab", "Bucket", "-a-", "a_", "a b", "ü" * 4])
def test_a_bucket_cannot_be_called_so(bucket):
    with pytest.raises(InvalidURL, match="lower-case letters"):
        parse(f"gs://{bucket}/key")


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (".", "cannot be an object"),
        ("..", "cannot be an object"),
        ("a\nb", "line break"),
        ("a\rb", "line break"),
        (".well-known/acme-challenge/x", "no keys that begin"),
        ("k" * 1025, "1025 bytes"),
    ],
)
def test_a_key_cannot_be_called_so(key, said):
    with pytest.raises(InvalidURL, match=said):
        parse(f"gs://bucket/{key}")


@pytest.mark.parametrize("key", ["./x", "a/../b", "...", ".well-known/x", "a//b", "trail/", "back\\slash"])
def test_odd_keys_stay_as_they_are(key):
    assert parse(f"gs://bucket/{key}").key == key


@pytest.mark.parametrize(
    "url",
    [
        "https://storage.googleapis.com/bucket/a%20b/c",
        "https://storage.cloud.google.com/bucket/a%20b/c?authuser=0",
        "https://bucket.storage.googleapis.com/a%20b/c",
        "https://console.cloud.google.com/storage/browser/_details/bucket/a%20b/c",
    ],
)
def test_google_web_url_advice_gives_the_gs_url(url):
    assert GCS().advice(url) == "for this object write gs://bucket/a b/c"


def test_another_providers_options_are_refused():
    with pytest.raises(ConfigError, match="gs:// takes no S3Options"):
        open_source("gs://bucket/", S3Options(access_key="a", secret_key="b"))


def test_a_missing_library_names_the_extra(monkeypatch):
    from penstock.stores.gcs import driver

    driver.library.cache_clear()
    monkeypatch.setitem(sys.modules, "fastcrc", None)
    monkeypatch.setitem(sys.modules, "fastcrc.crc32", None)
    source, _ = open_source("gs://some-bucket/", GCSOptions(anonymous=True))
    with pytest.raises(MissingExtra, match=r"pip install penstock\[gcs\]"):
        source.head("k")


def test_gcs_verbs_work_with_settings_from_the_environment(monkeypatch):
    with FaultServer.within(Settings(dialect="gcs")) as server:
        server.make("bucket")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        with ps.open("gs://bucket/a b", "wb") as file:
            file.write(b"bytes")
        ps.copy("gs://bucket/a b", "gs://bucket/copy")
        assert [each.key for each in ps.list("gs://bucket/")] == ["a b", "copy"]
        with ps.open("gcs://bucket/copy") as file:
            assert file.read() == b"bytes"
        assert ps.stat("gs://bucket/copy").etag.isdigit(), "a generation"
        ps.delete("gs://bucket/a b")
        assert server.objects("bucket") == {"copy": b"bytes"}
        assert server.seen("copy"), "on the service's side"


@pytest.mark.parametrize("place", ["gcs-token"], indirect=True)
def test_staged_object_of_killed_writer_is_found_and_aborted_as_unfinished(place):
    staged = ".penstock-uploads/run%2Flarge.0123"
    place.put(staged, b"whole, and never moved")
    source, prefix = open_source(f"{place.url}run/", place.store)
    (left,) = source.unfinished(prefix)
    assert left.key == "run/large"
    assert staged not in [each.key for page in source.pages("") for each in page.entries]
    source.abort(left)
    assert staged not in place.objects()
    assert list(source.unfinished(prefix)) == []
