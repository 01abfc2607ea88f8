"""OSS keeps the contract on a server that checks its signature; its URLs, endpoints, conditions and checksums."""

from __future__ import annotations

import sys
import uuid

import pytest

import penstock as ps
from penstock.engine.contracts.driver import Attributes, Payload
from penstock.errors import (
    AlreadyExists,
    ChecksumMismatch,
    ConfigError,
    InvalidURL,
    MissingExtra,
    Unauthenticated,
)
from penstock.source import open_source
from penstock.stores.oss.store import OSS
from penstock.testing.faults import FaultServer, Settings

PART = 100 << 10


@pytest.fixture(scope="module")
def server():
    with FaultServer.within(Settings(dialect="oss", region="cn-hangzhou", least_part_bytes=PART)) as server:
        server.make("bucket")
        yield server


@pytest.fixture
def environment(server, monkeypatch):
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server


def _opened(server):
    bucket = f"test-{uuid.uuid4().hex}"
    server.make(bucket)
    fetcher = open_source(f"oss://{bucket}/", server.store)[0]._fetcher()
    return fetcher.driver, fetcher._transport


@pytest.mark.parametrize(
    ("options", "environ", "at", "region"),
    [
        ({"region": "cn-hangzhou"}, {}, "https://bkt.oss-cn-hangzhou.aliyuncs.com/k", "cn-hangzhou"),
        ({"region": "oss-cn-hangzhou"}, {}, "https://bkt.oss-cn-hangzhou.aliyuncs.com/k", "cn-hangzhou"),
        ({}, {"OSS_REGION": "cn-beijing"}, "https://bkt.oss-cn-beijing.aliyuncs.com/k", "cn-beijing"),
        (
            {},
            {"OSS_ENDPOINT": "oss-cn-beijing-internal.aliyuncs.com", "OSS_REGION": "cn-hangzhou"},
            "https://bkt.oss-cn-beijing-internal.aliyuncs.com/k",
            "cn-beijing",
        ),
        (
            {"region": "cn-beijing", "internal": True},
            {"OSS_ENDPOINT": "http://elsewhere"},
            "https://bkt.oss-cn-beijing-internal.aliyuncs.com/k",
            "cn-beijing",
        ),
        (
            {"endpoint": "https://oss-accelerate.aliyuncs.com", "region": "cn-beijing"},
            {},
            "https://bkt.oss-accelerate.aliyuncs.com/k",
            "cn-beijing",
        ),
        (
            {"endpoint": "https://data.example.com", "addressing": "cname", "region": "cn-beijing"},
            {},
            "https://data.example.com/k",
            "cn-beijing",
        ),
        ({"endpoint": "http://127.0.0.1:9", "region": "r"}, {}, "http://127.0.0.1:9/bkt/k", "r"),
        (
            {"endpoint": "https://oss.example.com", "addressing": "path", "region": "r"},
            {},
            "https://oss.example.com/bkt/k",
            "r",
        ),
    ],
)
def test_where_requests_go_and_for_which_region_they_are_signed(options, environ, at, region, monkeypatch):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    store = ps.OSSOptions(access_key="id", secret_key="secret", **options)
    driver = open_source("oss://bkt/k", store)[0]._fetcher().driver
    request = driver.head("k").request
    assert request.url == at
    assert f"/{region}/oss/aliyun_v4_request" in " ".join(request.headers)
    assert driver.url("k") == "oss://bkt/k"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"needs the bucket's region: pass OSSOptions\(region='cn-hangzhou'\) or set OSS_REGION"),
        (
            {"endpoint": "https://oss-accelerate.aliyuncs.com"},
            "region, which https://oss-accelerate.aliyuncs.com does not",
        ),
        ({"region": "a/b"}, "OSSOptions.region cannot be a region"),
        ({"region": "r", "addressing": "cname"}, "addressing='cname' needs the domain"),
        ({"endpoint": "ftp://h", "region": "r"}, "OSSOptions.endpoint must start with http"),
        ({"endpoint": "https://bkt.oss-cn-beijing.aliyuncs.com"}, "the endpoint must not begin with the bucket"),
        ({"region": "r", "internal": True, "endpoint": "https://h"}, "internal=True is a form of OSS's own endpoint"),
        ({"region": "r", "access_key": "a"}, "access_key and secret_key go together"),
        ({"region": "r", "addressing": "host"}, "addressing must be 'auto', 'virtual', 'cname' or 'path'"),
        ({"region": "r", "anonymous": True, "ecs_role": "x"}, "anonymous=True and ecs_role contradict"),
    ],
)
def test_missing_or_contradictory_oss_options_raise_config_error(options, message):
    with pytest.raises(ConfigError, match=message):
        open_source("oss://bkt/k", ps.OSSOptions(**options))[0]._fetcher()


def test_names_of_buckets_and_keys_are_osss():
    for url in ("oss://B/k", "oss://a_b/k", "oss://ab/k", "oss://bkt//k", "oss://bkt/\\k", f"oss://bkt/{'a' * 1024}"):
        with pytest.raises(InvalidURL):
            ps.stat(url)
    web = "https://bkt.oss-cn-beijing.aliyuncs.com/a%20b?x=1"
    assert OSS().advice(web) == "for this object write oss://bkt/a b"


def test_the_bucket_may_stand_in_the_host(server):
    store = ps.OSSOptions(
        endpoint=server.endpoint.replace("127.0.0.1", "localhost"),
        region="cn-hangzhou",
        access_key=server.settings.access_key,
        secret_key=server.settings.secret_key,
    )
    with ps.open("oss://bucket/a b/ü+", "wb", store=store) as file:
        file.write(b"virtual")
    assert ps.open("oss://bucket/a b/ü+", store=store).read() == b"virtual"
    assert [found.key for found in ps.list("oss://bucket/a b/", store=store)] == ["a b/ü+"]
    host = server.seen("put", key="a b/ü+")[-1]
    assert host.bucket == "bucket"


def test_parts_are_compared_before_the_object_is_visible(server):
    source, _ = open_source("oss://bucket/", server.store)
    source._fetcher()  # parts of another size than the options' default are the server's, too
    writing = ps.WriteOptions(part_bytes=PART, buffer_bytes=4 * PART)
    data = bytes(range(256)) * 1600
    with ps.open("oss://bucket/parts", "wb", store=_with(server.store, write=writing)) as file:
        file.write(data)
    assert server.objects("bucket")["parts"] == data
    assert len(server.seen("part", key="parts")) == -(-len(data) // PART)
    with pytest.raises(ChecksumMismatch, match="other bytes than were sent"):
        part = source._fetcher().driver.put("k", Payload(b"x", "0" * 16), Attributes())
        source._fetcher().run(_again(part))


def _with(store, **parts):
    from dataclasses import replace

    return replace(store, **parts)


def _again(exchange):
    from functools import partial

    def make(_key):
        return exchange

    return partial(make, "k")


def test_a_damaged_put_is_refused_before_it_is_published(server):
    from penstock.testing.faults import FAULTS, Match

    source, _ = open_source("oss://bucket/", server.store)
    source.publish("damaged", b"old")
    server.fail(FAULTS["corrupt"], when=Match(verb="put", key="damaged", times=1))
    source.publish("damaged", b"new bytes", replaces=source.head("damaged").etag)
    assert server.objects("bucket")["damaged"] == b"new bytes"
    assert [seen.status for seen in server.seen("put", key="damaged")] == [200, 400, 200]
    server.heal()


@pytest.mark.parametrize("size", [3, 3 * PART])
def test_only_a_new_object_is_made_by_the_stores_own_condition(server, size):
    writing = ps.WriteOptions(part_bytes=PART, buffer_bytes=4 * PART)
    key = f"new-{size}"
    driver = open_source("oss://bucket/", server.store)[0]._fetcher().driver
    with ps.open(f"oss://bucket/{key}", "xb", store=_with(server.store, write=writing)) as file:
        file.write(b"x" * size)
    with pytest.raises(AlreadyExists):
        ps.open(f"oss://bucket/{key}", "xb", store=server.store).close()
    forbidden = driver.put(key, Payload(b"y"), Attributes(create_only=True))
    with pytest.raises(AlreadyExists):
        open_source("oss://bucket/", server.store)[0]._fetcher().run(_again(forbidden))


@pytest.mark.usefixtures("environment")
def test_another_region_is_named(monkeypatch):
    monkeypatch.setenv("OSS_REGION", "cn-beijing")
    with pytest.raises(
        ConfigError, match=r"the bucket is in region cn-hangzhou: pass OSSOptions\(region='cn-hangzhou'\)"
    ):
        next(ps.list("oss://bucket/", store=ps.StoreOptions(retry=ps.RetryOptions(attempts=1))))


@pytest.mark.usefixtures("environment")
def test_head_with_invalid_access_key_reports_the_error_code(monkeypatch):
    monkeypatch.setenv("OSS_ACCESS_KEY_ID", "unknown")
    with pytest.raises(Unauthenticated, match=r"InvalidAccessKeyId .*OSS_ACCESS_KEY_ID"):
        ps.stat("oss://bucket/k")


def test_listing_requests_a_thousand_keys_and_continues_with_escaped_token(server):
    for number in range(1_003):
        server.put("pages", f"k/{number:04} +%", b"x")
    assert len([*ps.list("oss://pages/k/", store=server.store)]) == 1_003
    assert len(server.seen("list", bucket="pages")) == 2


def test_tokens_that_rotate_in_an_epoch_and_in_an_upload_are_renewed_unnoticed(server, monkeypatch):
    """Some requests meet a token that is no longer taken, and others are asked for at once."""
    monkeypatch.setattr("penstock.stores.credentials._FRESH_S", 0.0)  # they rotate many times a second here
    rounds, given = [0], []

    def rotate():
        rounds[0] += 1
        server.admit(f"security-token-{rounds[0]}")

    def ask():
        given.append(rounds[0])
        return ps.Credentials(server.settings.access_key, server.settings.secret_key, f"security-token-{rounds[0]}")

    rotate()
    for number in range(40):
        server.put("rotating", f"train/{number:02}", b"%d" % number)
    writing = ps.WriteOptions(part_bytes=PART, buffer_bytes=4 * PART)
    retry = ps.RetryOptions(base_s=0.4)  # a busy machine: three attempts are to outlast the loading
    store = ps.OSSOptions(endpoint=server.endpoint, region="cn-hangzhou", credentials=ask, write=writing, retry=retry)
    dataset = ps.IterableDataset.from_prefix("oss://rotating/train/", store=store)
    seen = []
    for sample in dataset:
        seen.append(bytes(sample.data))
        if len(seen) % 10 == 0:
            rotate()
    assert seen == [b"%d" % number for number in range(40)]
    data = bytes(range(256)) * 400 * 8
    with ps.open("oss://rotating/model", "wb", store=store) as file:
        for at in range(0, len(data), PART):
            if at % (4 * PART) == 0:
                rotate()
            file.write(data[at : at + PART])
        rotate()
    assert server.objects("rotating")["model"] == data
    assert len({*given}) > 3, "it was asked again and again"
    expired = [each for each in server.seen(bucket="rotating") if each.status == 403]
    assert expired, "and some requests met a token that had expired"
    server.admit()


def test_missing_oss_library_error_names_the_extra(monkeypatch):
    from penstock.stores.oss import dialect

    dialect.library.cache_clear()
    monkeypatch.setitem(sys.modules, "fastcrc.crc64", None)
    with pytest.raises(MissingExtra, match=r"Alibaba OSS needs fastcrc.*pip install penstock\[oss\]"):
        open_source("oss://bkt/k", ps.OSSOptions(region="r", anonymous=True))[0]._fetcher()
