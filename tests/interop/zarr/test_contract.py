"""zarr's own ``StoreTests``, unmodified: in memory, on files, and over S3's, GCS's and Azure's dialects."""

from __future__ import annotations

import uuid

import pytest
from zarr.core.buffer import cpu
from zarr.testing.store import StoreTests

from penstock.interop.zarr import Store
from penstock.source import open_source
from penstock.testing.faults import FaultServer, Settings
from penstock.values import Span


class Contract(StoreTests[Store, cpu.Buffer]):
    """What is set and looked at beside the store goes through a source of its own."""

    store_cls = Store
    buffer_cls = cpu.Buffer

    @pytest.fixture
    def url(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def store_kwargs(self, url):
        return {"url": url}

    async def set(self, store, key, value):
        source, root = open_source(store.url)
        source.put(f"{root}/{key}", value.to_bytes())

    async def get(self, store, key):
        source, root = open_source(store.url)
        return self.buffer_cls.from_bytes(source.read(Span(f"{root}/{key}")))

    def test_store_repr(self, store, url):
        assert (repr(store), str(store)) == (f"Store({url!r})", url)

    def test_store_supports_writes(self, store):
        assert store.supports_writes

    def test_store_supports_listing(self, store):
        assert store.supports_listing


class TestMemory(Contract):
    @pytest.fixture
    def url(self):
        return f"memory://contract/{uuid.uuid4().hex}"


class TestLocal(Contract):
    @pytest.fixture
    def url(self, tmp_path):
        return f"file://{tmp_path}/data.zarr"


class TestMoto(Contract):
    @pytest.fixture
    def url(self, moto_server, monkeypatch):
        for name, value in moto_server.environment.items():
            monkeypatch.setenv(name, value)
        name = f"test-{uuid.uuid4().hex}"
        moto_server.client().create_bucket(Bucket=name)
        return f"s3://{name}/data.zarr"


@pytest.fixture(scope="module", params=["gcs", "azure"])
def server(request):
    with FaultServer.within(Settings(dialect=request.param)) as server:
        yield server


class TestDialects(Contract):
    @pytest.fixture
    def url(self, server, monkeypatch):
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        server.make(name := f"test-{uuid.uuid4().hex}")
        return f"{server.scheme}://{name}/data.zarr"
