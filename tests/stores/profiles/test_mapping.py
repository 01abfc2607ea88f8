"""Multi-Storage Client's ``path_mapping`` means the same path here, where the user names the file."""

import logging

import pytest

import penstock as ps
from penstock.errors import ConfigError
from penstock.stores.profiles import lookup
from penstock.stores.profiles.multistorage import divides, map_path
from penstock.stores.urls import parse

FILE = """
profiles:
  data: {storage_provider: {type: file, options: {base_path: %s}}}
  deep: {storage_provider: {type: s3, options: {base_path: bucket/deep}}}
path_mapping:
  /lustre/data/: msc://data/
  /lustre/data/deep/: msc://deep/
  s3://old/prefix/: msc://data/
"""
# What StorageClient of Multi-Storage Client 1.3.1 makes of the same file: profile and path.
MAPPED = [
    ("/lustre/data/a/b", "msc://data/a/b"),
    ("/lustre/data/deep/a", "msc://deep/a"),
    ("file:///lustre/data/a", "msc://data/a"),
    ("s3://old/prefix/a", "msc://data/a"),
    ("S3://old/prefix/a", "msc://data/a"),
    ("s3://old/prefixed/a", "s3://old/prefixed/a"),
    ("/lustre/data", "/lustre/data"),
    ("/lustre/database/a", "/lustre/database/a"),
    ("relative/lustre/data/a", "relative/lustre/data/a"),
    ("msc://deep/lustre/data/a", "msc://deep/lustre/data/a"),
    ("gs://old/prefix/a", "gs://old/prefix/a"),
]


@pytest.fixture
def yaml(tmp_path, monkeypatch):
    path = tmp_path / "msc.yaml"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path))  # rclone's file is found by its program
    monkeypatch.setattr(lookup, "_warned", set())

    def write(text=FILE):
        path.write_text(text % (tmp_path / "stored") if "%" in text else text)
        monkeypatch.setenv("MSC_CONFIG", str(path))
        return path

    return write


@pytest.mark.parametrize(("text", "expected"), MAPPED, ids=[text for text, _ in MAPPED])
def test_path_mapping_matches_multi_storage_client(yaml, text, expected):
    assert map_path(text, {"MSC_CONFIG": str(yaml())}) == expected


def test_open_and_list_follow_path_mapping_of_config_file(yaml, tmp_path):
    yaml()
    with ps.open("/lustre/data/a/b", "wb") as file:
        file.write(b"x")
    assert (tmp_path / "stored/a/b").read_bytes() == b"x"
    assert [each.key for each in ps.list("s3://old/prefix/a/")] == ["a/b"]
    assert parse("/lustre/data/a").url == "msc://data/a"


LEGACY = """
profiles:
  legacy: {storage_provider: {type: s3, options: {base_path: old/prefix, endpoint_url: "http://127.0.0.1:9"}}}
  new: {storage_provider: {type: s3, options: {base_path: new}}}
  bucket1: {storage_provider: {type: s3, options: {base_path: bucket1, endpoint_url: "http://127.0.0.1:9"}}}
  disk: {storage_provider: {type: file, options: {base_path: %s}}}
path_mapping:
  s3://old/: msc://new/
  s3://bucket1/: msc://bucket1/
  %s/: msc://disk/
"""


@pytest.fixture
def legacy(yaml, tmp_path):
    yaml(LEGACY.replace("%s", str(tmp_path / "stored")))
    (tmp_path / "stored").mkdir()
    return tmp_path / "stored"


@pytest.mark.usefixtures("legacy")
@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("msc://legacy/f", ("msc://legacy/f", "s3://old/prefix/")),
        ("s3://old/f", ("msc://new/f", "s3://new/")),
        ("msc://bucket1/f", ("msc://bucket1/f", "s3://bucket1/")),
        ("s3://bucket1/f", ("msc://bucket1/f", "s3://bucket1/")),
        ("msc://_s3-old/f", ("msc://_s3-old/f", "s3://old/")),
    ],
)
def test_mapping_does_not_apply_to_place_of_profile(url, expected):
    found = parse(url)
    assert (found.url, found.store.target) == expected


def test_directory_mapped_to_its_own_profile_is_read_and_written(legacy):
    for url in (f"{legacy}/a", "msc://disk/b"):
        with ps.open(url, "wb") as file:
            file.write(url.encode())
    assert sorted(each.name for each in legacy.iterdir()) == ["a", "b"]
    assert ps.open("msc://disk/a").read() == f"{legacy}/a".encode()


@pytest.mark.usefixtures("legacy")
def test_mapping_does_not_apply_to_place_of_penstock_profile(tmp_path, monkeypatch):
    (tmp_path / "penstock.toml").write_text('[profiles.old]\nurl = "s3://old/x/"\noptions.region = "r"\n')
    monkeypatch.chdir(tmp_path)
    found = parse("penstock://old/f").store
    assert (found.target, found.defaults.region) == ("s3://old/x/", "r")


def test_path_mapping_of_unnamed_config_file_is_ignored_with_warning(yaml, tmp_path, monkeypatch, caplog):
    path = yaml()
    (tmp_path / "home").mkdir()
    path.rename(tmp_path / "home/.msc_config.yaml")
    monkeypatch.delenv("MSC_CONFIG")
    assert parse("/lustre/data/a").local
    with caplog.at_level(logging.WARNING, "penstock"):
        parse("msc://data/a")
    assert "path_mapping (it counts where MSC_CONFIG names the file)" in caplog.text


@pytest.mark.parametrize(
    "line", ["/a: msc://data/", "/a/: s3://b/", "/a/: msc://data/x/", "a/: msc://data/", "file:///a/: msc://data/"]
)
def test_a_mapping_that_cannot_be_is_named(yaml, line):
    yaml(f"profiles: {{}}\npath_mapping:\n  {line}\n")
    with pytest.raises(ConfigError, match=r"path_mapping\.") as refused:
        list(ps.list("/anything/"))
    assert line.partition(": ")[0] in str(refused.value)


def test_a_profile_of_profiles_names_its_key(yaml):
    yaml("profiles:\n  all: {storage_provider_profiles: [a, b]}\n")
    with pytest.raises(ConfigError, match="storage_provider_profiles is run by Multi-Storage Client's own code"):
        list(ps.list("msc://all/"))


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        ("s3://old/", True),
        ("S3://old/", True),
        ("s3://old/prefix/", False),
        ("s3://other/", False),
        ("msc://data/", False),
    ],
)
def test_a_bucket_is_divided_where_a_part_of_it_means_another_place(yaml, root, expected):
    assert divides(root, {"MSC_CONFIG": str(yaml())}) is expected
