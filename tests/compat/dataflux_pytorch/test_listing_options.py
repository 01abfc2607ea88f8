from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from google.cloud.storage.retry import DEFAULT_RETRY
from google.oauth2.credentials import Credentials

from penstock.compat.dataflux_pytorch.listing import ClientToken, store_options
from penstock.errors import Unusable
from penstock.stores.gcs.options import GCSOptions


def test_nothing_given_is_the_environments():
    assert store_options() == GCSOptions()


def test_a_clients_credentials_and_endpoint_are_used():
    client = storage.Client("p", Credentials("secret-token"), client_options={"api_endpoint": "http://127.0.0.1:9"})
    options = store_options(client)
    assert options.endpoint == "http://127.0.0.1:9"
    token = options.credentials()
    assert (token.token, token.expires_at) == ("secret-token", None)
    assert "secret-token" not in repr(options) + repr(token)
    assert store_options(storage.Client("p", Credentials("t"))).endpoint is None
    assert store_options(storage.Client("p", AnonymousCredentials())).anonymous


def test_a_token_that_expired_is_refreshed_as_the_client_would():
    class Renewed(Credentials):
        def refresh(self, request):
            assert callable(request)
            self.token, self.expiry = "new", datetime.now(UTC).replace(tzinfo=None) + timedelta(hours=1)

    held = Renewed("old", expiry=datetime(2020, 1, 1))  # noqa: DTZ001  google-auth's are naive, in UTC
    token = ClientToken(held)()
    assert token.token == "new"
    assert token.expires_at == held.expiry.replace(tzinfo=UTC).timestamp()
    copy = pickle.loads(pickle.dumps(ClientToken(Credentials("t"))))
    assert copy().token == "t"


def test_retry_settings_are_ours():
    given = DEFAULT_RETRY.with_deadline(300.0).with_delay(initial=1.5, multiplier=1.2, maximum=45.0)
    retry = store_options(None, given).retry
    assert (retry.base_s, retry.cap_s, retry.patience_s) == (1.5, 45.0, 300.0)
    assert store_options(None, DEFAULT_RETRY.with_timeout(None)).retry.patience_s > 1e6


def test_other_objects_are_refused():
    with pytest.raises(Unusable, match=r"google\.cloud\.storage\.Client"):
        store_options("client")
    with pytest.raises(Unusable, match=r"google\.api_core\.retry\.Retry"):
        store_options(None, 3)
