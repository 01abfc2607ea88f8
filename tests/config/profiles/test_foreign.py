"""A checkout's ``penstock.toml`` cannot have anything of the user's sent to a host that it names."""

import pytest

import penstock as ps
from penstock.config.profiles.foreign import check_hosts, check_places
from penstock.config.profiles.table import Value
from penstock.errors import ConfigError
from penstock.providers.profiles.lookup import load


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Write a project's file, and perhaps the user's own; returns what loads a profile of it."""
    (tmp_path / "checkout").mkdir()
    monkeypatch.chdir(tmp_path / "checkout")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    (tmp_path / "checkout/secret").write_text("s")
    monkeypatch.setenv("SECRET", "a-secret-of-the-users")

    def write(text, own=""):
        (tmp_path / "checkout/penstock.toml").write_text(text)
        if own:
            (tmp_path / "home/penstock").mkdir(parents=True)
            (tmp_path / "home/penstock/penstock.toml").write_text(own)
            (tmp_path / "home/penstock/penstock.toml").chmod(0o600)
        return tmp_path / "checkout/penstock.toml"

    return write


EVIL = 'options.endpoint = "https://evil.example"\n'
HERE = 'options.endpoint = "http://127.0.0.1:9000"\n'
REFUSED = [
    ('url = "s3://bucket/"\noptions.endpoint = "https://${SECRET}.evil.example"\n', "options.endpoint"),
    ('url = "s3://bucket/${SECRET}/"\n', "url"),
    ('url = "https://evil.example/${SECRET:-x}/"\n', "url"),
    ('url = "s3://bucket/"\ntransport.proxy = "http://${SECRET}@evil.example"\n', "proxy"),
    ('url = "s3://bucket/"\ntransport.user_agent_extra = "${SECRET}"\n', "user_agent_extra"),
    (f'url = "s3://bucket/"\n{EVIL}options.access_key = "${{SECRET}}"\noptions.secret_key = "s"\n', "access_key"),
    (f'url = "s3://bucket/"\n{EVIL}options.region = "${{SECRET}}"\n', "region"),
    (
        f'url = "gs://bucket/"\n{EVIL}options.secret_key = {{ file = "secret" }}\noptions.access_key = "k"\n',
        "secret_key",
    ),
    ('url = "https://evil.example/"\noptions.token = "${SECRET}"\n', "token"),
    (f'url = "gs://bucket/"\n{EVIL}', "tokens would be sent"),
    (f'url = "az://bucket/"\n{EVIL}options.account = "account"\n', "tokens would be sent"),
    ('url = "ais://bucket/"\noptions.endpoint = "https://evil.example"\n', "tokens would be sent"),
    ('url = "s3://bucket/"\ntransport.proxy = "http://evil.example"\noptions.region = "${SECRET}"\n', "region"),
]
REFUSED += [
    ('url = "s3://bucket/"\noptions.endpoint = "${X:-https://evil.example}"\noptions.region = "${SECRET}"\n', "region"),
    ('url = "${SECRET}${SECRET}"\n', "url"),
    ('url = "${SECRET}.evil.example/"\n', "url"),
]
ALLOWED = [
    'url = "${SECRET}/train/"\n',
    'url = "memory://${SECRET}/"\n',
    'url = "s3://bucket/"\noptions.endpoint = "${X:-http://localhost:9000}"\noptions.region = "${SECRET}"\n',
    'url = "s3://bucket/"\noptions.access_key = "${SECRET}"\noptions.secret_key = "${SECRET}"\n',
    'url = "s3://bucket/"\noptions.region = "${REGION:-us-east-1}"\n',
    f'url = "s3://bucket/"\n{EVIL}',
    f'url = "s3://bucket/"\n{EVIL}options.access_key = "the-projects"\noptions.secret_key = "own"\n',
    f'url = "gs://bucket/"\n{EVIL}options.anonymous = true\n',
    f'url = "s3://bucket/"\n{HERE}options.access_key = "${{SECRET}}"\noptions.secret_key = "${{SECRET}}"\n',
    'url = "gs://bucket/"\noptions.endpoint = "http://localhost:9000"\noptions.token = "${SECRET}"\n',
    'url = "https://evil.example/"\n',
]


@pytest.mark.parametrize(("text", "word"), REFUSED, ids=[str(number) for number in range(len(REFUSED))])
def test_what_is_the_users_is_not_sent_where_a_project_says(project, monkeypatch, text, word):
    path = project(f"[profiles.p]\n{text}")
    with pytest.raises(ConfigError) as refused:
        load("p")
    assert word in str(refused.value)
    assert "PENSTOCK_CONFIG" in str(refused.value)
    assert "a-secret-of-the-users" not in str(refused.value)
    monkeypatch.setenv("PENSTOCK_CONFIG", str(path))
    assert load("p").provider, "the user has named the file"


@pytest.mark.parametrize("text", ALLOWED, ids=[str(number) for number in range(len(ALLOWED))])
def test_what_leaves_nothing_with_others_is_allowed(project, text):
    project(f"[profiles.p]\n{text}")
    assert load("p").provider


def test_a_project_does_not_send_the_users_own_profile_elsewhere(project):
    project(
        f'[profiles.p]\nextends = "mine"\n{EVIL}',
        '[profiles.mine]\nurl = "s3://bucket/"\noptions = {access_key = "k", secret_key = "s"}\n',
    )
    with pytest.raises(ConfigError, match="access_key"):
        ps.open("penstock://p/a")
    assert load("mine").options.access_key == "k"


@pytest.mark.parametrize("path", ["kept", "/near/kept", "~/.cache", "${SECRET}/x", "${NONE:-kept}", {"file": "secret"}])
def test_a_projects_file_names_no_directory_of_a_cache(path):
    with pytest.raises(ConfigError, match="f:1: a project's file names no directory of a cache"):
        check_places({"cache.path": Value(path, "f:1", foreign=True)})
    check_places({"cache.path": Value(path, "f:1")})


def test_a_projects_file_may_want_a_cache_where_the_user_says(project, monkeypatch, tmp_path):
    project("[profiles.x]\nurl='s3://bucket'\ncache = { path = '${NEAR}', size_bytes = '3 GiB' }\n")
    monkeypatch.setenv("NEAR", str(tmp_path / "near"))
    assert load("x").options.cache == ps.CacheOptions(path=str(tmp_path / "near"), size_bytes=3 << 30)


def test_values_of_the_users_own_files_are_not_looked_at():
    own = {"url": Value("s3://b/${X}", "f"), "options.endpoint": Value("https://${X}", "f")}
    check_places(own)
    check_hosts({**own, "options.token": Value("${X}", "f")}, ["token"], url=True, tokens=True)
    with pytest.raises(ConfigError):
        check_places({"url": Value("s3://b/${X}", "f", foreign=True)})
    check_places({"url": Value("s3://b/$${X}", "f", foreign=True)})
