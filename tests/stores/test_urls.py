"""An object's URL keeps every byte of its key, and whatever cannot be an object's URL is refused without echoing it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidURL, PenstockError, UnknownScheme
from penstock.stores.urls import Location, is_root, loaded_schemes, parse

KEYS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=256)
SPICY = st.text(st.sampled_from("/.%?#+&=@: ~\\\n\u00e9\U0001f600"), max_size=60)
BUCKETS = st.text(st.sampled_from("aZ09._-"), min_size=3, max_size=255)
KNOWN = ", ".join(f"{scheme}://" for scheme in loaded_schemes())


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("s3://bucket/key", Location("s3", "bucket", "key")),
        ("s3://bucket", Location("s3", "bucket", "")),
        ("s3://bucket/", Location("s3", "bucket", "")),
        ("s3://bucket//a//b/", Location("s3", "bucket", "/a//b/")),
        ("s3://Old_Bucket.2009/a%20b?c#d+e", Location("s3", "Old_Bucket.2009", "a%20b?c#d+e")),
        ("s3://bucket/./x/../y", Location("s3", "bucket", "./x/../y")),
        ("s3://bucket/user@host: 😀", Location("s3", "bucket", "user@host: 😀")),
        ("s3://bucket/http://mirror/x", Location("s3", "bucket", "http://mirror/x")),
        ("memory://m/key", Location("memory", "m", "key")),
        ("file:///data/a b", Location("file", "", "data/a b")),
        ("file:///", Location("file", "", "")),
        ("/data//a%20b/", Location("file", "", "data//a%20b/")),
        ("//data", Location("file", "", "/data")),
        ("/mirror/http://host/x", Location("file", "", "mirror/http://host/x")),
    ],
)
def test_key_is_the_literal_text_after_the_bucket(url, location):
    assert parse(url) == location
    assert parse(location.url) == location


@given(BUCKETS, KEYS | SPICY)
def test_every_location_survives_its_own_url(bucket, key):
    for location in (Location("s3", bucket, key), Location("memory", bucket, key), Location("file", "", key)):
        assert parse(location.url) == location
        assert parse(location.root).at(key) == location


@given(st.text(max_size=40) | st.text(st.sampled_from("s3:/@?#.-xX%\0 "), max_size=20))
def test_any_text_gives_a_location_that_round_trips_or_one_of_our_errors(text):
    try:
        location = parse(text)
    except (InvalidURL, UnknownScheme):
        return
    assert parse(location.url) == location


@pytest.mark.parametrize(
    ("path", "below"),
    [
        ("data/train", "data/train"),
        ("./data/train/", "data/train/"),
        (".//data", "data"),
        (".", ""),
        ("..", ".."),
        ("../data", "../data"),
        (".hidden", ".hidden"),
        ("./s3://odd", "s3://odd"),
        ("what?.tar#1", "what?.tar#1"),
        (Path("data/train"), "data/train"),
    ],
)
def test_a_bare_path_is_joined_to_the_working_directory(path, below, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parse(path) == Location("file", "", f"{os.fspath(tmp_path)}/{below}"[1:])


def test_the_url_names_the_object_as_a_user_writes_it():
    location = parse("s3://bucket/a b")
    assert (location.url, location.root, location.at("c").url) == ("s3://bucket/a b", "s3://bucket/", "s3://bucket/c")
    assert parse("/data/x").url == "file:///data/x"


def test_s3_holds_1024_bytes_of_key_and_not_one_more():
    assert parse("s3://bucket/" + "é" * 512).key == "é" * 512
    with pytest.raises(InvalidURL, match="1025 bytes"):
        parse("s3://bucket/" + "é" * 512 + "a")
    with pytest.raises(InvalidURL, match="1025 bytes"):
        parse("s3://bucket/").at("a" * 1025)
    assert parse("memory://m/" + "a" * 5000).key == "a" * 5000


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "empty"),
        (None, "a variable of the environment unset"),
        (b"s3://bucket/key", "bytes"),
        ("s3://", "no bucket"),
        ("s3:///key", "no bucket"),
        ("s3://ab/key", "3 to 255"),
        ("s3://" + "a" * 256 + "/key", "3 to 255"),
        ("s3://bücket/key", "cannot be a bucket"),
        ("s3://bucket?x/key", "cannot be a bucket"),
        ("s3://buc\0ket/key", "cannot be a bucket"),
        ("s3://localhost:9000/bucket/key", "endpoint="),
        ("memory:///key", "no bucket"),
        ("file://data/train", "three slashes"),
        ("s3://bucket/a\0b", "NUL"),
        ("/data/a\0b", "NUL"),
        ("s3://bucket/a\ud800", "surrogates"),
        (os.fsdecode(b"/data/\xff"), "surrogates"),
        ("://bucket/key", "no scheme"),
        ("my data://x", "no scheme"),
        ("s3:/bucket/key", "'://'"),
        ("s3:bucket/key", "'://'"),
        (Path("gs://bucket/key"), "'://'"),
        ("~", "expanduser"),
        ("~/data", "expanduser"),
        (Path("~/data"), "expanduser"),
        ("C:\\data\\train", "Windows"),
        ("C:/data/train", "'://'"),
        ("\\\\host\\share", "Windows"),
    ],
)
def test_invalid_url_is_refused_with_remedy(url, says):
    with pytest.raises(InvalidURL, match=says):
        parse(url)


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIA:hush@bucket/key",
        "s3://AKIA:hu/sh@bucket/key",
        "s3://hush@bucket/key",
        "memory://AKIA:hush@m/key",
        "file://AKIA:hush@host/key",
        "https://AKIA:hush@bucket.s3.amazonaws.com/key",
        "gs://AKIA:hush@bucket/key?sig=hush",
        "AKIA:hush@bucket://key",
    ],
)
def test_credentials_in_a_url_are_refused_and_never_echoed(url):
    with pytest.raises(PenstockError) as caught:
        parse(url)
    assert isinstance(caught.value, (InvalidURL, UnknownScheme))
    assert not any(
        secret in f"{caught.value!s}{caught.value!r}{vars(caught.value)}" for secret in ("hu", "sh@", "AKIA")
    )


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("S3://bucket/key", "did you mean s3://?"),
        ("s4://bucket/key", "did you mean s3://?"),
        ("s3a://bucket/key", "did you mean s3://?"),
        ("File:///data", "did you mean file://?"),
        ("mem://m/key", "did you mean memory://?"),
    ],
)
def test_near_miss_scheme_error_suggests_the_known_scheme(url, meant):
    with pytest.raises(UnknownScheme) as caught:
        parse(url)
    assert meant in str(caught.value)
    assert f"{KNOWN} and local paths" in str(caught.value)


def test_unrelated_scheme_error_lists_only_known_schemes():
    with pytest.raises(UnknownScheme) as caught:
        parse("quux://bucket/key")
    assert str(caught.value) == f"unknown scheme 'quux': Penstock knows {KNOWN} and local paths"


@pytest.mark.parametrize(
    ("text", "root"),
    [
        *(("s3://bucket/", True), ("s3://bucket", False), ("s3://bucket/key", False), ("file:///", True)),
        *(("penstock://nobody/", True), ("penstock://nobody", False), ("penstock://no body/", False), ("path/", False)),
    ],
)
def test_a_root_is_a_bucket_or_any_profile(text, root):
    assert is_root(text) is root


def test_only_a_profile_has_keys_by_other_urls():
    assert parse("s3://bucket/").relative("s3://bucket/key") is None
