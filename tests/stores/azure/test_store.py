"""Azure's URLs, names and advice; a container is opened where URL, options and environment say."""

import os
import pickle
import subprocess
import sys
import time
from base64 import b64encode
from types import SimpleNamespace

import pytest

import penstock as ps
from penstock.engine.contracts.credentials import BearerToken
from penstock.errors import ConfigError, InvalidURL, MissingExtra, Unauthenticated
from penstock.options import StoreOptions
from penstock.source import open_source
from penstock.stores.azure import store as azure_store
from penstock.stores.azure.options import AzureOptions
from penstock.stores.azure.signing import AccountKey, SharedAccess
from penstock.stores.azure.store import (
    SCOPE,
    Azure,
    AzureCredentials,
    account_of,
    is_secured,
    locate_container,
)
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


# -- Account, endpoint and credentials: from options, then a connection string, then the environment --


KEY_A = b64encode(b"a key that is a secret").decode()
OTHER = b64encode(b"another key").decode()


def _settings(environ=(), **options):
    return Azure().resolve(AzureOptions(**options), dict(environ))[0]


def _identity(environ=(), **options):
    return Azure().resolve(AzureOptions(**options), dict(environ))[1]


@pytest.mark.parametrize("variable", ["AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT", "AZURE_ACCOUNT_NAME"])
def test_the_account_is_the_options_then_the_environments(variable):
    assert _settings({variable: "mine"}).account == "mine"
    assert _settings({variable: "mine"}, account="passed").account == "passed"


@pytest.mark.parametrize("variable", ["AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY", "AZURE_ACCOUNT_ACCESS_KEY"])
def test_the_key_is_the_options_then_the_environments(variable):
    found = _settings({variable: KEY_A}).key
    assert (found.value, found.by) == (KEY_A, variable)
    assert _settings({variable: KEY_A}, account_key=OTHER).key.value == OTHER
    assert _settings({variable: KEY_A}, sas_token="sv=1&sig=x").key.value == "", (
        "what is passed hides the environment's"
    )


def test_the_rest_of_the_environment():
    assert _settings({"AZURE_STORAGE_SAS_TOKEN": "?sv=1&sig=x"}).sas.value == "sv=1&sig=x"
    assert _settings({"AZURE_STORAGE_ANON": "true"}).anonymous
    assert not _settings({"AZURE_STORAGE_ANON": "false"}).anonymous
    assert not _settings({"AZURE_STORAGE_ANON": "true"}, anonymous=False).anonymous
    assert not _settings({"AZURE_STORAGE_ANON": "true"}, account_key=KEY_A).anonymous
    assert _settings({"AZURE_STORAGE_ENDPOINT": "https://h/x"}).endpoint == "https://h/x"
    assert _settings({"AZURE_STORAGE_ACCOUNT": ""}).account == "", "an empty variable is unset"


def test_connection_string_names_are_case_insensitive():
    text = f"defaultendpointsprotocol=https; ACCOUNTNAME=mine;AccountKey={KEY_A};EndpointSuffix=core.chinacloudapi.cn;"
    found = _settings(connection_string=text)
    assert (found.account, found.key.value) == ("mine", KEY_A)
    assert found.endpoint == "https://mine.blob.core.chinacloudapi.cn"
    found = _settings({"AZURE_STORAGE_CONNECTION_STRING": text, "AZURE_STORAGE_ACCOUNT": "other"})
    assert (found.account, found.key.by) == ("mine", "AZURE_STORAGE_CONNECTION_STRING")
    sas = "BlobEndpoint=https://mine.blob.core.windows.net/;SharedAccessSignature=sv=1&sp=r&sig=a%3D"
    found = _settings(connection_string=sas)
    assert (found.endpoint, found.sas.value) == ("https://mine.blob.core.windows.net", "sv=1&sp=r&sig=a%3D")
    assert locate_container(found, "")[0] == "mine"


def test_development_storage_string_selects_the_emulator():
    found = _settings(connection_string="UseDevelopmentStorage=true")
    assert (found.account, found.endpoint) == ("devstoreaccount1", "http://127.0.0.1:10000/devstoreaccount1")
    assert found.key.value


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"connection_string": "nonsense"}, "must be a connection string"),
        ({"connection_string": "AccountName=mine"}, "neither an AccountKey"),
        ({"account_key": "not base64!"}, "must be an account key"),
        ({"sas_token": "https://mine.blob.core.windows.net/c?sv=1&sig=x"}, "must be a shared access signature"),
        ({"sas_token": "nothing"}, "must be a shared access signature"),
        ({"account": "Not_One"}, "must be a storage account"),
        ({"endpoint": "mine.blob.core.windows.net"}, "AzureOptions.endpoint"),
    ],
)
def test_a_value_that_cannot_work_is_named_and_no_secret_quoted(options, words):
    with pytest.raises(ConfigError, match=words) as caught:
        _settings(**options)
    secrets = [options[name] for name in ("account_key", "sas_token", "connection_string") if name in options]
    assert not any(secret in str(caught.value) for secret in secrets)


def test_the_account_may_stand_in_the_url():
    host = "mine.dfs.core.windows.net"
    assert locate_container(_settings(), host) == ("mine", "https://mine.blob.core.windows.net")
    assert locate_container(_settings(account="mine"), host)[0] == "mine"
    with pytest.raises(ConfigError, match="names the account mine, but options or environment other"):
        locate_container(_settings(account="other"), host)
    onelake = locate_container(_settings(), "onelake.dfs.fabric.microsoft.com")
    assert onelake == ("onelake", "https://onelake.blob.fabric.microsoft.com")


def test_an_account_is_needed_somewhere():
    with pytest.raises(ConfigError, match="AZURE_STORAGE_ACCOUNT_NAME"):
        locate_container(_settings(), "")
    assert locate_container(_settings(account="mine"), "") == ("mine", "https://mine.blob.core.windows.net")
    assert locate_container(_settings(endpoint="https://mine.blob.example.com"), "") == (
        "mine",
        "https://mine.blob.example.com",
    )


def test_an_emulators_account_stands_in_the_path():
    found = _settings(account="mine", endpoint="http://127.0.0.1:10000")
    assert locate_container(found, "") == ("mine", "http://127.0.0.1:10000/mine")
    found = _settings(endpoint="http://127.0.0.1:10000/mine")
    assert locate_container(found, "") == ("mine", "http://127.0.0.1:10000/mine")
    assert account_of("http://localhost:1") == ""


@pytest.mark.parametrize(
    ("endpoint", "safe"),
    [
        *(("https://h.example.com", True), ("http://h.example.com", False), ("http://10.0.0.1", False)),
        *(("http://127.0.0.1:1/a", True), ("http://localhost:1", True), ("http://[::1]:1", True)),
    ],
)
def test_a_secret_goes_over_tls_or_stays_on_this_machine(endpoint, safe):
    assert is_secured(endpoint) is safe


def test_the_identity_differs_where_the_environment_names_other_credentials():
    base = {"AZURE_STORAGE_ACCOUNT": "mine"}
    assert _identity(base) == _identity(base | {"PATH": "x"})
    for name in ("AZURE_STORAGE_KEY", "AZURE_CLIENT_ID", "AZURE_STORAGE_SAS_TOKEN"):
        value = KEY_A if name == "AZURE_STORAGE_KEY" else "sv=1&sig=x"
        assert _identity(base) != _identity(base | {name: value})
        assert _identity(base, account_key=KEY_A) == _identity(base | {name: value}, account_key=KEY_A)
        assert value.encode() not in _identity(base | {name: value})


# -- What was passed comes first, then the environment, then azure-identity; no text quotes a secret --


KEY_B = b64encode(b"a key").decode()


def _load(environ=(), **options):
    options, environ = AzureOptions(**options), dict(environ)
    return AzureCredentials(options, Azure().resolve(options, environ)[0], environ).load()


def test_explicit_azure_credential_overrides_the_environment():
    environ = {"AZURE_STORAGE_ACCOUNT_KEY": KEY_B}
    assert _load(environ) == AccountKey(KEY_B)
    assert _load(environ).found_in == "AZURE_STORAGE_ACCOUNT_KEY"
    assert _load(environ, sas_token="?sv=1&sig=x") == SharedAccess("sv=1&sig=x")
    assert _load(environ, token="abc") == BearerToken("abc", None)
    assert _load(environ, anonymous=True) is None
    assert _load({"AZURE_STORAGE_ANON": "1"}) is None


def test_a_credential_is_asked_for_the_scope_of_storage():
    asked = []

    class Credential:
        def get_token(self, *scopes):
            asked.append(scopes)
            return SimpleNamespace(token="abc", expires_on=123)

    assert _load(credential=Credential()) == BearerToken("abc", 123.0)
    assert asked == [(SCOPE,)]


def test_a_function_gives_a_token_that_is_asked_for_again():
    found = _load(credential=lambda: "abc")
    assert found.token == "abc"
    assert 500 < found.expires_at - time.time() <= 600


def test_a_credential_that_fails_is_named_and_not_quoted():
    def fail():
        raise ValueError("the secret is hunter2")

    with pytest.raises(Unauthenticated, match=r"AzureOptions\.credential gave no token: ValueError") as caught:
        _load(credential=fail)
    assert "hunter2" not in f"{caught.value}{caught.value.__cause__}{caught.value.__context__}"
    with pytest.raises(ConfigError, match="no bearer token"):
        _load(credential=lambda: "with\nline break")


def test_azure_identitys_chain_is_asked_last(monkeypatch):
    given = SimpleNamespace(
        get_token=lambda _scope: SimpleNamespace(token="from the chain".replace(" ", "-"), expires_on=1)
    )
    monkeypatch.setattr("azure.identity.DefaultAzureCredential", lambda: given)
    assert _load().token == "from-the-chain"
    with pytest.raises(Unauthenticated, match="another identity"):
        _load({"AZURE_CLIENT_ID": "somebody else's"})


def test_the_extra_is_named_where_azure_identity_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    with pytest.raises(MissingExtra, match=r"penstock\[azure\]"):
        _load()


def test_azure_identity_is_imported_only_where_it_is_used():
    code = (
        "import sys, penstock as ps; from penstock.source import open_source;"
        "s, _ = open_source('az://box/', ps.AzureOptions(account='mine', anonymous=True)); s.supports();"
        "sys.exit(any(name.split('.')[0] in ('azure', 'msal') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], env=dict(os.environ), check=False).returncode == 0
    assert azure_store.SCOPE.startswith("https://storage.azure.com/")
