"""Options with a foreign store: secrets, equality, and the refusal of other objects."""

from __future__ import annotations

import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
from obstore.store import MemoryStore, S3Store

import penstock as ps
from penstock.errors import ConfigError, Forbidden, Unusable
from penstock.source import Source
from penstock.stores.urls import parse
from tests.stores.obspec.test_store import options

HUSH = "hush-hush-hush"


def test_store_that_cannot_be_pickled_is_refused_by_name():
    with pytest.raises(Unusable, match="MemoryStore cannot be pickled, so no other process can use it"):
        ForkingPickler.dumps(options(MemoryStore()))


def test_options_are_secret_and_pickled_for_workers_only():
    store = S3Store("bucket", access_key_id="AKID", secret_access_key=HUSH, region="us-east-1")
    given = options(store)
    assert HUSH not in f"{given!r}"
    with pytest.raises(Unusable, match="secret"):
        pickle.dumps(given)
    copy = pickle.loads(ForkingPickler.dumps(given))
    assert copy == given
    assert hash(copy) == hash(given)
    renewed = options(S3Store("bucket", access_key_id="AKID", secret_access_key="other-other", region="us-east-1"))
    addresses = {Source(parse("obspec://box/"), each).address("x") for each in (given, copy, renewed)}
    assert len(addresses) == 1
    other = options(S3Store("bucket-2", access_key_id="AKID", secret_access_key=HUSH, region="us-east-1"))
    assert Source(parse("obspec://box/"), other).address("x") not in addresses


class Keyed:
    """A store that reads with one of two keys only, and is pickled with its key."""

    head = list = repr

    def __init__(self, secret_key):
        self.secret_key = secret_key

    def __eq__(self, other):
        return self.secret_key == other.secret_key

    __hash__ = None

    def get(self, path, *, options=None):
        if self.secret_key != HUSH:
            raise PermissionError(path)
        store = MemoryStore()
        store.put(path, b"data")
        return store.get(path, options=options)


def test_a_store_with_renewed_credentials_replaces_the_one_before():
    with pytest.raises(Forbidden):
        ps.open("obspec://renewed/x", store=options(Keyed("expired-key")))
    renewed = options(Keyed(HUSH))
    assert ps.open("obspec://renewed/x", store=renewed).read() == b"data"
    assert renewed == options(Keyed(HUSH)) != options(Keyed("expired-key"))


class Kept:
    """A store that is pickled with its objects, here none."""

    get = head = list = repr


def test_stores_that_are_pickled_with_their_objects_are_not_one_store():
    one, other = ({Source(parse("obspec://box/"), options(Kept())).address("x")} for _ in range(2))
    assert one.isdisjoint(other)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ps.open("obspec://box/x"), r"pass store=ObspecOptions\(store=…\)"),
        (lambda: ps.open("obspec://box/x", store=ps.S3Options()), "takes no S3Options"),
        (lambda: ps.open("obspec://box/x", store=ps.StoreOptions()), "needs the store"),
        (lambda: ps.open("obspec://box/x", store=MemoryStore()), r"write obspec://name/key, and store="),
        (lambda: options(MemoryStore), "the class, not a store"),
        (lambda: options("s3://bucket"), "without get, head, list"),
        (lambda: ps.ObspecOptions(MemoryStore()), r"write ObspecOptions\(store=…\)"),
    ],
)
def test_wrong_use_is_refused_with_the_remedy(make, words):
    with pytest.raises(ConfigError, match=words):
        make()
