"""Account, endpoint and credentials: from options, then a connection string, then the environment."""

from base64 import b64encode

import pytest

from penstock.errors import ConfigError
from penstock.stores.azure.options import AzureOptions
from penstock.stores.azure.store import account_of, is_secured, locate_container, resolve

KEY = b64encode(b"a key that is a secret").decode()
OTHER = b64encode(b"another key").decode()


def _settings(environ=(), **options):
    return resolve(AzureOptions(**options), dict(environ))[0]


def _identity(environ=(), **options):
    return resolve(AzureOptions(**options), dict(environ))[1]


@pytest.mark.parametrize("variable", ["AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT", "AZURE_ACCOUNT_NAME"])
def test_the_account_is_the_options_then_the_environments(variable):
    assert _settings({variable: "mine"}).account == "mine"
    assert _settings({variable: "mine"}, account="passed").account == "passed"


@pytest.mark.parametrize("variable", ["AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY", "AZURE_ACCOUNT_ACCESS_KEY"])
def test_the_key_is_the_options_then_the_environments(variable):
    found = _settings({variable: KEY}).key
    assert (found.value, found.by) == (KEY, variable)
    assert _settings({variable: KEY}, account_key=OTHER).key.value == OTHER
    assert _settings({variable: KEY}, sas_token="sv=1&sig=x").key.value == "", "what is passed hides the environment's"


def test_the_rest_of_the_environment():
    assert _settings({"AZURE_STORAGE_SAS_TOKEN": "?sv=1&sig=x"}).sas.value == "sv=1&sig=x"
    assert _settings({"AZURE_STORAGE_ANON": "true"}).anonymous
    assert not _settings({"AZURE_STORAGE_ANON": "false"}).anonymous
    assert not _settings({"AZURE_STORAGE_ANON": "true"}, anonymous=False).anonymous
    assert not _settings({"AZURE_STORAGE_ANON": "true"}, account_key=KEY).anonymous
    assert _settings({"AZURE_STORAGE_ENDPOINT": "https://h/x"}).endpoint == "https://h/x"
    assert _settings({"AZURE_STORAGE_ACCOUNT": ""}).account == "", "an empty variable is unset"


def test_connection_string_names_are_case_insensitive():
    text = f"defaultendpointsprotocol=https; ACCOUNTNAME=mine;AccountKey={KEY};EndpointSuffix=core.chinacloudapi.cn;"
    found = _settings(connection_string=text)
    assert (found.account, found.key.value) == ("mine", KEY)
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
        value = KEY if name == "AZURE_STORAGE_KEY" else "sv=1&sig=x"
        assert _identity(base) != _identity(base | {name: value})
        assert _identity(base, account_key=KEY) == _identity(base | {name: value}, account_key=KEY)
        assert value.encode() not in _identity(base | {name: value})
