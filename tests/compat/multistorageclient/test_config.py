"""Profiles by name from files, and from dictionaries, JSON and YAML."""

from __future__ import annotations

import json
import pickle

import pytest
import yaml

from penstock.compat import multistorageclient as msc
from penstock.compat.multistorageclient.config import FILESYSTEM, StorageClientConfig
from penstock.errors import ConfigError, Unsupported, Unusable


@pytest.fixture
def content(tmp_path):
    return {"profiles": {"here": {"storage_provider": {"type": "file", "options": {"base_path": str(tmp_path)}}}}}


@pytest.fixture
def environment(config, monkeypatch):
    monkeypatch.setenv("MSC_CONFIG", str(config))


@pytest.mark.usefixtures("environment")
def test_a_profile_of_the_file_is_found_by_name():
    found = StorageClientConfig.from_file(profile="bucket")
    assert (found.profile, found.base, found.store) == ("bucket", "msc://bucket/", None)
    assert StorageClientConfig.from_file().profile == FILESYSTEM
    assert StorageClientConfig.from_file(profile="_s3-other").base == "msc://_s3-other/"
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.usefixtures("environment")
def test_a_profile_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="no profile 'bukket'"):
        StorageClientConfig.from_file(profile="bukket")


def test_files_may_be_named(config, tmp_path):
    found = StorageClientConfig.from_file([str(tmp_path / "none"), str(config)], profile="bucket")
    assert found.base == "s3://bkt/base/"
    assert found.store.region == "us-east-1"
    with pytest.raises(ConfigError, match="no profile 'x'; profiles: bucket, disk"):
        StorageClientConfig.from_file([str(config)], profile="x")


@pytest.mark.usefixtures("environment")
def test_absent_named_files_do_not_become_those_of_the_environment(tmp_path):
    with pytest.raises(ConfigError, match=r"no profile 'bucket': none of config_file_paths exists: .*none"):
        StorageClientConfig.from_file([str(tmp_path / "none")], profile="bucket")
    assert StorageClientConfig.from_file([str(tmp_path / "none")]).profile == FILESYSTEM
    assert StorageClientConfig.from_file([], profile="bucket").base == "msc://bucket/"


def test_implicit_profiles_are_beside_those_of_named_files(config):
    assert StorageClientConfig.from_file([str(config)]).base == "msc://__filesystem__/"
    assert StorageClientConfig.from_file([str(config)], profile="_s3-other").base == "msc://_s3-other/"


def test_invalid_yaml_raises_config_error_without_quoting_its_content(tmp_path):
    text = "profiles:\n  x: {secret: hushhush\n y"
    (tmp_path / "x.yaml").write_text(text)
    for read in (
        lambda: StorageClientConfig.from_yaml(text, "x"),
        lambda: StorageClientConfig.read_msc_config([str(tmp_path / "x.yaml")]),
    ):
        with pytest.raises(ConfigError, match="is not YAML: an error in line 3") as refused:
            read()
        assert "hushhush" not in str(refused.value)
        assert refused.value.__cause__ is refused.value.__context__ is None


def test_blank_file_leaves_paths_of_this_machine(tmp_path, monkeypatch):
    (tmp_path / "msc.yaml").write_text("\n")
    monkeypatch.setenv("MSC_CONFIG", str(tmp_path / "msc.yaml"))
    msc.write(str(tmp_path / "x"), b"1")
    assert msc.open(f"file://{tmp_path}/x").read() == b"1"
    assert StorageClientConfig.read_msc_config() == ({}, str(tmp_path / "msc.yaml"))


def test_a_dictionary_json_and_yaml_say_the_same(content, tmp_path):
    from_dict = StorageClientConfig.from_dict(content, "here")
    assert from_dict.base == f"file://{tmp_path}/"
    assert StorageClientConfig.from_json(json.dumps(content), "here") == from_dict
    assert StorageClientConfig.from_yaml(yaml.safe_dump(content), "here") == from_dict
    with pytest.raises(ConfigError, match="config_dict has no profile 'there'"):
        StorageClientConfig.from_dict(content, "there")


def test_secrets_of_a_dictionary_are_neither_shown_nor_pickled(content):
    content["profiles"]["here"] = {
        "storage_provider": {"type": "s3", "options": {"base_path": "bkt", "region_name": "r"}},
        "credentials_provider": {"type": "S3Credentials", "options": {"access_key": "id", "secret_key": "very-secret"}},
    }
    found = StorageClientConfig.from_dict(content, "here")
    assert found.store.secret_key == "very-secret"
    assert "very-secret" not in repr(found)
    with pytest.raises(Unusable, match="worker processes only"):
        pickle.dumps(found)


@pytest.mark.usefixtures("environment")
def test_the_configuration_is_read(config):
    content, path = StorageClientConfig.read_msc_config()
    assert (sorted(content["profiles"]), path) == (["bucket", "disk"], str(config))
    assert StorageClientConfig.read_msc_config(["/none"]) == ({}, None)


def test_provider_bundle_and_telemetry_provider_are_refused_as_unsupported():
    with pytest.raises(Unsupported, match="from_provider_bundle is not a part"):
        StorageClientConfig.from_provider_bundle({}, object())
    with pytest.raises(Unsupported, match=r"penstock\.observe\.OpenTelemetry"):
        StorageClientConfig.from_file(telemetry_provider=dict)
