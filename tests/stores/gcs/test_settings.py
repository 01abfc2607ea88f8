"""Options and environment of Google Cloud Storage: what is sent, where to, and never a token in the clear."""

import pytest

from penstock.errors import ConfigError
from penstock.stores.gcs.options import GCSOptions
from penstock.stores.gcs.store import resolve

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
    settings, _ = resolve(GCSOptions(**options), environ)
    assert (settings.access, settings.endpoint) == (access, endpoint)


@pytest.mark.parametrize("options", [{"token": "t"}, {}, {"credentials_file": "f"}])
@pytest.mark.parametrize("host", ["other", "10.0.0.1", "localhost.example.com", "127.0.0.1.example.com"])
def test_a_token_never_goes_over_plain_http_to_another_machine(host, options):
    with pytest.raises(ConfigError, match=r"GCSOptions.endpoint is plain HTTP to another machine.*https://"):
        resolve(GCSOptions(endpoint=f"http://{host}:80", **options), {})


def test_an_emulators_variable_is_named_where_it_is_to_blame():
    with pytest.raises(ConfigError, match="STORAGE_EMULATOR_HOST is plain HTTP"):
        resolve(GCSOptions(token="t"), {"STORAGE_EMULATOR_HOST": "emulator:80"})
    with pytest.raises(ConfigError, match="STORAGE_EMULATOR_HOST"):
        resolve(GCSOptions(), {"STORAGE_EMULATOR_HOST": "http://a b"})


def test_other_credentials_are_another_identity_and_none_can_be_read_from_it():
    one = resolve(GCSOptions(), {"GOOGLE_APPLICATION_CREDENTIALS": "/a"})
    other = resolve(GCSOptions(), {"GOOGLE_APPLICATION_CREDENTIALS": "/b"})
    assert one[0] == other[0]
    assert one[1] != other[1]
    keys = {"GCS_KEY": "k3y", "GCS_SECRET": "s3cret"}
    assert "s3cret" not in repr(resolve(GCSOptions(), keys))
    assert resolve(GCSOptions(token="t"), keys)[1] == resolve(GCSOptions(token="t"), {})[1]


def test_the_payer_travels():
    assert resolve(GCSOptions(user_project="p"), {})[0].user_project == "p"
