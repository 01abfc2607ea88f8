from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime, timedelta
from multiprocessing.reduction import ForkingPickler

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from google.cloud.storage.retry import DEFAULT_RETRY
from google.oauth2.credentials import Credentials

from penstock.compat.dataflux_pytorch.dataflux_iterable_dataset import DataFluxIterableDataset
from penstock.compat.dataflux_pytorch.dataflux_mapstyle_dataset import DataFluxMapStyleDataset
from penstock.compat.dataflux_pytorch.listing import (
    ClientToken,
    Config,
    data_format_default,
    list_bucket,
    store_options,
)
from penstock.errors import NotFound, Unusable
from penstock.stores.gcs.options import GCSOptions
from tests.compat.dataflux_pytorch.conftest import OBJECTS


@pytest.mark.parametrize("kind", [DataFluxMapStyleDataset, DataFluxIterableDataset])
def test_changes_to_the_objects_list_change_the_items_read(filled, kind):
    dataset = kind(None, filled.name, Config(prefix="train/"), data_format_fn=len)
    objects = dataset.objects
    assert isinstance(objects, list)
    assert objects is dataset.objects
    assert json.loads(json.dumps(objects)) == [[name, size] for name, size in objects]
    sizes = [len(data) for data in OBJECTS.values()]
    assert read(dataset) == sizes
    objects.reverse()
    assert read(dataset) == sizes[::-1]
    del objects[1:]
    assert read(dataset) == sizes[-1:]
    objects.append(("other", 5))
    assert [name for name, _ in dataset.objects] == [[*OBJECTS][-1], "other"]
    assert dataset.catalog[0].etag, "held to the version that was listed"
    assert len(read(pickle.loads(ForkingPickler.dumps(dataset)))) == 2
    objects += [objects[0]]
    assert len(read(dataset)) == 3


def read(dataset):
    return [dataset[at] for at in range(len(dataset))] if isinstance(dataset, DataFluxMapStyleDataset) else [*dataset]


def test_composed_objects_are_excluded_from_the_bucket_listing(filled):
    def names(prefix):
        return [each.key for each in list_bucket(filled.name, Config(prefix=prefix), None)[0]]

    assert names(None) == names("") == ["other", *OBJECTS]
    assert names("train/") == names("tr") == list(OBJECTS)
    assert names("data") == names("none") == []


def test_missing_bucket_and_invalid_config_raise_errors(gcs):
    with pytest.raises(NotFound):
        list_bucket("no-such-bucket", Config(), None)
    with pytest.raises(Unusable, match="config"):
        list_bucket(gcs.name, {"prefix": "x"}, None)


def test_composing_is_off_when_disabled():
    assert Config(disable_compose=True).max_composite_object_size == 0
    assert Config().max_composite_object_size == 100_000_000
    assert data_format_default(b"x") == b"x"


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
