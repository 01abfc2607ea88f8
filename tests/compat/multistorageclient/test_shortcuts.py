"""Functions by URL: of a profile, of a store, and paths of this machine."""

from __future__ import annotations

import io
import json

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


@pytest.fixture
def mapped(server, tmp_path, monkeypatch):
    """Return the folder of a profile that a directory and a bucket are mapped to, in a file that is in the home."""
    profile = {
        "storage_provider": {
            "type": "s3",
            "options": {"base_path": "bkt/mapped", "region_name": "us-east-1", "endpoint_url": server.endpoint},
        },
        "credentials_provider": {
            "type": "S3Credentials",
            "options": {"access_key": "testing", "secret_key": "testing"},
        },
    }
    disk = {"storage_provider": {"type": "file", "options": {"base_path": str(tmp_path / "stored")}}}
    content = {
        "profiles": {"bucket": profile, "disk": disk},
        "path_mapping": {"/lustre/data/": "msc://disk/", "s3://bkt/": "msc://bucket/", "gs://old/x/": "msc://disk/"},
    }
    (tmp_path / ".msc_config.json").write_text(json.dumps(content))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("MSC_CONFIG", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return tmp_path / "stored", content


@pytest.mark.parametrize("named", [False, True])
def test_mapped_url_has_bucket_and_options_of_the_profile(mapped, named, server, tmp_path, monkeypatch):
    if named:
        monkeypatch.setenv("MSC_CONFIG", str(tmp_path / ".msc_config.json"))
    msc.write("/lustre/data/a", b"1")
    assert (mapped[0] / "a").read_bytes() == b"1"
    assert msc.open("gs://old/x/a").read() == msc.open("file:///lustre/data/a").read() == b"1"
    msc.write("s3://bkt/b", b"2")
    assert server.client().get_object(Bucket="bkt", Key="mapped/b")["Body"].read() == b"2"
    for url in ("s3://bkt/", "S3://bkt", "gs://old/x/y", "gs://old/xy"):
        client, _ = msc.resolve_storage_client(url)
        assert client.profile == {"s3://bkt/": "bucket", "S3://bkt": "_s3-bkt", "gs://old/x/y": "disk"}.get(
            url, "_gs-old"
        )


def test_client_of_a_dictionary_is_not_mapped(mapped, server, tmp_path, monkeypatch):
    monkeypatch.setenv("MSC_CONFIG", str(tmp_path / ".msc_config.json"))
    client = msc.StorageClient(msc.StorageClientConfig.from_dict(mapped[1], "bucket"))
    client.write("d/c", b"3")
    assert server.client().get_object(Bucket="bkt", Key="mapped/d/c")["Body"].read() == b"3"
    client.copy("d/c", "d/e")
    with client.open("d/f", "wb") as file:
        file.write(client.read("d/e"))
    client.upload_file("d/g", io.BytesIO(b"4"))
    assert [each.key for each in client.list("d")] == client.glob("d/*") == ["d/c", "d/e", "d/f", "d/g"]
    assert client.info("d/g").content_length == 1
    assert client.generate_presigned_url("d/g").startswith(f"{server.endpoint}/bkt/mapped/d/g?")
    client.delete("d", recursive=True)
    assert client.is_empty("d")


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


def test_setting_a_telemetry_provider_raises_unsupported():
    msc.set_telemetry_provider(None)
    assert msc.get_telemetry_provider() is None
    with pytest.raises(Unsupported, match="set_telemetry_provider is not a part"):
        msc.set_telemetry_provider(dict)
    for refused in (msc.sync_replicas, msc.make_symlink):
        with pytest.raises(Unsupported, match="is not a part of penstock"):
            refused("/a", "/b")
    msc.commit_metadata("/a")
