"""Objects are found by name, path, size, age and kind, on every kind of store."""

from __future__ import annotations

import os
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from azure.storage.blob import generate_container_sas

import penstock as ps
from penstock.errors import ConfigError, InvalidURL, Unsupported, Unusable
from penstock.testing.faults import FaultServer, Settings
from penstock.values import Presigned

NAMES = {"a.png": 10, "x/b.png": 2000, "x/b.txt": 5, "x/y/c.png": 30, "x-y/d": 1}


@pytest.fixture(params=["file", "memory"])
def root(request, tmp_path):
    url = str(tmp_path / "t") if request.param == "file" else f"memory://{tmp_path.name}/t"
    for name, size in NAMES.items():
        with ps.open(f"{url}/{name}", "wb") as file:
            file.write(bytes(size))
    return url


def names(root, **wanted):
    found = list(ps.find(root, **wanted))
    assert all(each.url.endswith(each.key) for each in found)
    return [each.url.partition("/t/")[2] for each in found]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, ["a.png", "x-y/d", "x/b.png", "x/b.txt", "x/y/c.png"]),
        ({"name": "*.png"}, ["a.png", "x/b.png", "x/y/c.png"]),
        ({"name": ["b.*", "d"]}, ["x-y/d", "x/b.png", "x/b.txt"]),
        ({"path": "x/*.png"}, ["x/b.png"]),
        ({"path": "x/**", "name": "*.png"}, ["x/b.png", "x/y/c.png"]),
        ({"larger_bytes": 10, "smaller_bytes": 30}, ["a.png", "x/y/c.png"]),
        ({"larger_bytes": np.int64(10), "smaller_bytes": np.float64(30)}, ["a.png", "x/y/c.png"]),
        ({"name": "*.PNG"}, []),
        ({"newer_s": 3600}, ["a.png", "x-y/d", "x/b.png", "x/b.txt", "x/y/c.png"]),
        ({"older_s": 3600}, []),
        ({"kind": "marker"}, []),
        ({"kind": "folder"}, ["x-y/", "x/y/", "x/"]),
        ({"kind": "folder", "name": "x*"}, ["x-y/", "x/"]),
        ({"kind": "folder", "path": "*/y"}, ["x/y/"]),
        ({"kind": "folder", "larger_bytes": 2000}, ["x/"]),
    ],
)
def test_find_returns_exactly_the_matching_entries(root, wanted, found):
    assert names(root, **wanted) == found


def test_ages_are_counted_from_now(tmp_path):
    for name, age_s in (("new", 0), ("old", 7200)):
        (tmp_path / name).write_text(name)
        stamp = time.time() - age_s
        os.utime(tmp_path / name, (stamp, stamp))
    assert [each.key.rpartition("/")[2] for each in ps.find(tmp_path, older_s=3600)] == ["old"]
    assert [each.key.rpartition("/")[2] for each in ps.find(tmp_path, newer_s=3600)] == ["new"]


def test_markers_and_folders_of_a_store():
    for name in ("m/dir/", "m/dir/x", "m/empty/", "m/none"):
        with ps.open(f"memory://markers/{name}", "wb") as file:
            file.write(b"" if name.endswith("/") else b"1")
    url = "memory://markers/m"
    assert [each.key for each in ps.find(url, kind="marker")] == ["m/dir/", "m/empty/"]
    assert [each.key for each in ps.find(url)] == ["m/dir/x", "m/none"]
    assert [(each.key, each.size) for each in ps.find(url, kind="folder")] == [("m/dir/", 1), ("m/empty/", 0)]
    assert [each.key for each in ps.find("memory://markers", name="x")] == ["m/dir/x"]


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"kind": "directory"}, Unusable),
        ({"larger_bytes": -1}, Unusable),
        ({"older_s": float("nan")}, Unusable),
        ({"larger_bytes": "5"}, Unusable),
        ({"larger_bytes": True}, Unusable),
        ({"newer_s": "1d"}, Unusable),
        ({"path": "[z-a]"}, ConfigError),
        ({"size": 3}, TypeError),
    ],
)
def test_invalid_find_criteria_are_refused_immediately(wanted, error):
    with pytest.raises(error):
        ps.find("memory://markers/m", **wanted)


# Addresses that are signed are taken by servers that check them, from a client that knows nothing of Penstock.


KEY = "a/b c+é%&=.txt"
SCHEMES = {"s3": "s3", "gcs": "gs", "azure": "az", "oss": "oss"}
WEEK_S = 7 * 86_400


def fetch(signed, data=None):
    request = urllib.request.Request(str(signed), data, signed.headers, method=signed.method)  # noqa: S310  loopback
    with urllib.request.urlopen(request) as answer:  # noqa: S310  as above
        return answer.read()


def status_of(signed, data=None):
    with pytest.raises(urllib.error.HTTPError) as caught:
        fetch(signed, data)
    with caught.value:
        return caught.value.code


def check(root, store):
    """Read and write one object by its address, and see all misuse of the two refused."""
    ps.presign(f"{root}{KEY}", store=store)  # of nothing yet: nobody looks
    write = ps.presign(f"{root}{KEY}", method="PUT", store=store)
    fetch(write, b"some bytes")
    fetch(write, b"new bytes")
    with ps.open(f"{root}{KEY}", store=store) as file:
        assert file.read() == b"new bytes"
    before = int(time.time())
    read = ps.presign(f"{root}{KEY}", expires_s=60, store=store)
    assert fetch(read) == b"new bytes"
    assert before <= read.expires_at - 60 <= time.time()
    other = ps.presign(f"{root}other", store=store)
    for wrong in (
        read.url.replace(".txt", ".tyt"),
        read.url.replace("xpires=60", "xpires=99").replace("&se=20", "&se=21"),
        read.url.partition("?")[0] + "?" + other.url.partition("?")[2],
    ):
        assert status_of(Presigned(wrong, "GET", 0.0)) == 403
    assert status_of(Presigned(read.url, "PUT", 0.0, write.headers), b"not allowed") == 403
    with ps.open(f"{root}{KEY}", store=store) as file:
        assert file.read() == b"new bytes"


KEYS = ps.S3Options(endpoint="http://127.0.0.1:9", access_key="k", secret_key="s")


@pytest.mark.ceph
def test_ceph_takes_signed_addresses_and_no_others(ceph_server):
    client = ceph_server.client()
    client.create_bucket(Bucket="presigned")
    check("s3://presigned/", ceph_server.store)


def test_azurite_takes_signed_addresses_and_no_others(container):
    check(container.url, container.store)


@pytest.mark.parametrize("dialect", SCHEMES)
def test_every_dialect_takes_signed_addresses_and_no_others(dialect):
    with FaultServer.start(Settings(dialect=dialect)) as server:
        server.put("bucket", "there", b"")
        check(f"{SCHEMES[dialect]}://bucket/", server.store)


@pytest.mark.parametrize("dialect", SCHEMES)
def test_presigned_url_expires_at_the_reported_time(dialect, monkeypatch):
    with FaultServer.start(Settings(dialect=dialect)) as server:
        server.put("bucket", "k", b"data")
        now = time.time()
        with monkeypatch.context() as past:
            past.setattr("penstock.jobs.trees.find.time.time", lambda: now - 100)
            dead = ps.presign(f"{SCHEMES[dialect]}://bucket/k", expires_s=90, store=server.store)
            alive = ps.presign(f"{SCHEMES[dialect]}://bucket/k", expires_s=1000, store=server.store)
        assert dead.expires_at < now
        assert status_of(dead) == 403
        assert fetch(alive) == b"data"


def test_a_key_below_a_profile_is_signed_by_its_whole_name(monkeypatch, tmp_path):
    with FaultServer.start() as server:
        server.put("bucket", "base/x", b"data")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        (tmp_path / "penstock.toml").write_text('[profiles.mine]\nurl = "s3://bucket/base/"\n')
        monkeypatch.chdir(tmp_path)
        assert fetch(ps.presign("penstock://mine/x")) == b"data"


@pytest.mark.parametrize(
    ("expires_s", "said"),
    [
        (0, "at least 1"),
        (-5, "at least 1"),
        (float("nan"), "at least 1"),
        (float("inf"), "at least 1"),
        (True, "at least 1"),
        ("1h", "a number of seconds"),
        (WEEK_S + 1, "at most 604,800 seconds"),
    ],
)
@pytest.mark.parametrize("dialect", ["s3", "gcs", "oss"])
def test_a_time_that_cannot_be_is_refused(dialect, expires_s, said):
    store = {
        "s3": KEYS,
        "gcs": ps.GCSOptions(endpoint="http://127.0.0.1:9", access_key="k", secret_key="s"),
        "oss": ps.OSSOptions(endpoint="http://127.0.0.1:9", region="r", access_key="k", secret_key="s"),
    }[dialect]
    url = f"{SCHEMES[dialect]}://bucket/k"
    with pytest.raises(Unusable, match=said) as caught:
        ps.presign(url, expires_s=expires_s, store=store)
    assert caught.value.url in ("", url)
    assert f"={WEEK_S}&" in ps.presign(url, expires_s=WEEK_S, store=store).url


def test_no_address_outlives_its_credentials():
    until = int(time.time()) + 2000

    def keys():
        return ps.credentials.Credentials("AK", "SK", "session", expires_at=until)

    store = ps.S3Options(endpoint="http://127.0.0.1:9", credentials=keys)
    with pytest.raises(Unusable, match=r"the credentials expire in \S+ seconds, before the URL"):
        ps.presign("s3://bucket/k", expires_s=3600, store=store)
    signed = ps.presign("s3://bucket/k", store=store)  # as long as there is
    assert until - 2 <= signed.expires_at <= until
    assert "X-Amz-Security-Token=session" in signed.url
    assert signed.note == ""


def test_session_token_with_unknown_expiry_adds_a_note():
    store = ps.S3Options(endpoint="http://127.0.0.1:9", access_key="k", secret_key="s", session_token="t")
    assert "session token" in ps.presign("s3://bucket/k", store=store).note


def test_an_address_is_a_secret_that_no_repr_shows():
    signed = ps.presign("s3://bucket/k", store=KEYS)
    assert str(signed) == signed.url
    assert "Signature" not in repr(signed)
    assert "http" not in repr(signed)


SHARED = generate_container_sas("mine", "bkt", "a2V5", permission="r", expiry=datetime.now(UTC) + timedelta(hours=1))
REFUSED = {
    "a file": ("/opt/x", None, "cannot sign addresses"),
    "memory": ("memory://m/x", None, "cannot sign addresses"),
    "a web server": ("https://example.com/x", None, "cannot sign addresses"),
    "anonymous": ("s3://bucket/k", ps.S3Options(anonymous=True), "pass keys"),
    "a token of Google's": ("gs://bucket/k", ps.GCSOptions(token="t"), "use an HMAC key"),
    "Google, anonymous": ("gs://bucket/k", ps.GCSOptions(anonymous=True), "pass keys"),
    "a SAS": ("az://bkt/k", ps.AzureOptions(account="mine", sas_token=SHARED), "cannot sign URLs"),
    "a token of Azure's": ("az://bkt/k", ps.AzureOptions(account="mine", token="t"), "the account's key"),
    "Azure, anonymous": ("az://bkt/k", ps.AzureOptions(account="mine", anonymous=True), "the account's key"),
}


@pytest.mark.parametrize("way", REFUSED)
def test_presign_without_signing_support_is_refused_with_advice(way):
    url, store, said = REFUSED[way]
    with pytest.raises(Unsupported, match=said) as caught:
        ps.presign(url, store=store)
    assert caught.value.url == url


def test_other_methods_and_whole_buckets_are_refused():
    with pytest.raises(Unusable, match="'GET' or 'PUT', got 'DELETE'"):
        ps.presign("s3://bucket/k", method="DELETE", store=KEYS)
    with pytest.raises(InvalidURL, match="names a bucket"):
        ps.presign("s3://bucket/", store=KEYS)
