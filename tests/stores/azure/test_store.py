"""Azure's URLs, names and advice; a container is opened where URL, options and environment say."""

import pickle

import pytest

import penstock as ps
from penstock.errors import ConfigError, InvalidURL
from penstock.options import StoreOptions
from penstock.source import open_source
from penstock.stores.azure.options import AzureOptions
from penstock.stores.azure.store import Azure
from penstock.stores.urls import parse

KEY = "c2VjcmV0"


def _driver(url, store=None):
    source, _ = open_source(url, store)
    return source._fetcher().driver


@pytest.mark.parametrize("scheme", Azure.schemes)
def test_every_scheme_names_a_container(scheme):
    found = parse(f"{scheme}://box/a/b?c#d")
    assert (found.bucket, found.key, found.url) == ("box", "a/b?c#d", f"{scheme}://box/a/b?c#d")


@pytest.mark.parametrize("scheme", ["abfs", "abfss", "az"])
@pytest.mark.parametrize(
    "host", ["mine.dfs.core.windows.net", "mine.blob.core.windows.net", "onelake.dfs.fabric.microsoft.com"]
)
def test_a_url_may_name_the_account(scheme, host):
    url = f"{scheme}://box@{host}/a/b"
    found = parse(url)
    assert (found.bucket, found.key, found.url, parse(found.url)) == (f"box@{host}", "a/b", url, found)
    driver = _driver(url, AzureOptions(anonymous=True))
    request = driver.head("a/b").request
    assert request.url == f"https://{host.replace('.dfs.', '.blob.')}/box/a/b"
    assert driver.url("a/b") == url


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("az://UPPER/k", "cannot be a container"),
        ("az://ab/k", "cannot be a container"),
        ("az://a--b/k", "cannot be a container"),
        ("az://box@evil.example.com/k", "credentials and ports do not belong"),
        ("az://box:80/k", "credentials and ports do not belong"),
        ("az:///k", "no bucket"),
        ("az://box/back\\slash", "backslash"),
        ("az://box/a./b", "ends in a dot"),
        ("az://box/a/..", "ends in a dot"),
        ("az://box/\x01", "control character"),
        ("az://box/" + "x" * 1025, "1025 characters"),
    ],
)
def test_a_name_that_azure_does_not_take_is_refused(url, words):
    with pytest.raises(InvalidURL, match=words):
        parse(url)


def test_names_that_azure_takes():
    for url in ("az://$web/index.html", "az://a-b-1/x", "az://box/a//b/", "az://box/" + "日" * 1024):
        assert parse(url).url == url


@pytest.mark.parametrize(
    ("url", "written"),
    [
        ("https://mine.blob.core.windows.net/box/a%20b/c?sv=1&sig=x", "abfss://box@mine.dfs.core.windows.net/a b/c"),
        ("https://mine.dfs.core.windows.net/box", "abfss://box@mine.dfs.core.windows.net/"),
    ],
)
def test_a_url_of_the_service_itself_is_answered_with_ours(url, written):
    assert Azure().advice(url) == f"for this object write {written}"
    assert Azure().advice("https://mine.example.com/box/key") == ""


def test_the_account_is_needed_at_the_first_use():
    with pytest.raises(ConfigError, match="no storage account"):
        _driver("az://box/")
    with pytest.raises(ConfigError, match="names the account mine"):
        _driver("abfss://box@mine.dfs.core.windows.net/", AzureOptions(account="other", anonymous=True))


def test_a_token_never_goes_over_plain_http():
    for way in ({"token": "abc"}, {"sas_token": "sv=1&sig=x"}, {"credential": lambda: "abc"}):
        with pytest.raises(ConfigError, match="has no TLS"):
            _driver("az://box/", AzureOptions(account="mine", endpoint="http://mine.example.com", **way))
        assert _driver("az://box/", AzureOptions(account="mine", endpoint="http://127.0.0.1:1", **way))
    assert _driver("az://box/", AzureOptions(account="mine", endpoint="http://mine.example.com", account_key=KEY))


def test_the_environment_names_account_and_key(monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "mine")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    request = _driver("az://box/").head("key").request
    assert request.url == "https://mine.blob.core.windows.net/box/key"
    assert any(line.startswith("Authorization:SharedKey mine:") for line in request.headers)


def test_neutral_options_do_and_other_providers_do_not():
    assert Azure().take(StoreOptions(read=ps.ReadOptions(ahead_items=3))).read.ahead_items == 3
    with pytest.raises(ConfigError, match="AzureOptions"):
        open_source("az://box/", ps.S3Options(region="x"))


def test_pages_are_large_and_parts_many():
    driver = _driver("az://box/", AzureOptions(account="mine", anonymous=True))
    assert driver.page_keys == 5000
    assert "maxresults=5000" in driver.list("").request.url
    assert Azure.limits.most_parts == 50_000


def test_a_source_is_pickled_for_workers():
    source, _ = open_source("az://box/", AzureOptions(account="mine", anonymous=True))
    assert pickle.loads(pickle.dumps(source)).root == "az://box/"
