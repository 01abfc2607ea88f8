"""A profile is held as long as its files and variables are the same, and no longer (see test_profiles for the rest)."""

import time

import pytest

from penstock.errors import ConfigError
from penstock.stores.profiles import lookup
from penstock.stores.profiles.build import bad_name
from penstock.stores.profiles.lookup import load


@pytest.fixture
def toml(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(text):
        (tmp_path / "aside").write_text(text)
        (tmp_path / "aside").replace(tmp_path / "penstock.toml")

    return write


def test_a_profile_is_the_same_value_while_its_files_are(toml, monkeypatch):
    toml("[profiles.x]\nurl = 'memory://a'\n")
    first = load("x")
    assert load("x") is first
    toml("[profiles.x]\nurl = 'memory://b'\n")
    monkeypatch.setattr(time, "monotonic", time.monotonic)
    monkeypatch.setattr(lookup, "monotonic", lambda: time.monotonic() + 1)
    assert load("x").target.bucket == "b"


def test_another_directory_and_another_variable_are_other_files_at_once(toml, tmp_path, monkeypatch):
    toml("[profiles.x]\nurl = 'memory://${SET:-a}'\n")
    assert load("x").target.bucket == "a"
    assert load("x", {"SET": "b"}).target.bucket == "b"
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/penstock.toml").write_text("[profiles.x]\nurl = 'memory://c'\n")
    monkeypatch.chdir(tmp_path / "inner")
    assert load("x").target.bucket == "c"
    monkeypatch.setenv("PENSTOCK_CONFIG", str(tmp_path / "penstock.toml"))
    assert load("x").target.bucket == "a"


def test_a_secret_s_file_is_read_each_time(toml, tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CONFIG", str(tmp_path / "penstock.toml"))
    toml("[profiles.x]\nprovider = 's3'\noptions = { access_key = 'AKIA', secret_key = { file = 'key' } }\n")
    for secret in ("first", "second"):
        (tmp_path / "key").write_text(secret)
        assert load("x").options.secret_key == secret


def test_a_profile_of_the_user_is_extended_by_the_project_s(toml, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    (tmp_path / "xdg/penstock").mkdir(parents=True)
    user = "[profiles.base]\nurl = 'memory://user'\nread.ahead_items = 3\n[profiles.x]\nurl = 'memory://hidden'\n"
    (tmp_path / "xdg/penstock/penstock.toml").write_text(user)
    toml("[profiles.x]\nextends = 'base'\nread.split_bytes = '1 MiB'\n")
    found = load("x")
    assert (found.target.bucket, found.options.read.ahead_items, found.options.read.split_bytes) == ("user", 3, 1 << 20)


@pytest.mark.parametrize(
    ("name", "fault"),
    [("a.b-C_9", ""), ("", "name of the profile is empty"), ("a b", "not a profile"), ("k:s@b", "do not")],
)
def test_names(name, fault):
    assert (fault in bad_name(name)) if fault else not bad_name(name)


def test_no_file_at_all(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"no profile 'x': no penstock.toml found here, above"):
        load("x")


def test_a_service_of_s3_s_dialect_is_a_provider_too(toml):
    toml("[profiles.x]\nprovider = 'minio'\noptions.endpoint = 'http://127.0.0.1:9'\n[profiles.y]\nprovider = 'mino'\n")
    assert (load("x").store.schemes, load("x").options.provider) == (("s3",), "minio")
    with pytest.raises(ConfigError, match="no provider 'mino': did you mean 'minio'"):
        load("y")
