"""Stores of other libraries with obspec's methods keep every promise of a driver."""

from __future__ import annotations

import sys
import uuid
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from obstore.store import LocalStore, MemoryStore, S3Store

from penstock.engine.contracts.driver import Attributes, Payload, UploadPart
from penstock.engine.transport.limited import LimitedThreads
from penstock.errors import (
    Changed,
    Damaged,
    Forbidden,
    InvalidURL,
    NotFound,
    Transient,
    Truncated,
    Unauthenticated,
    Unsupported,
    Unusable,
)
from penstock.interop.obspec import Store
from penstock.stores.obspec.driver import ObspecDriver
from penstock.testing.drivers import KEYS, DriverContract, Trial
from tests.servers import Bucket

# obstore's paths have no empty component and none of dots; on S3, it escapes some characters.
PATHS = tuple(key for key in KEYS if "" not in (parts := key.split("/")) and not any(part[0] == "." for part in parts))


def named(name):
    return type(name, (Exception,), {})


def _served(store):
    driver = ObspecDriver("obspec://box/", store)
    return driver, LimitedThreads(8, 60)


class _Contract(DriverContract):
    keys = PATHS
    page_keys = sys.maxsize
    # Its texts are not ASCII.
    keeps_metadata = False


class TestMemory(_Contract):
    @pytest.fixture
    def store(self):
        return _served(MemoryStore())


class TestLocal(_Contract):
    heeds = ()

    @pytest.fixture
    def store(self, tmp_path):
        return _served(LocalStore(tmp_path))


class TestS3(_Contract):
    @pytest.fixture
    def store(self, bucket):
        return _served(foreign(bucket))


class TestPenstock(_Contract):
    """A store of Penstock's, exposed with obspec's methods."""

    @pytest.fixture
    def store(self, bucket):
        return _served(Store(f"s3://{bucket.name}/", bucket.store))


@pytest.fixture(params=["memory", "s3"])
def keeping(request, moto_server):
    if request.param == "memory":
        return MemoryStore()
    return foreign(new_bucket(moto_server))


def test_metadata_and_content_type_come_back_also_of_a_copy_and_an_upload(keeping):
    trial = Trial(*_served(keeping))
    driver, given = trial.driver, Attributes("text/plain", {"Note": "some words"})
    trial.do(driver.put("put", Payload(b"x"), given))
    upload = trial.do(driver.create("sent", given))
    trial.do(driver.part("sent", upload, UploadPart(1, 0), Payload(b"x")))
    trial.do(driver.complete("sent", upload, ["1"]))
    trial.do(driver.copy("put", "copy"))
    for key in ("put", "sent", "copy"):
        found = trial.head(key)
        assert (found.content_type, found.metadata) == ("text/plain", {"note": "some words"}), key


def test_metadata_beyond_ascii_are_refused_before_they_spoil_an_object():
    trial = Trial(*_served(MemoryStore()))
    with pytest.raises(Unusable, match="ASCII"):
        trial.put("key", b"x", {"note": "größer"})
    assert trial.keys() == []


class _Odd:
    """A store that is wrong in one way; otherwise it holds one object of ten bytes."""

    def __init__(self, data=b"0123456789", etag="1", **wrong):
        self._data, self._etag, self._wrong = data, etag, wrong

    def _meta(self, path):
        written = datetime(2026, 1, 1, tzinfo=UTC)
        meta = {"path": path, "size": len(self._data), "e_tag": self._etag, "last_modified": written, "version": None}
        return meta | self._wrong.get("meta", {})

    def head(self, path):
        if "error" in self._wrong:
            raise self._wrong["error"]
        return self._meta(path)

    def get(self, path, *, options=None):
        meta = self.head(path)
        start, stop = (options or {}).get("range", (0, meta["size"]))
        data = self._data[start:stop]
        span = (start, min(stop, meta["size"]))
        got = {"buffer": lambda: data, "meta": meta, "range": span, "attributes": {}} | self._wrong.get("get", {})
        return SimpleNamespace(**got)

    def list(self, prefix=None):
        assert prefix is None
        return [[self._meta("x")]]

    def list_with_delimiter(self, prefix=None):
        assert prefix is None
        return {"common_prefixes": ["a", "b/"], "objects": [self._meta("x")]}


@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        ({"get": {"buffer": lambda: b"012345678901"}}, Damaged, "5 bytes were requested, but the store returned 12"),
        ({"get": {"range": (0, 10)}}, Damaged, "bytes 2 to 7 were requested"),
        ({"meta": {"e_tag": "2"}}, Changed, "changed since"),
        ({"meta": {"e_tag": None}}, Changed, "changed since"),
        ({"meta": {"size": 6}}, Truncated, "ends before"),
        ({"error": FileNotFoundError("x")}, NotFound, "cannot read: FileNotFoundError: x"),
        ({"error": named("PermissionDeniedError")()}, Forbidden, "PermissionDeniedError"),
        ({"error": named("UnauthenticatedError")()}, Unauthenticated, "Unauthenticated"),
        ({"error": named("InvalidPathError")()}, InvalidURL, "InvalidPath"),
        ({"error": named("NotSupportedError")()}, Unsupported, "NotSupported"),
        ({"error": named("GenericError")("a\n\nDebug: b")}, Transient, r"GenericError: a \["),
        ({"error": named("GenericError")("hush-hush-hush")}, Transient, "GenericError"),
    ],
)
def test_store_that_is_wrong_raises_and_returns_no_byte(wrong, kind, words):
    driver, transport = _served(_Odd(**wrong))
    driver._secrets = ("hush-hush-hush",)
    with pytest.raises(kind, match=words) as caught:
        Trial(driver, transport).read("x", 2, 7, "1")
    assert caught.value.url == "obspec://box/x"


def test_short_answer_is_a_shorter_read_which_the_engine_continues():
    trial = Trial(*_served(_Odd(get={"buffer": lambda: b"23"})))
    assert trial.read("x", 2, 7, "1") == b"23"
    with pytest.raises(Truncated, match="2 of 10 bytes"):
        trial.get("x")


def test_store_without_etags_has_versions_of_time_and_size():
    trial = Trial(*_served(_Odd(etag=None)))
    version = trial.head("x").etag
    assert version
    assert trial.read("x", 0, 3, version) == b"012"
    assert next(trial.pages(delimiter="/")).prefixes == ("a/", "b/")


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", ".penstock-a"])
def test_paths_that_foreign_stores_change_are_refused(key):
    store = MemoryStore()
    with pytest.raises(InvalidURL):
        Trial(*_served(store)).put(key, b"x")
    assert list(store.list()) == []


def new_bucket(server):
    client, name = server.client(), f"test-{uuid.uuid4().hex}"
    client.create_bucket(Bucket=name)
    return Bucket(server, name, client)


def foreign(bucket):
    return S3Store(
        bucket.name,
        endpoint=bucket.server.endpoint,
        access_key_id=bucket.server.access_key,
        secret_access_key=bucket.server.secret_key,
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
