"""Storage options become those of the provider; wrong ones are told, and secrets go nowhere."""

from __future__ import annotations

import json
import pickle
from multiprocessing.reduction import ForkingPickler

import fsspec
import pytest

import penstock as ps
from penstock.errors import ConfigError, Unusable
from penstock.interop.fsspec import PenstockFileSystem
from penstock.interop.fsspec.schemes import kind_of
from penstock.interop.fsspec.storage import Storage
from penstock.stores.urls import parse

S3 = {"endpoint": "http://127.0.0.1:9", "region": "eu", "access_key": "canary-id", "secret_key": "canary-secret"}


def test_keywords_become_options_of_the_provider():
    storage = Storage("s3", None, {**S3, "retry": {"attempts": "3"}, "anonymous": "false"})
    assert storage.store == ps.S3Options(**S3, retry=ps.RetryOptions(attempts=3))
    over = Storage("s3", ps.S3Options(region="us", read=ps.ReadOptions(split_bytes=1 << 20)), {"region": "eu"})
    assert (over.store.region, over.store.read.split_bytes) == ("eu", 1 << 20)
    neutral = Storage("s3", ps.StoreOptions(retry=ps.RetryOptions(attempts=2)), {"region": "eu"})
    assert neutral.store == ps.S3Options(region="eu", retry=ps.RetryOptions(attempts=2))


def test_keywords_wait_for_a_path_where_stores_differ():
    storage = Storage("penstock", None, {"anonymous": True})
    assert storage.options(parse("s3://bucket/key")) == ps.S3Options(anonymous=True)
    assert storage.of("gs://bucket/key") == ps.GCSOptions(anonymous=True)
    with pytest.raises(ConfigError, match="AzureOptions has no option 'region'"):
        Storage("penstock", None, {"region": "eu"}).of("az://container/key")


@pytest.mark.parametrize(
    ("scheme", "options", "words"),
    [
        ("s3", {"regoin": "eu"}, "did you mean 'region'"),
        ("penstock", {"regoin": "eu"}, "did you mean 'region'"),
        ("s3", {"endpoint_url": "http://x"}, "Penstock calls it endpoint"),
        ("penstock", {"key": "x"}, "Penstock calls it access_key"),
        ("s3", {"anon": True}, "Penstock calls it anonymous"),
        ("gs", {"region": "eu"}, "OSSOptions or S3Options"),
        ("s3", {"retry": {"atempts": 3}}, "did you mean 'attempts'"),
        ("s3", {"retry": {"attempts": "many"}}, "a whole number"),
        ("s3", {"anonymous": "perhaps"}, "true or false"),
    ],
)
def test_wrong_options_are_refused_when_the_file_system_is_made(scheme, options, words):
    with pytest.raises(ConfigError, match=words):
        kind_of(scheme)(**options)


def test_a_profile_takes_no_options_beside():
    with pytest.raises(ConfigError, match="into the profile"):
        PenstockFileSystem("name", region="eu")


def test_limits_of_listings_without_listings_are_refused():
    with pytest.raises(Unusable, match="use_listings_cache=True"):
        PenstockFileSystem(max_paths=3)


@pytest.mark.parametrize("scheme", ["s3", "penstock"])
def test_secrets_go_to_workers_and_nowhere_else(scheme):
    fs = kind_of(scheme)(**S3)
    for text in (repr(fs), repr(fs.store), str(fs._storage)):
        assert "canary" not in text
    with pytest.raises(Unusable, match="secret"):
        pickle.dumps(fs)
    for way in (fs.to_json, fs.to_dict):
        with pytest.raises(Unusable, match=r"secret.*include_password=False"):
            way()
        assert "canary" not in str(way(include_password=False))
    again = pickle.loads(ForkingPickler.dumps(fs))
    assert again == fs
    assert hash(again) == hash(fs)
    assert again.storage_options.keys() <= {"store", *S3, "asynchronous", "batch_size"}


@pytest.mark.parametrize(
    "fs",
    [
        PenstockFileSystem(),
        kind_of("s3")(region="eu", retry={"attempts": 3}),
        kind_of("s3")(ps.S3Options(region="eu")),
        kind_of("gs")("profile"),
        PenstockFileSystem(anonymous=True, use_listings_cache=True, max_paths=7),
        PenstockFileSystem(asynchronous=True),
    ],
    ids=["plain", "named", "store", "profile", "several", "asynchronous"],
)
def test_filesystem_without_secrets_survives_pickle_and_json(fs):
    for again in (pickle.loads(pickle.dumps(fs)), fsspec.AbstractFileSystem.from_json(fs.to_json())):
        assert (again, again.protocol, again.asynchronous) == (fs, fs.protocol, fs.asynchronous)
        assert again.unstrip_protocol("b/k") == fs.unstrip_protocol("b/k")
    assert json.loads(fs.to_json())["protocol"] in ("s3", "gs", "penstock")


def test_a_function_goes_into_no_text():
    with pytest.raises(Unusable):
        kind_of("s3")(credentials=len).to_json(include_password=False)


def test_file_systems_of_other_secrets_are_others():
    assert kind_of("s3")(**S3) == kind_of("s3")(**S3)
    assert kind_of("s3")(**S3) != kind_of("s3")(**{**S3, "secret_key": "another-secret"})
    assert kind_of("s3")(region="eu") != kind_of("gs")()
