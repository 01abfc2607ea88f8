"""Functions by URL: of a profile, of a store, and paths of this machine."""

from __future__ import annotations

import pytest

from penstock.compat import multistorageclient as msc
from penstock.errors import ConfigError, InvalidURL, Unsupported


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("msc://disk/a//b", ("disk", "a/b")),
        ("msc:/disk/a", ("disk", "a")),
        ("s3://bkt/a/b", ("_s3-bkt", "a/b")),
        ("/a/./b", ("__filesystem__", "/a/b")),
        ("file:///a/b", ("__filesystem__", "/a/b")),
    ],
)
def test_a_url_is_of_a_profile(url, expected, config, monkeypatch):
    monkeypatch.setenv("MSC_CONFIG", str(config))
    client, path = msc.resolve_storage_client(url)
    assert (client.profile, path) == expected


@pytest.mark.parametrize("url", ["weird://x/y", "s3:///x", "://x"])
def test_another_scheme_is_refused(url):
    with pytest.raises(InvalidURL, match="msc://profile/path"):
        msc.open(url)


def test_an_unknown_profile_is_refused(config, monkeypatch):
    monkeypatch.setenv("MSC_CONFIG", str(config))
    with pytest.raises(ConfigError, match="no profile 'dsk'"):
        msc.open("msc://dsk/x")


def test_paths_of_this_machine_stay_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    msc.write("sub/f.txt", b"local")
    for url in ("sub/f.txt", f"{tmp_path}/sub/f.txt", f"file://{tmp_path}/sub/f.txt"):
        with msc.open(url) as file:
            assert file.read() == b"local"
    assert msc.glob(f"{tmp_path}/**/*.txt") == [f"{tmp_path}/sub/f.txt"]
    assert [each.key for each in msc.list(str(tmp_path))] == [f"{tmp_path}/sub/f.txt"]
    assert [each.key for each in msc.list(str(tmp_path), include_directories=True)] == [f"{tmp_path}/sub"]
    assert msc.info(f"{tmp_path}/sub").type == "directory"
    msc.delete("sub/f.txt")
    assert not msc.is_file("sub/f.txt")


def test_a_bucket_needs_no_profile(server, monkeypatch):
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    msc.write("s3://bkt/implicit", b"here")
    assert msc.open("s3://bkt/implicit").read() == b"here"
    assert msc.glob("s3://bkt/impl*") == ["msc://_s3-bkt/implicit"]
    assert "X-Amz-Signature=" in msc.generate_presigned_url("s3://bkt/implicit")


def test_there_is_no_telemetry():
    msc.set_telemetry_provider(None)
    assert msc.get_telemetry_provider() is None
    with pytest.raises(Unsupported, match="set_telemetry_provider is not a part"):
        msc.set_telemetry_provider(dict)
    for refused in (msc.sync_replicas, msc.make_symlink):
        with pytest.raises(Unsupported, match="is not a part of penstock"):
            refused("/a", "/b")
    msc.commit_metadata("/a")
