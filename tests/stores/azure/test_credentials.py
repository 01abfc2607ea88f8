"""What was passed comes first, then the environment, then azure-identity; no text quotes a secret."""

import os
import subprocess
import sys
import time
from base64 import b64encode
from types import SimpleNamespace

import pytest

from penstock.engine.contracts.credentials import BearerToken
from penstock.errors import ConfigError, MissingExtra, Unauthenticated
from penstock.stores.azure import store as azure_store
from penstock.stores.azure.options import AzureOptions
from penstock.stores.azure.signing import AccountKey, SharedAccess
from penstock.stores.azure.store import SCOPE, resolve, source

KEY = b64encode(b"a key").decode()


def _load(environ=(), **options):
    options, environ = AzureOptions(**options), dict(environ)
    return source(options, resolve(options, environ)[0], environ).load()


def test_explicit_azure_credential_overrides_the_environment():
    environ = {"AZURE_STORAGE_ACCOUNT_KEY": KEY}
    assert _load(environ) == AccountKey(KEY)
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
