"""Google's credentials over real token servers: every way to get one, when it expires, and what a refusal says."""

from __future__ import annotations

import json
import os
import time

import pytest

from penstock.engine.contracts.credentials import BearerToken, Credentials
from penstock.errors import ConfigError, PenstockError, Unauthenticated, Unreachable
from penstock.stores.gcs.driver import ServiceToken
from penstock.stores.gcs.options import GCSOptions
from penstock.stores.gcs.store import resolve, source
from tests.servers.google import TokenServer
from tests.stores.gcs.keys import EMAIL, new_key, service_account


@pytest.fixture(scope="module")
def private_key():
    return new_key()


@pytest.fixture
def server(monkeypatch):
    from google.oauth2 import credentials

    with TokenServer.start() as server:
        # The one service that no file can name.
        monkeypatch.setattr(credentials, "_GOOGLE_OAUTH2_TOKEN_ENDPOINT", f"{server.url}/oauth")
        yield server


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """Have google-auth find nothing but what a test names."""
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST", "GCS_KEY", "GCS_SECRET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    return monkeypatch


def _load(options=None, environ=None):
    options, environ = options or GCSOptions(), dict(os.environ) if environ is None else environ
    settings, _ = resolve(options, environ)
    return source(options, settings, environ).load()


def _user():
    return {
        "type": "authorized_user",
        "client_id": "id",
        "client_secret": "client-s3cret",
        "refresh_token": "refresh-s3cret",
    }


def _workload(server, tmp_path):
    (tmp_path / "subject").write_text("subject-token")
    return {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/x",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{server.url}/sts",
        "credential_source": {"file": str(tmp_path / "subject")},
    }


def _good(found, server, asked):
    assert isinstance(found, BearerToken)
    assert found.token == "token-1"
    assert 3500 < found.expires_at - time.time() <= 3600
    assert asked in server.asked


@pytest.mark.parametrize("kind", ["service_account", "authorized_user", "external_account"])
@pytest.mark.parametrize("way", ["file", "json", "variable"])
def test_a_file_of_each_kind_gets_a_token_in_each_way(way, kind, server, nowhere, tmp_path, private_key):
    info = {
        "service_account": lambda: service_account(server, private_key),
        "authorized_user": _user,
        "external_account": lambda: _workload(server, tmp_path),
    }[kind]()
    path = tmp_path / "credentials.json"
    path.write_text(json.dumps(info))
    options = {"file": GCSOptions(credentials_file=str(path)), "json": GCSOptions(credentials_json=json.dumps(info))}
    if way == "variable":
        nowhere.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    found = _load(options.get(way))
    _good(found, server, "POST /sts" if kind == "external_account" else "POST /oauth")
    assert found.found_in == ("GCSOptions.credentials_json" if way == "json" else str(path))
    assert isinstance(found, ServiceToken) is (kind == "service_account")
    if kind == "service_account":
        assert found.account == EMAIL
        assert len(found.sign(b"text")) == 256
        assert server.forms[0]["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"


def test_the_metadata_server_gives_a_token(server, nowhere):
    nowhere.delenv("NO_GCE_CHECK")
    for name, value in server.environment.items():
        nowhere.setenv(name, value)
    # google-auth reads these when it is imported.
    from google.auth.compute_engine import _metadata

    # It is true where the module was imported by a test that has NO_GCE_CHECK set.
    nowhere.setattr(_metadata, "_NO_GCE_CHECK", False, raising=False)
    nowhere.setattr(_metadata, "_METADATA_ROOT", f"http://{server.host}/computeMetadata/v1/", raising=False)
    nowhere.setattr(_metadata, "_METADATA_IP_ROOT", f"http://{server.host}", raising=False)
    nowhere.setattr(_metadata, "_GCE_METADATA_HOST", server.host, raising=False)
    found = _load()
    assert isinstance(found, BearerToken)
    assert (found.token, found.found_in) == ("token-1", "the metadata server")


def test_gclouds_own_file_is_found(server, tmp_path):
    (tmp_path / "gcloud").mkdir()
    (tmp_path / "gcloud" / "application_default_credentials.json").write_text(json.dumps(_user()))
    _good(_load(), server, "POST /oauth")


def test_another_service_account_is_acted_as(server, monkeypatch):
    from google.auth import iam

    monkeypatch.setattr(iam, "_IAM_ENDPOINT", f"{server.url}/iam/{{}}:generateAccessToken")
    found = _load(GCSOptions(credentials_json=json.dumps(_user()), service_account=EMAIL))
    assert found.token == "token-2"
    assert server.asked == ["POST /oauth", f"POST /iam/{EMAIL}:generateAccessToken"]
    assert EMAIL in found.found_in
    found = _load(GCSOptions(token="mine", service_account=EMAIL))
    assert found.token == "token-3"


def test_an_impersonating_file_is_used(server, monkeypatch):
    from google.auth import iam

    monkeypatch.setattr(iam, "_IAM_ENDPOINT", f"{server.url}/iam/{{}}:generateAccessToken")
    info = {
        "type": "impersonated_service_account",
        "service_account_impersonation_url": f"https://x/v1/projects/-/serviceAccounts/{EMAIL}:generateAccessToken",
        "source_credentials": _user(),
    }
    assert _load(GCSOptions(credentials_json=json.dumps(info))).token == "token-2"


def test_explicit_keys_and_tokens_skip_credential_discovery(nowhere):
    assert _load(GCSOptions(access_key="a", secret_key="s")) == Credentials("a", "s")
    assert _load(GCSOptions(token="t")) == BearerToken("t")
    assert _load(GCSOptions(anonymous=True)) is None
    nowhere.setenv("GCS_KEY", "a")
    nowhere.setenv("GCS_SECRET", "s")
    assert _load() == Credentials("a", "s")


def test_a_token_comes_from_a_function_or_a_program():
    def own():
        return BearerToken("mine", 2e9)

    assert _load(GCSOptions(credentials=own)) == BearerToken("mine", 2e9)
    printing = ("printf", "%s", '{"token": "printed", "expires_at": 2e9}')
    assert _load(GCSOptions(credentials_process=printing)) == BearerToken("printed", 2e9)


@pytest.mark.parametrize(
    ("options", "environ", "said"),
    [
        (GCSOptions(), {"GCS_KEY": "a"}, "GCS_KEY and GCS_SECRET.*together"),
        (GCSOptions(token="a b"), {}, "GCSOptions.token holds a space"),
        (GCSOptions(token=""), {}, "GCSOptions.token is empty"),
        (GCSOptions(access_key="a\n", secret_key="s"), {}, "line break"),
        (GCSOptions(credentials_file="/no/such.json"), {}, "credentials_file names '/no/such.json', which is not"),
        (GCSOptions(), {"GOOGLE_APPLICATION_CREDENTIALS": "/no"}, "GOOGLE_APPLICATION_CREDENTIALS names '/no', which"),
        (GCSOptions(credentials_json="/a/path"), {}, "must be a JSON object"),
        (GCSOptions(credentials_json='{"type": "nonsense"}'), {}, "google-auth|credentials"),
    ],
)
def test_unusable_gcs_credential_setting_error_names_it(options, environ, said, nowhere):
    for name, value in environ.items():
        nowhere.setenv(name, value)
    with pytest.raises((ConfigError, Unauthenticated), match=said):
        _load(options)


def test_missing_credentials_error_lists_searched_sources():
    with pytest.raises(Unauthenticated, match=r"GOOGLE_APPLICATION_CREDENTIALS.*gcloud auth.*anonymous=True"):
        _load()


def test_a_refusal_names_oauths_code_and_no_secret(server):
    server.refusal = 400, {"error": "invalid_grant", "error_description": "bad refresh-s3cret here"}
    with pytest.raises(Unauthenticated, match=r"\(invalid_grant\)") as caught:
        _load(GCSOptions(credentials_json=json.dumps(_user())))
    shown = f"{caught.value}{caught.value.__cause__}{caught.value.__context__}"
    assert "s3cret" not in shown


@pytest.mark.parametrize("status", [500, 503])
def test_a_service_with_a_problem_is_unreachable(status, server, monkeypatch):
    from google.auth import _exponential_backoff

    monkeypatch.setattr(_exponential_backoff.time, "sleep", lambda _s: None)
    server.refusal = status, {"error": "internal_failure"}
    with pytest.raises(Unreachable):
        _load(GCSOptions(credentials_json=json.dumps(_user())))


def test_a_service_that_is_not_there_is_unreachable(server, private_key):
    info = service_account(server, private_key) | {"token_uri": "http://127.0.0.1:9/oauth"}
    with pytest.raises(Unreachable, match="did not answer"):
        _load(GCSOptions(credentials_json=json.dumps(info)))


def test_a_redirect_of_a_token_request_is_not_followed(server):
    """The refresh token goes to the host that the file names, and to no other."""
    server.refusal = 307, {"error": "moved"}
    with pytest.raises(PenstockError):
        _load(GCSOptions(credentials_json=json.dumps(_user())))
    assert server.asked.count("POST /oauth") == len(server.asked)


def test_changed_credential_environment_raises_instead_of_loading():
    with pytest.raises(Unauthenticated, match="open a new source"):
        _load(environ={**os.environ, "CLOUDSDK_CONFIG": "/elsewhere"})
