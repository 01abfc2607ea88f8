"""The demo's own server is all that its environment knows; in a user's bucket it touches its own prefix only."""

from __future__ import annotations

import os

import pytest

import penstock as ps
from penstock.cli.demo.story import borrow_prefix, embedded
from penstock.errors import ConfigError, NotFound
from penstock.testing.faults.dialect import DIALECTS


@pytest.fixture
def own(own_server, monkeypatch):
    """Point the environment at the user's server, and put one object there."""
    for name, value in own_server.environment.items():
        monkeypatch.setenv(name, value)
    own_server.put("mine", "penstock-demo", b"the user's")
    return own_server


def put(url):
    with ps.open(url, "wb") as file:
        file.write(b"x")


@pytest.mark.parametrize("provider", DIALECTS)
def test_within_its_own_server_nothing_of_the_user_s_store_is_left_and_after_it_all_is(monkeypatch, provider):
    monkeypatch.setenv("AWS_PROFILE", "absent")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    before = dict(os.environ)
    with embedded(provider) as url:
        assert "AWS_PROFILE" not in os.environ
        put(f"{url}a")
        assert [each.url for each in ps.list(url)] == [f"{url}a"]
    assert dict(os.environ) == before


@pytest.mark.parametrize("bucket", ["mine", "s3://mine", "s3://mine/"])
def test_only_the_demo_prefix_is_deleted_in_a_user_bucket_on_error(own, bucket):
    with pytest.raises(RuntimeError), borrow_prefix(bucket, None, keep=False) as url:
        assert url.startswith("s3://mine/penstock-demo-")
        put(f"{url}a/b")
        raise RuntimeError
    assert own.objects("mine") == {"penstock-demo": b"the user's"}


def test_keep_option_keeps_objects_on_the_named_endpoint(own, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    before = dict(os.environ)
    with borrow_prefix("mine", own.endpoint, keep=True) as url:
        put(f"{url}a")
    assert dict(os.environ) == before
    kept = url.removeprefix("s3://mine/") + "a"
    assert own.objects("mine").pop(kept) == b"x"


def test_an_endpoint_is_for_s3_alone():
    with (
        pytest.raises(ConfigError, match="other stores have variables"),
        borrow_prefix("gs://mine", "http://here", keep=False),
    ):
        pytest.fail("there is nowhere to work")


def test_missing_bucket_raises_not_found_and_is_never_created(own):
    with pytest.raises(NotFound, match="create it first"), borrow_prefix("not-there-at-all", None, keep=False):
        pytest.fail("there is nowhere to work")
    with pytest.raises(KeyError):
        own.objects("not-there-at-all")
