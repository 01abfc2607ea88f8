"""Remotes of rclone are profiles of Multi-Storage Client's kind."""

import os

import pytest

from penstock.errors import ConfigError
from penstock.stores.profiles.files import rclone_file
from penstock.stores.profiles.lookup import load
from penstock.stores.profiles.multistorage import rclone_profiles

TEXT = """\
[minio]
type = s3
provider = Minio
endpoint = http://h:9000
region = eu
access_key_id = a
secret_access_key = %hush
[blob]
type = azureblob
connection = c
[cluster]
type = ais
endpoint = http://g
[disk]
type = file
base_path = /data
[drop]
type = dropbox
"""


def test_the_file_is_found_where_multi_storage_client_finds_it(tmp_path):
    environ = {"HOME": str(tmp_path), "PATH": str(tmp_path / "bin"), "XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    assert rclone_file(environ) == ""
    places = [".rclone.conf", ".config/rclone/rclone.conf", "xdg/rclone/rclone.conf", "bin/rclone.conf"]
    for place in places:  # from the last to the first
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("")
        if place.startswith("bin"):
            (tmp_path / "bin/rclone").write_text("")
            (tmp_path / "bin/rclone").chmod(0o755)
        assert rclone_file(environ) == str(tmp_path / place)


def test_a_remote_becomes_a_profile(tmp_path):
    (tmp_path / "rclone.conf").write_text(TEXT)
    found = rclone_profiles(str(tmp_path / "rclone.conf"))
    assert list(found) == ["minio", "blob", "cluster", "disk"]
    assert found["minio"] == {
        "storage_provider": {"type": "s3", "options": {"region_name": "eu", "endpoint_url": "http://h:9000"}},
        "credentials_provider": {"type": "S3Credentials", "options": {"access_key": "a", "secret_key": "%hush"}},
    }
    assert found["blob"]["credentials_provider"] == {"type": "AzureCredentials", "options": {"connection": "c"}}
    assert found["cluster"]["storage_provider"]["options"] == {"endpoint": "http://g"}


def test_keys_of_a_remote_that_are_not_used_are_named_in_the_log(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "rclone").mkdir()
    (tmp_path / "rclone/rclone.conf").write_text(
        "[blob]\ntype = azureblob\naccount = name\nkey = hushhush\n" + TEXT.partition("[blob]")[0]
    )
    with caplog.at_level("WARNING", "penstock"):
        for name in ("blob", "minio"):
            load(name, os.environ, "msc")
    [record] = caplog.records
    assert record.getMessage().endswith("profiles.blob has keys that Penstock does not use: account, key")


def test_a_file_that_cannot_be_parsed_is_not_quoted(tmp_path):
    (tmp_path / "rclone.conf").write_text("hushhush")
    with pytest.raises(ConfigError, match="cannot be parsed: MissingSectionHeaderError") as refused:
        rclone_profiles(str(tmp_path / "rclone.conf"))
    assert "hushhush" not in str(refused.value)
