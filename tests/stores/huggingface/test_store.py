"""URLs of repositories: their parts, what is refused, and which settings they lead to."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.errors import ConfigError, InvalidURL
from penstock.source import open_source
from penstock.stores.huggingface.store import HuggingFace, find_token
from penstock.stores.urls import parse


@pytest.mark.parametrize(
    ("url", "bucket", "key"),
    [
        ("hf://datasets/org/name/a/b.txt", "datasets/org/name", "a/b.txt"),
        ("hf://models/Org-1/na.me_2/", "models/Org-1/na.me_2", ""),
        ("hf://spaces/org/name", "spaces/org/name", ""),
        ("hf://datasets/org/name@v1.0/x@y/z", "datasets/org/name@v1.0", "x@y/z"),
        ("hf://datasets/org/name@refs/pr/12/x", "datasets/org/name@refs/pr/12", "x"),
        (
            "hf://datasets/org/name@refs/convert/parquet/d/0.parquet",
            "datasets/org/name@refs/convert/parquet",
            "d/0.parquet",
        ),
        ("hf://datasets/org/name@feature%2Fx/a b%20c?#.txt", "datasets/org/name@feature%2Fx", "a b%20c?#.txt"),
    ],
)
def test_parts_of_a_url(url, bucket, key):
    location = parse(url)
    assert (location.bucket, location.key) == (bucket, key)
    assert type(location.store) is HuggingFace
    assert parse(location.url) == location


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("hf://org/name/x", "write hf://datasets/ORG/NAME"),
        ("hf://datasets/name", "cannot be a repository"),
        ("hf://datasets/../name/x", "cannot be a repository"),
        ("hf://datasets/org/name@/x", "cannot be a repository"),
        ("hf://datasets/org/name@a@b/x", "cannot be a repository"),
        ("hf://buckets/org/name/x", "provider='hf-buckets'"),
        ("hf://datasets/org/name/a//b", "'//'"),
        ("hf://datasets/org/name/../x", "'..'"),
        ("hf://datasets/org/name/x/.", "'.'"),
    ],
)
def test_other_urls_are_refused(url, words):
    with pytest.raises(InvalidURL) as caught:
        parse(url)
    assert words in str(caught.value)


def test_requests_go_to_the_endpoint_with_the_revision_escaped(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example/")
    driver = open_source("hf://datasets/org/name@feature%2Fx/")[0]._fetcher().driver
    assert driver.head("a b").request.url == "https://mirror.example/datasets/org/name/resolve/feature%2Fx/a%20b"
    assert driver.list("").request.url == "https://mirror.example/api/datasets/org/name/revision/feature%2Fx?expand=sha"
    options = ps.HFOptions(endpoint="https://huggingface.co")
    driver = open_source("hf://models/org/name@refs/pr/1/", options)[0]._fetcher().driver
    assert driver.head("x").request.url == "https://huggingface.co/org/name/resolve/refs%2Fpr%2F1/x"
    assert open_source("hf://models/org/name/", options)[0].place == ""


def test_token_is_not_sent_unencrypted_to_another_machine():
    options = ps.HFOptions(endpoint="http://hub.example", token="hf_TokenOfTheTests")
    with pytest.raises(ConfigError, match=r"would be sent to http://hub\.example unencrypted") as caught:
        ps.stat("hf://datasets/org/name/x", store=options)
    assert "hf_TokenOfTheTests" not in str(caught.value)


def test_invalid_token_of_the_environment_is_refused():
    with pytest.raises(ConfigError, match="printable ASCII"):
        find_token(ps.HFOptions(), {"HF_TOKEN": "a\nb"})


def test_another_token_is_another_identity():
    store, options = HuggingFace(), ps.HFOptions()
    one, other = (store.resolve(options, {"HF_TOKEN": token}) for token in ("hf_a", "hf_b"))
    assert one[0] == other[0]
    assert one[1] != other[1]


def test_address_of_the_hubs_page_suggests_the_url():
    page = "https://huggingface.co/datasets/org/name/resolve/main/a%20b.txt?download=true"
    assert HuggingFace().advice(page) == "for this file write hf://datasets/org/name@main/a b.txt"
    assert (
        HuggingFace().advice("https://huggingface.co/org/name/blob/v1/x")
        == "for this file write hf://models/org/name@v1/x"
    )
    assert HuggingFace().advice("https://example.com/org/name/blob/v1/x") == ""
