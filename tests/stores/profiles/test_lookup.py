"""A profile is held as long as its files and variables are the same, and no longer (see test_profiles for the rest)."""

import time

import pytest

from penstock.errors import ConfigError
from penstock.observe.environment import _KINDS
from penstock.options.typed import Value
from penstock.stores.profiles import lookup
from penstock.stores.profiles.lookup import WORDS, bad_name, load, named_sinks


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


def named(raw, **variables):
    return named_sinks({"observe": Value(raw, "file:3: profiles.x.observe", "/etc/p")}, variables.get).words


def test_words_of_sinks_are_those_of_the_variable():
    assert WORDS == _KINDS


def test_sinks_are_named_in_a_text_or_a_list_with_paths_relative_to_the_file():
    assert named("log, jsonl:events-{rank}.jsonl") == ("log", "jsonl:/etc/p/events-{rank}.jsonl")
    assert named(["chrome:/tmp/t.json", "prometheus:9000"]) == ("chrome:/tmp/t.json", "prometheus:9000")
    assert named(["otel:http://${HOST}:4318"], HOST="h") == ("otel:http://h:4318",)
    assert named_sinks({"observe": Value(",", "file:3")}, {}.get) is named_sinks({}, {}.get) is None


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("json:x", "file:3: profiles.x.observe: 'json' does not name a sink: did you mean 'jsonl'"),
        (["nothing"], "sinks are jsonl, chrome, log, otel, prometheus"),
        ([1], "must be a list of str"),
        ("log,${NOT_SET}", "NOT_SET is not set"),
    ],
)
def test_wrong_word_of_a_sink_is_an_error_with_its_place(raw, text):
    with pytest.raises(ConfigError) as caught:
        named(raw)
    assert text in str(caught.value)


def test_headers_of_a_collector_do_not_show():
    found = named_sinks({"telemetry.metrics.headers.k": Value("${S}", "o")}, {"S": "secret"}.get)
    assert found.telemetry == (("metrics.headers.k", "secret"),)
    assert "secret" not in repr(found)
