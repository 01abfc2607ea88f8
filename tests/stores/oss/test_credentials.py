"""Where OSS's credentials come from, in their order; an instance's role is asked for as Alibaba documents it."""

from __future__ import annotations

import json
import time

import pytest

import penstock as ps
from penstock.errors import ConfigError, Unauthenticated, Unreachable
from penstock.stores.credentials import RefreshingCredentials
from penstock.stores.oss import store as oss_store
from penstock.stores.oss.options import OSSOptions
from penstock.stores.oss.store import source
from penstock.testing.servers import Scripted, reply

ROLES = "/latest/meta-data/ram/security-credentials/"
LATER = "2099-01-01T00:00:00Z"
JSON = {"AccessKeyId": "id", "AccessKeySecret": "secret", "SecurityToken": "token", "Expiration": LATER}


def _load(environ=None, **options):
    return source(OSSOptions(region="r", **options), environ or {"HOME": "/nowhere"}).load()


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
    held = RefreshingCredentials(source(OSSOptions(credentials_file=str(file)), {}), lambda: now[0])
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
        ('{"AccessKeyId": "hush hush", "AccessKeySecret": "b"}', "holds a space"),
        ("{}", "gives no AccessKeyId and AccessKeySecret"),
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
        ConfigError, match=r"OSSOptions.credentials_file names the credentials file /no/such, which is not"
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
    held = RefreshingCredentials(source(OSSOptions(ecs_role="train-role"), {}), lambda: now[0])
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
    with pytest.raises(Unauthenticated, match="answered with none"):
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
