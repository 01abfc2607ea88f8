"""Each setting is shown with the place it comes from, secrets as set or unset; what is wrong with a file is listed."""

from dataclasses import fields
from operator import attrgetter

import pytest

import penstock as ps
from penstock.errors import ConfigError, InvalidURL
from penstock.stores.profiles.effective import check_files, place_of, profiles, settings
from penstock.stores.profiles.multistorage import translate_profile

TEXT = """\
[profiles.server]
provider = "s3"
options = { access_key = "AKIAhush", secret_key = "hushhush", endpoint = "http://127.0.0.1:9" }
[profiles.data]
extends = "server"
url = "s3://bucket/base"
retry.attempts = "${TRIES:-7}"
transport.proxy = "http://me:hushhush@proxy"
"""


@pytest.fixture
def toml(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "penstock.toml"
    path.write_text(TEXT)
    path.chmod(0o600)
    monkeypatch.setenv("PENSTOCK_CONFIG", str(path))  # a project's own file names no secret
    return path


def test_each_setting_names_its_place(toml):
    environ = {"AWS_REGION": "eu-west-9", "AWS_ENDPOINT_URL": "http://127.0.0.1:1", "PENSTOCK_CONFIG": str(toml)}
    found = {name: (value, origin) for name, value, origin in settings("data", environ)}
    wanted = {
        "provider": ("S3", f"{toml}:2: profiles.server.provider"),
        "url": ("s3://bucket/base/", f"{toml}:6: profiles.data.url"),
        "options.endpoint": ("http://127.0.0.1:9", f"{toml}:3: profiles.server.options.endpoint"),
        "options.secret_key": ("set", f"{toml}:3: profiles.server.options.secret_key"),
        "options.session_token": ("unset", "default"),
        "options.region": ("eu-west-9", "AWS_REGION"),
        "options.anonymous": ("false", "default"),
        "retry.attempts": ("7", f"{toml}:7: profiles.data.retry.attempts"),
        "retry.cap_s": ("10.0", "default"),
        "transport.proxy": ("set", f"{toml}:8: profiles.data.transport.proxy"),
    }
    assert {name: found[name] for name in wanted} == wanted
    assert found == {name: (value, origin) for name, value, origin in settings("penstock://data/x/y", environ)}
    assert "hush" not in str(found)


def test_every_option_is_there_and_every_variable_that_decides(monkeypatch, toml):
    for name, value in {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1", "AWS_DEFAULT_REGION": "us-gov"}.items():
        monkeypatch.setenv(name, value)
    found = {each.name: each for each in settings("s3://bucket/x")}
    assert (found["options.endpoint"].value, found["options.endpoint"].origin) == (
        "http://127.0.0.1:1",
        "AWS_ENDPOINT_URL_S3",
    )
    assert (found["options.region"].value, found["options.region"].origin) == ("us-gov", "AWS_DEFAULT_REGION")
    own = {f"options.{name}" for name in map(attrgetter("name"), fields(ps.S3Options))}
    parts = {f"options.{part}" for part in ("transport", "retry", "read", "write", "cache", "node")}
    assert own - parts <= set(found)
    assert found["url"].value == "s3://bucket/x"
    assert {each.name: each.origin for each in settings("server")}["provider"] == f"{toml}:2: profiles.server.provider"


def test_cache_settings_are_shown_with_their_source(toml, tmp_path, monkeypatch):
    def cache(place):
        return {each.name: each[1:] for each in settings(place) if each.name.startswith("cache")}

    assert cache("s3://bucket/x") == {"cache": ("unset", "default")}
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "near"))
    monkeypatch.setenv("PENSTOCK_CACHE_SIZE", "1 GiB")
    shown = cache("s3://bucket/x")
    assert shown["cache.path"] == (str(tmp_path / "near"), "PENSTOCK_CACHE")
    assert shown["cache.size_bytes"] == (str(1 << 30), "PENSTOCK_CACHE_SIZE")
    assert shown["cache.mode"] == ("immutable", "default")
    with toml.open("a") as file:
        file.write("\n[profiles.kept]\nurl = 's3://bucket'\ncache.path = 'own'\ncache.mode = 'ttl'\n")
    where = f"{toml}:{len(toml.read_text().splitlines())}: profiles.kept.cache"
    shown = cache("kept")
    assert shown["cache.mode"] == ("ttl", f"{where}.mode")
    assert shown["cache.path"][0] == str(toml.parent / "own")


@pytest.mark.usefixtures("toml")
def test_settings_of_unknown_profile_or_invalid_url_raise_with_reason():
    with pytest.raises(ConfigError, match="no profile 'dta': did you mean 'data'"):
        settings("dta")
    with pytest.raises(InvalidURL):
        settings("s3:///x")


def test_profiles_are_listed_the_first_of_a_name_alone(toml, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("PENSTOCK_CONFIG")
    (tmp_path / "xdg/penstock").mkdir(parents=True)
    user = tmp_path / "xdg/penstock/penstock.toml"
    user.write_text("[profiles.data]\nurl = 'memory://hidden'\n[profiles.mine]\nurl = 'memory://${X}'\n")
    assert profiles() == [
        ("server", "", f"{toml}:1: profiles.server"),
        ("data", "s3://bucket/base", f"{toml}:4: profiles.data"),
        ("mine", "memory://${X}", f"{user}:3: profiles.mine"),
    ]


def test_profile_errors_are_reported_and_unset_variables_become_notes(toml):
    assert check_files() == check_files(str(toml)) == (2, [])
    toml.write_text(
        TEXT
        + "[profiles.a]\nextends = 'server'\noptions.regoin = '${NOT_SET}'\n"
        + "[profiles.b]\nurl = 'memory://${NOT_SET}'\n[profiles.c]\nextends = 'd'\n"
    )
    count, problems = check_files()
    assert count == 5
    assert [(each.profile, each.note) for each in problems] == [("a", False), ("b", True), ("c", False)]
    assert "did you mean 'region'" in problems[0].text
    assert "NOT_SET is not set" in problems[1].text
    toml.write_text("profiles = 3")
    with pytest.raises(ConfigError, match="must be a table"):
        check_files(str(toml))


def test_project_file_is_checked_as_such_by_its_name_too(toml, tmp_path, monkeypatch):
    monkeypatch.delenv("PENSTOCK_CONFIG")
    monkeypatch.chdir(tmp_path)
    toml.write_text("[profiles.data]\nurl = 's3://bucket/'\nobserve = 'log'\n")
    for name in (None, "penstock.toml", str(toml)):
        [problem] = check_files(name)[1]
        assert "a project's file must not open sinks" in problem.text
    monkeypatch.setenv("PENSTOCK_CONFIG", str(toml))
    assert check_files("penstock.toml") == (1, [])


def test_endpoint_that_cannot_work_is_found_with_its_line(toml):
    toml.write_text("[profiles.data]\nprovider = 's3'\noptions.endpoint = 'minio.local:9000'\n")
    [problem] = check_files()[1]
    assert not problem.note
    assert f"{toml}:3: profiles.data.options.endpoint must start with http:// or https://" in problem.text
    toml.write_text("[profiles.data]\nprovider = 'oss'\noptions.endpoint = 'oss-cn-beijing.aliyuncs.com'\n")
    assert check_files() == (1, [])


def test_a_file_of_multi_storage_client_is_checked_and_shown(tmp_path, monkeypatch):
    path = tmp_path / "msc.yaml"
    path.write_text(
        "profiles:\n"
        "  good: {storage_provider: {type: s3, options: {base_path: bucket, region_name: r, io_size: 3}}}\n"
        "  unset: {storage_provider: {type: s3, options: {base_path: $NOT_SET}}}\n"
        "  wrong: {storage_provider: {type: s4, options: {base_path: b}}}\n"
        "  wide: {storage_provider: {type: s3, options: {base_path: ''}}}\n"
    )
    count, problems = check_files(str(path))
    assert count == 4
    assert [(each.profile, each.note) for each in problems] == [("good", True), ("unset", True), ("wrong", False)]
    assert "storage_provider.options.io_size is not used" in problems[0].text
    monkeypatch.setenv("MSC_CONFIG", str(path))
    found = {each.name: each for each in settings("msc://good/x")}
    assert found["options.region"].origin == f"{path}: profiles.good.storage_provider.options.region_name"
    assert {each.name: each.value for each in settings("msc://wide/other-bucket/x")}["url"] == "s3://other-bucket/"


def test_a_profile_of_no_file_has_its_place_and_options():
    content = {"storage_provider": {"type": "s3", "options": {"base_path": "bkt/a", "region_name": "$WHERE"}}}
    table = translate_profile("x", content, "a dictionary", {})
    base, options = place_of(table, {"WHERE": "eu-west-1"})
    assert (base, options.region) == ("s3://bkt/a/", "eu-west-1")
    del content["storage_provider"]["options"]["base_path"]
    assert place_of(translate_profile("x", content, "a dictionary", {}), {"WHERE": "r"})[0] == "s3://"
