"""Configuration is found in a fixed order, read once for each version, and a file of strangers is refused."""

import os
import time
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.stores.profiles import files
from penstock.stores.profiles.files import candidates, config_files, read_file, signature


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Return a home with a project in it, in whose directory ``src`` the process is."""
    inside = tmp_path / "home" / "project" / "src"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def put(path, text="[profiles.x]\nurl = 's3://bucket/'\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_the_order_is_project_user_system(home):
    user, outer = put(home / ".config/penstock/penstock.toml"), put(home / "penstock.toml")
    system = ("system", "/etc/penstock/penstock.toml")
    assert [*candidates(os.environ)] == [("project", outer), ("user", user), system]
    nearest = put(home / "project/penstock.toml")
    assert [*candidates(os.environ)] == [("project", nearest), ("user", user), system]
    assert [kind for kind, _ in config_files(os.environ)] == ["project", "user"]


@pytest.mark.usefixtures("home")
def test_xdg_config_home_moves_the_user_s(tmp_path):
    user = put(tmp_path / "xdg/penstock/penstock.toml")
    found = config_files(os.environ | {"XDG_CONFIG_HOME": str(tmp_path / "xdg")})
    assert [(kind, each.path) for kind, each in found] == [("user", user)]


def test_penstock_config_is_the_only_file(home):
    put(home / "penstock.toml")
    named = put(home / "elsewhere/mine.toml")
    assert [each.path for _, each in config_files(os.environ | {"PENSTOCK_CONFIG": "~/elsewhere/mine.toml"})] == [named]
    with pytest.raises(ConfigError, match=r"PENSTOCK_CONFIG names '.*nope.toml', which is not a file"):
        config_files({"PENSTOCK_CONFIG": str(home / "nope.toml")})
    with pytest.raises(ConfigError, match="which is not a file"):
        config_files({"PENSTOCK_CONFIG": str(home)})


@pytest.mark.usefixtures("home")
def test_a_working_directory_that_is_gone_has_no_project(tmp_path, monkeypatch):
    monkeypatch.chdir(gone := tmp_path / "home/project/src")
    gone.rmdir()
    assert config_files(os.environ) == []


def test_another_version_has_another_signature(home):
    path = put(home / "penstock.toml")
    before = signature(path)
    assert signature(path) == before
    put(home / "other", "[profiles]\n")
    (home / "other").replace(path)
    assert signature(path) != before
    assert signature(str(home)).inode == signature(str(home / "nope")).inode == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[profile.x]\n", ":1: profile is unknown: did you mean 'profiles'?"),
        ("\nprofiles = 3\n", ":2: profiles must be a table: [profiles.NAME]"),
        ("[profiles.x]\nsecret = hush\n", "is not TOML: "),
        (b"\xff", "is not UTF-8 text"),
    ],
)
def test_unreadable_profile_file_error_gives_location_without_content(home, text, says):
    path = home / "penstock.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ConfigError) as refused:
        read_file(str(path), "user")
    assert says in str(refused.value)
    assert str(path) in str(refused.value)
    assert "hush" not in str(refused.value)
    assert refused.value.__cause__ is refused.value.__context__ is None


def test_directory_as_profile_file_raises_config_error(home):
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_file(str(home), "user")


def test_a_project_s_file_of_another_user_is_refused(home, monkeypatch):
    path = put(home / "penstock.toml")
    monkeypatch.setattr(files.os, "geteuid", lambda: Path(path).stat().st_uid + 1)
    if Path(path).stat().st_uid == 0:  # root's files are everybody's: a file of somebody else then
        os.chown(path, 12345, -1)
    with pytest.raises(ConfigError, match="belongs to another user: PENSTOCK_CONFIG="):
        read_file(path, "project")
    assert read_file(path, "PENSTOCK_CONFIG").profiles


def test_the_users_file_in_its_own_directory_stays_the_users(home, monkeypatch):
    user = put(home / ".config/penstock/penstock.toml")
    monkeypatch.chdir(Path(user).parent)
    assert [kind for kind, _ in config_files(os.environ)] == ["user"]
    outer = put(home / "penstock.toml")
    assert [(kind, each.path) for kind, each in config_files(os.environ)] == [("project", outer), ("user", user)]


def test_a_table_stands_where_it_was_written(home):
    path = put(home / "penstock.toml", "\n[profiles.x]\nurl = 's3://bucket/'\n")
    found = read_file(path, "project")
    assert found.table("x").origin == f"{path}:2: profiles.x"
    assert found.table("x").values["url"].origin == f"{path}:3: profiles.x.url"
    assert found.table("x").values["url"].foreign
    Path(path).chmod(0o640)
    assert not read_file(path, "project").table("x").open_to_all
    Path(path).chmod(0o644)
    assert read_file(path, "project").table("x").open_to_all


@pytest.mark.usefixtures("homeless")
def test_without_a_home_directory_no_file_is_the_users(tmp_path, monkeypatch):
    put(tmp_path / "~/.config/penstock/penstock.toml")
    monkeypatch.chdir(tmp_path)
    assert [kind for kind, _ in candidates({})] == ["system"]


@pytest.mark.parametrize(
    "text",
    [
        "[profiles." + "a." * 50_000 + "a]\n",
        "a." * 50_000 + "a = 1\n",
        "profiles = " + "[" * 50_000,
        "profiles = {a = " * 50_000,
        "profiles = " + "9" * 5000,
        "# " + "x" * (2 << 20),
    ],
    ids=["table", "key", "arrays", "tables", "digits", "length"],
)
def test_hostile_toml_is_refused_in_no_time(tmp_path, text):
    path = tmp_path / "penstock.toml"
    path.write_text(text)
    began = time.thread_time()
    with pytest.raises(ConfigError, match=r"penstock\.toml (is not|cannot be read as TOML)"):
        read_file(str(path), "user")
    assert time.thread_time() - began < 2
