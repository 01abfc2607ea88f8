"""``gs://``: names of buckets and keys, advice for web addresses, and how a bucket is opened."""

from __future__ import annotations

import json
import os
import sys
import time

import pytest

import penstock as ps
from penstock.engine.contracts.credentials import BearerToken, Credentials
from penstock.errors import ConfigError, InvalidURL, MissingExtra, PenstockError, Unauthenticated, Unreachable
from penstock.source import open_source
from penstock.stores.gcs.driver import ServiceToken
from penstock.stores.gcs.options import GCSOptions
from penstock.stores.gcs.store import GCS, GoogleCredentials
from penstock.stores.s3.options import S3Options
from penstock.stores.urls import parse
from penstock.testing.faults import FaultServer, Settings
from tests.servers.google import TokenServer
from tests.stores.gcs.keys import EMAIL, new_key, service_account


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


# -- Options and environment of Google Cloud Storage: what is sent, where to, and never a token in the clear --


KEYS = {"access_key": "a", "secret_key": "s"}


@pytest.mark.parametrize(
    ("options", "environ", "access", "endpoint"),
    [
        ({}, {}, "token", None),
        ({"anonymous": True}, {}, "nothing", None),
        (KEYS, {}, "keys", None),
        ({}, {"GCS_KEY": "a", "GCS_SECRET": "s"}, "keys", None),
        ({"token": "t"}, {"GCS_KEY": "a", "GCS_SECRET": "s"}, "token", None),
        ({"service_account": "a@b"}, {"GCS_KEY": "a", "GCS_SECRET": "s"}, "token", None),
        ({}, {"STORAGE_EMULATOR_HOST": "emulator:9023"}, "nothing", "http://emulator:9023"),
        (KEYS, {"STORAGE_EMULATOR_HOST": "http://emulator:9023/"}, "keys", "http://emulator:9023"),
        ({"token": "t"}, {"STORAGE_EMULATOR_HOST": "https://emulator"}, "token", "https://emulator"),
        ({"endpoint": "https://private"}, {"STORAGE_EMULATOR_HOST": "http://emulator"}, "token", "https://private"),
        ({"endpoint": "http://127.0.0.1:1", "token": "t"}, {}, "token", "http://127.0.0.1:1"),
        ({"endpoint": "http://[::1]:1", "token": "t"}, {}, "token", "http://[::1]:1"),
        ({"endpoint": "http://localhost:1", "token": "t"}, {}, "token", "http://localhost:1"),
        ({"endpoint": "http://other", "anonymous": True}, {}, "nothing", "http://other"),
        ({"endpoint": "http://other", **KEYS}, {}, "keys", "http://other"),
    ],
)
def test_options_override_the_environment(options, environ, access, endpoint):
    settings, _ = GCS().resolve(GCSOptions(**options), environ)
    assert (settings.access, settings.endpoint) == (access, endpoint)


@pytest.mark.parametrize("options", [{"token": "t"}, {}, {"credentials_file": "f"}])
@pytest.mark.parametrize("host", ["other", "10.0.0.1", "localhost.example.com", "127.0.0.1.example.com"])
def test_a_token_never_goes_over_plain_http_to_another_machine(host, options):
    with pytest.raises(ConfigError, match=r"GCSOptions.endpoint is plain HTTP to another machine.*https://"):
        GCS().resolve(GCSOptions(endpoint=f"http://{host}:80", **options), {})


def test_an_emulators_variable_is_named_where_it_is_to_blame():
    with pytest.raises(ConfigError, match="STORAGE_EMULATOR_HOST is plain HTTP"):
        GCS().resolve(GCSOptions(token="t"), {"STORAGE_EMULATOR_HOST": "emulator:80"})
    with pytest.raises(ConfigError, match="STORAGE_EMULATOR_HOST"):
        GCS().resolve(GCSOptions(), {"STORAGE_EMULATOR_HOST": "http://a b"})


def test_other_credentials_are_another_identity_and_none_can_be_read_from_it():
    one = GCS().resolve(GCSOptions(), {"GOOGLE_APPLICATION_CREDENTIALS": "/a"})
    other = GCS().resolve(GCSOptions(), {"GOOGLE_APPLICATION_CREDENTIALS": "/b"})
    assert one[0] == other[0]
    assert one[1] != other[1]
    keys = {"GCS_KEY": "k3y", "GCS_SECRET": "s3cret"}
    assert "s3cret" not in repr(GCS().resolve(GCSOptions(), keys))
    assert GCS().resolve(GCSOptions(token="t"), keys)[1] == GCS().resolve(GCSOptions(token="t"), {})[1]


def test_the_payer_travels():
    assert GCS().resolve(GCSOptions(user_project="p"), {})[0].user_project == "p"


# -- Google's credentials over real token servers: every way to get one, when it expires, and what a refusal says --


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
    settings, _ = GCS().resolve(options, environ)
    return GoogleCredentials(options, settings, environ).load()


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
        (GCSOptions(token="a b"), {}, "GCSOptions.token contains spaces"),
        (GCSOptions(token=""), {}, "GCSOptions.token is empty"),
        (GCSOptions(access_key="a\n", secret_key="s"), {}, "line break"),
        (
            GCSOptions(credentials_file="/no/such.json"),
            {},
            "'/no/such.json', which does not exist",
        ),
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
