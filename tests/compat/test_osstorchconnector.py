"""The connector's arguments become Penstock's URLs and options."""

from __future__ import annotations

from datetime import UTC, datetime
from multiprocessing.reduction import ForkingPickler

import pytest

from penstock.compat.osstorchconnector.datasets import Access
from penstock.errors import ConfigError, InvalidURL

ENDPOINT = "https://oss-cn-beijing-internal.aliyuncs.com"


class Newer:
    """A provider of Alibaba's newer SDK, as far as it is asked."""

    access_key_id, access_key_secret, security_token = "id", "secret", "token"
    expiration = datetime(2030, 1, 1, tzinfo=UTC)

    def get_credentials(self):
        return self


class Older:
    """A provider of the older SDK, whose credentials have methods."""

    def get_credentials(self):
        return self

    def get_access_key_id(self):
        return "id"

    def get_access_key_secret(self):
        return "secret"

    def get_security_token(self):
        return ""


@pytest.mark.parametrize("uri", ["oss://b/k/1 %20", "/b/k/1 %20"])
def test_an_uri_is_an_object_with_an_endpoint_and_a_local_file_without(uri):
    assert Access(ENDPOINT).url(uri) == "oss://b/k/1 %20"
    assert Access("").url(uri) == "/b/k/1 %20"
    assert Access("").store is None


@pytest.mark.parametrize("uri", ["", "s3://b/k", "b/k", "oss://", "/", "//k", "oss:///k"])
def test_another_kind_of_uri_is_refused(uri):
    with pytest.raises(InvalidURL, match="write oss://bucket/key"):
        Access(ENDPOINT).url(uri)


def test_the_store_has_the_endpoint_and_the_files():
    store = Access(ENDPOINT, "/cred", "/ignored", region="r").store
    assert (store.endpoint, store.credentials_file, store.region) == (ENDPOINT, "/cred", "r")
    assert Access(ENDPOINT).store.credentials_file is None


@pytest.mark.parametrize(("provider", "token", "expires_at"), [(Newer(), "token", 1893456000.0), (Older(), "", None)])
def test_a_provider_of_either_sdk_gives_credentials(provider, token, expires_at):
    found = Access(ENDPOINT, cred_provider=provider).store.credentials()
    assert (found.access_key, found.secret_key, found.token, found.expires_at) == ("id", "secret", token, expires_at)


def test_a_provider_without_keys_is_refused():
    with pytest.raises(ConfigError, match="cred_provider=object returned no access_key_id"):
        Access(ENDPOINT, cred_provider=type("object", (), {"get_credentials": lambda self: self})()).store.credentials()


def test_a_provider_and_a_file_contradict_each_other():
    with pytest.raises(ConfigError, match="credentials"):
        _ = Access(ENDPOINT, "/cred", cred_provider=Newer()).store


def test_a_provider_travels_to_workers():
    store = ForkingPickler.loads(ForkingPickler.dumps(Access(ENDPOINT, cred_provider=Newer()).store))
    assert store.credentials().access_key == "id"
