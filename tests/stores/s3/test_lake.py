"""A service that speaks S3's dialect is a subclass of S3 with other values: nothing else knows it."""

from __future__ import annotations

from dataclasses import replace

import pytest

import penstock as ps
from penstock.engine.contracts.driver import Attributes, Payload
from penstock.errors import ConfigError, InvalidURL, Unauthenticated, Unusable
from penstock.interop.fsspec import register
from penstock.interop.fsspec.schemes import kind_of
from penstock.source import open_source
from penstock.stores import urls
from penstock.stores.s3.dialect import Amazon
from penstock.stores.s3.services import AWS, S3
from penstock.testing.faults import FaultServer, Settings

PART = 64 << 10
KEYS = ("LAKE_ID", "LAKE_SECRET", "LAKE_TOKEN")


@pytest.fixture
def lake(monkeypatch):
    """Return a server in a region of its own, which `lake://` finds by a pattern and by variables of its own."""
    with FaultServer.within(Settings(region="shore-2", least_part_bytes=PART)) as server:
        port = server.endpoint.rpartition(":")[2]

        class Lake(S3):
            name = "Lake"
            schemes = ("lake",)
            buckets = "[a-z]+"
            bucket_rule = "small letters"
            limits = replace(S3.limits, least_part_bytes=PART, equal_parts=True, key_bytes=20)
            endpoint = f"http://{{region}}.localhost:{port}"
            region = "shore-1"
            endpoints = ("LAKE_ENDPOINT",)
            regions = ("LAKE_REGION",)
            keys = KEYS
            aws_files = False

        monkeypatch.setitem(urls._loaded, "lake", Lake())
        monkeypatch.setenv("LAKE_ENDPOINT", server.endpoint)
        monkeypatch.setenv("LAKE_REGION", "shore-2")
        monkeypatch.setenv("LAKE_ID", server.settings.access_key)
        monkeypatch.setenv("LAKE_SECRET", server.settings.secret_key)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
        server.make("bucket")
        yield server


def test_a_preset_has_its_own_variables_limits_and_urls(lake):
    parts = ps.StoreOptions(write=ps.WriteOptions(part_bytes=PART, buffer_bytes=4 * PART))
    with ps.open("lake://bucket/a", "wb", store=parts) as file:
        file.write(b"x" * 3 * PART)
    (found,) = ps.list("lake://bucket/")
    assert (found.url, found.size) == ("lake://bucket/a", 3 * PART)
    assert len(lake.seen("part")) == 3
    with pytest.raises(ps.PenstockError, match=r"\[lake://bucket/none\]"):
        ps.stat("lake://bucket/none")
    with pytest.raises(InvalidURL, match="'Bucket' cannot be a bucket: small letters"):
        ps.stat("lake://Bucket/a")
    with pytest.raises(InvalidURL, match="21 bytes of UTF-8; Lake holds 20"):
        ps.stat("lake://bucket/" + "a" * 21)
    register("lake")
    assert kind_of("lake")().ls("bucket", detail=False) == ["bucket/a"]


@pytest.mark.usefixtures("lake")
def test_a_preset_finds_its_endpoint_by_a_pattern(monkeypatch):
    monkeypatch.delenv("LAKE_ENDPOINT")
    source, _ = open_source("lake://bucket/", ps.S3Options(region="east"))
    settings, identity = source._store.settings, source._store.identity
    assert (settings.endpoint.partition("localhost")[0], settings.addressing) == ("http://east.", "path")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a third")
    assert open_source("lake://bucket/", ps.S3Options(region="east"))[0]._store.identity == identity
    monkeypatch.setenv("LAKE_SECRET", "rotated")
    assert open_source("lake://bucket/", ps.S3Options(region="east"))[0]._store.identity != identity


def test_missing_preset_credentials_error_names_searched_variables(lake, monkeypatch):
    monkeypatch.delenv("LAKE_ID")
    monkeypatch.delenv("LAKE_SECRET")
    with pytest.raises(Unauthenticated, match="no credentials for Lake: looked in S3Options, LAKE_ID and LAKE_SECRET;"):
        ps.stat("lake://bucket/a")
    monkeypatch.setenv("LAKE_ID", "half")
    with pytest.raises(ConfigError, match=r"\(LAKE_ID, LAKE_SECRET\) gives an incomplete or empty pair"):
        ps.stat("lake://bucket/a")
    keys = lake.settings
    assert not [*ps.list("lake://bucket/", store=ps.S3Options(access_key=keys.access_key, secret_key=keys.secret_key))]


def test_a_body_or_metadata_beyond_the_limits_is_refused_before_a_request(lake, monkeypatch):
    tight = replace(S3.limits, put_bytes=10, metadata_bytes=8)
    monkeypatch.setattr(type(urls.find_store("lake")), "limits", tight)
    source, _ = open_source("lake://bucket/")
    seen = len(lake.seen())
    for write in (source.put, source.publish):
        with pytest.raises(Unusable, match="11 bytes in one request, the limit is 10"):
            write("a", b"x" * 11)
    with pytest.raises(Unusable, match=r"metadata of 10 bytes.*limit is 8"):
        source.open_write("a", metadata={"name": "é and"})
    assert len(lake.seen()) == seen
    assert source.put("a", b"x" * 10, metadata={"name": "four"})


def test_preset_can_override_dialect_and_page_size(lake, monkeypatch):
    class Words(Amazon):
        create = ("x-lake-create", "only")

    lakes = type(urls.find_store("lake"))
    monkeypatch.setattr(lakes, "dialect", lambda _: Words)
    monkeypatch.setattr(lakes, "limits", replace(S3.limits, page_keys=2))
    for name in "abc":
        lake.put("bucket", name, b"x")
    source, _ = open_source("lake://bucket/")
    assert [len(page.entries) for page in source.pages("")] == [2, 1]
    request = source._fetcher().driver.put("new", Payload(b"x"), Attributes(create_only=True)).request
    assert "x-lake-create: only" in request.headers


def test_advice_for_s3_https_url_suggests_s3_scheme():
    assert AWS().advice("https://bucket.s3.amazonaws.com/a%20b?x=1") == "for this object write s3://bucket/a b"
    assert AWS().advice("gs://bucket/key") == ""
