"""OSS keeps the contract on a server that checks its signature; its URLs, endpoints, conditions and checksums."""

from __future__ import annotations

import json
import sys
import time
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
    Unreachable,
)
from penstock.source import open_source
from penstock.stores.credentials import RefreshingCredentials
from penstock.stores.oss import store as oss_store
from penstock.stores.oss.options import OSSOptions, region_of
from penstock.stores.oss.store import OSS, AlibabaCredentials, credentials_file
from penstock.testing.faults import FaultServer, Settings
from penstock.testing.servers import Scripted, reply

PART = 100 << 10
BEIJING, INTERNAL, FAST = "cn-beijing", "oss-cn-beijing-internal.aliyuncs.com", "oss-accelerate.aliyuncs.com"


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
        ({}, {"OSS_ENDPOINT": INTERNAL, "OSS_REGION": "cn-hangzhou"}, f"https://bkt.{INTERNAL}/k", BEIJING),
        ({"region": BEIJING, "internal": True}, {"OSS_ENDPOINT": "http://x"}, f"https://bkt.{INTERNAL}/k", BEIJING),
        ({"endpoint": f"https://{FAST}", "region": BEIJING}, {}, f"https://bkt.{FAST}/k", BEIJING),
        ({"endpoint": "https://data", "addressing": "cname", "region": "r"}, {}, "https://data/k", "r"),
        ({"endpoint": "http://127.0.0.1:9", "region": "r"}, {}, "http://127.0.0.1:9/bkt/k", "r"),
        ({"endpoint": "https://oss.x", "addressing": "path", "region": "r"}, {}, "https://oss.x/bkt/k", "r"),
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
        ({"region": "r", "internal": True, "endpoint": "https://h"}, "internal=True selects OSS's own endpoint"),
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
    with pytest.raises(ChecksumMismatch, match="the stored bytes differ"):
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
        return ps.credentials.Credentials(
            server.settings.access_key, server.settings.secret_key, f"security-token-{rounds[0]}"
        )

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


# -- Names of OSS's hosts and regions --


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("oss-cn-beijing.aliyuncs.com", "cn-beijing"),
        ("oss-cn-beijing-internal.aliyuncs.com", "cn-beijing"),
        ("bucket.oss-us-west-1.aliyuncs.com", "us-west-1"),
        ("s3.oss-ap-southeast-1-internal.aliyuncs.com", "ap-southeast-1"),
        ("cn-hangzhou.oss.aliyuncs.com", "cn-hangzhou"),
        ("oss-accelerate.aliyuncs.com", ""),
        ("oss-accelerate-overseas.aliyuncs.com", ""),
        ("data.example.com", ""),
        ("oss-cn-beijing.aliyuncs.com.evil.example", ""),
        ("127.0.0.1", ""),
    ],
)
def test_a_host_names_its_region(host, region):
    assert region_of(host) == region


@pytest.mark.usefixtures("homeless")
def test_missing_home_directory_yields_no_credentials_file():
    named, path = credentials_file(OSSOptions(), {})
    assert not named
    assert not path.exists()


# -- Where OSS's credentials come from, in their order; an instance's role is asked for as Alibaba documents it --


ROLES = "/latest/meta-data/ram/security-credentials/"
LATER = "2099-01-01T00:00:00Z"
JSON = {"AccessKeyId": "id", "AccessKeySecret": "secret", "SecurityToken": "token", "Expiration": LATER}


def _load(environ=None, **options):
    return AlibabaCredentials(OSSOptions(region="r", **options), environ or {"HOME": "/nowhere"}).load()


def _keys(found):
    return (found.access_key, found.secret_key, found.token)


@pytest.fixture(autouse=True)
def _no_instance(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(oss_store, "_METADATA", "http://127.0.0.1:1")  # nothing listens there


@pytest.fixture
def instance(monkeypatch):
    """Serve an instance's metadata in the hardened mode: a token by PUT, and nothing without it."""
    said = {"": "train-role", "train-role": json.dumps({"Code": "Success", **JSON})}

    def script(received, send):
        headers = received.headers
        if received.path == "/latest/api/token":
            known = received.method == "PUT" and headers["x-aliyun-ecs-metadata-token-ttl-seconds"] == "60"
            send(reply(200, b"look") if known else reply(400))
        elif headers.get("x-aliyun-ecs-metadata-token") != "look":
            send(reply(403))
        else:
            text = said.get(received.path.removeprefix(ROLES))
            send(reply(404) if text is None else reply(200, text.encode()))
        return True

    with Scripted(script) as server:
        server.said = said
        monkeypatch.setattr(oss_store, "_METADATA", server.url)
        yield server


def test_options_come_first_then_the_environment_then_the_file(tmp_path):
    file = tmp_path / "credentials"
    file.write_text(json.dumps(JSON))
    all_alibaba = {"ALIBABA_CLOUD_ACCESS_KEY_ID": "a", "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "b"}
    own = {"OSS_ACCESS_KEY_ID": "c", "OSS_ACCESS_KEY_SECRET": "d", "OSS_SESSION_TOKEN": "e"}
    named = {"ALIBABA_CLOUD_CREDENTIALS_FILE": str(file)}
    assert _keys(_load({**all_alibaba, **own}, access_key="x", secret_key="y")) == ("x", "y", "")
    assert _load(own, anonymous=True) is None
    assert _keys(_load({**all_alibaba, **own, **named})) == ("c", "d", "e")
    assert _keys(_load({**all_alibaba, **named})) == ("a", "b", "")
    assert _keys(_load(named)) == ("id", "secret", "token")
    assert _keys(_load(own, credentials_file=str(file))) == ("id", "secret", "token")
    assert _keys(_load(own, credentials=lambda: ps.credentials.Credentials("f", "g"))) == ("f", "g", "")


def test_the_default_file_lies_in_the_home_directory(tmp_path):
    folder = tmp_path / ".alibabacloud"
    folder.mkdir()
    (folder / "credentials").write_text(json.dumps(JSON))
    found = _load({})
    assert (_keys(found), found.expires_at) == (("id", "secret", "token"), 4070908800.0)
    assert str(folder / "credentials") in found.found_in


def test_the_sdks_file_is_read_too(tmp_path):
    file = tmp_path / "credentials"
    file.write_text("[default]\ntype = access_key\naccess_key_id = id\naccess_key_secret = secret\n")
    assert _keys(_load({"ALIBABA_CLOUD_CREDENTIALS_FILE": str(file)})) == ("id", "secret", "")


def test_a_rotated_file_is_read_again_before_it_expires(tmp_path):
    file, now = tmp_path / "credentials", [time.time()]

    def write(key, expires):
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(expires))
        file.write_text(json.dumps({**JSON, "AccessKeyId": key, "Expiration": stamp}))

    write("old", now[0] + 3600)
    held = RefreshingCredentials(AlibabaCredentials(OSSOptions(credentials_file=str(file)), {}), lambda: now[0])
    held.refresh_if_due()
    write("new", now[0] + 7200)
    held.refresh_if_due()
    assert held.current().access_key == "old"
    now[0] += 3400
    held.refresh_if_due()
    assert held.current().access_key == "new"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "neither JSON with AccessKeyId"),
        ("[1]", "neither JSON with AccessKeyId"),
        ("\udcff", "neither JSON with AccessKeyId"),
        ('{"AccessKeyId": "hush"}', "gives an incomplete or empty pair of keys"),
        ('{"AccessKeyId": "hush hush", "AccessKeySecret": "b"}', "contains spaces"),
        ("{}", "has no AccessKeyId and AccessKeySecret"),
    ],
)
def test_a_file_that_cannot_be_understood_is_named_and_not_quoted(tmp_path, text, message):
    file = tmp_path / "credentials"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=message) as caught:
        _load({}, credentials_file=str(file))
    assert "hush" not in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_named_file_that_is_not_there_is_an_error_and_another_is_not():
    with pytest.raises(
        ConfigError, match=r"OSSOptions.credentials_file names the credentials file /no/such, which does not exist"
    ):
        _load({}, credentials_file="/no/such")
    with pytest.raises(Unauthenticated, match="no credentials for OSS: looked in OSSOptions, OSS_ACCESS_KEY_ID, "):
        _load({})


@pytest.mark.parametrize(
    "how", [{}, {"ecs_role": "train-role"}, {"environ": {"ALIBABA_CLOUD_ECS_METADATA": "train-role"}}]
)
def test_an_instances_role_is_asked_for_in_the_hardened_mode(instance, how):
    found = _load(how.pop("environ", {}), **how)
    assert (_keys(found), found.expires_at) == (("id", "secret", "token"), 4070908800.0)
    assert found.found_in == "the ECS instance's role 'train-role'"
    assert instance.received[0].method == "PUT"


def test_a_role_is_renewed_before_it_expires(instance):
    now = [time.time()]
    held = RefreshingCredentials(AlibabaCredentials(OSSOptions(ecs_role="train-role"), {}), lambda: now[0])
    for key in ("first", "second"):
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now[0] + 3600))
        instance.said["train-role"] = json.dumps({**JSON, "AccessKeyId": key, "Expiration": stamp})
        held.refresh_if_due()
        assert held.current().access_key == key
        now[0] += 3400


def test_metadata_server_failure_raises_with_its_reason(instance):
    with pytest.raises(Unreachable, match="HTTP 404"):
        _load({}, ecs_role="another")
    instance.said["train-role"] = json.dumps({"Code": "Failed"})
    with pytest.raises(Unauthenticated, match="returned none"):
        _load({}, ecs_role="train-role")


def test_no_redirect_is_followed_and_no_metadata_asked_where_that_is_switched_off(monkeypatch):
    with Scripted(lambda _received, send: send(reply(302, location="http://127.0.0.1:9/"))) as server:
        monkeypatch.setattr(oss_store, "_METADATA", server.url)
        with pytest.raises(Unreachable, match="HTTP 302"):
            _load({}, ecs_role="x")
        seen = len(server.received)
        with pytest.raises(Unauthenticated):
            _load({"ALIBABA_CLOUD_ECS_METADATA_DISABLED": "true"})
        assert len(server.received) == seen


def test_a_uri_that_gives_credentials_out_is_asked():
    with Scripted(lambda _received, send: send(reply(200, json.dumps(JSON).encode()))) as server:
        assert _keys(_load({"ALIBABA_CLOUD_CREDENTIALS_URI": f"{server.url}/c"})) == ("id", "secret", "token")
    with pytest.raises(ConfigError, match="must be an http or https URL"):
        _load({"ALIBABA_CLOUD_CREDENTIALS_URI": "file:///etc/passwd"})
