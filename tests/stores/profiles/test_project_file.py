"""A checkout's ``penstock.toml`` cannot have anything of the user's sent to a host that it names."""

import os
from dataclasses import fields

import pytest

import penstock as ps
from penstock import options
from penstock.errors import ConfigError
from penstock.options.parts import PART_KINDS
from penstock.options.typed import Value
from penstock.stores.profiles.lookup import load
from penstock.stores.profiles.project_file import MAY, check_options, check_tables
from tests.options.kinds import KINDS


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
S3, KEYS = 'url = "s3://bucket/"\n', 'options.access_key = "k"\noptions.secret_key = "s"\n'
REFUSED = [
    (f'{S3}options.endpoint = "https://${{SECRET}}.evil.example"\n', "options.endpoint"),
    ('url = "s3://bucket/${SECRET}/"\n', "url"),
    ('url = "https://evil.example/${SECRET:-x}/"\n', "url"),
    (f'{S3}transport.proxy = "http://${{SECRET}}@evil.example"\n', "proxy"),
    (f'{S3}transport.user_agent_extra = "${{SECRET}}"\n', "user_agent_extra"),
    (f'{S3}write.content_type = "${{SECRET}}"\n', "content_type"),
    (f'{S3}{EVIL}options.access_key = "${{SECRET}}"\noptions.secret_key = "s"\n', "access_key"),
    (f'{S3}{EVIL}options.region = "${{SECRET}}"\n', "region"),
    (f'{S3}options.region = {{ file = "secret" }}\n', "region"),
    (f'{S3}options.account = [{{ file = "secret" }}]\n', "account"),
    (
        f'url = "gs://bucket/"\n{EVIL}options.secret_key = {{ file = "secret" }}\noptions.access_key = "k"\n',
        "secret_key",
    ),
    ('url = "https://evil.example/"\noptions.token = "${SECRET}"\n', "token"),
    (f'url = "gs://bucket/"\n{EVIL}', "receive your credentials"),
    (f'url = "az://bucket/"\n{EVIL}options.account = "account"\n', "receive your credentials"),
    ('url = "ais://bucket/"\noptions.endpoint = "https://evil.example"\n', "receive your credentials"),
    # AWS's session token and key id are sent as they are, beside a signature.
    (f"{S3}{EVIL}", "receive your credentials"),
    (f'provider = "s3"\n{EVIL}', "receive your credentials"),
    (f'url = "oss://bucket/"\noptions.region = "cn-beijing"\n{EVIL}', "receive your credentials"),
    (f'{S3}options.cluster = ["evil.example"]\n', "receive your credentials"),
    (f'{S3}options.endpoint = "${{X:-https://evil.example}}"\n', "receive your credentials"),
    ('url = "fsspec+sftp://evil.example/"\n', "receive your credentials"),
    (f'{S3}transport.proxy = "http://evil.example"\n', "proxy"),
    (f"{S3}transport.verify = false\n", "verify"),
    (f'{S3}transport.ca_file = "evil.pem"\n', "ca_file"),
    (f"{S3}{HERE}{KEYS}", "access_key"),
    (f'{S3}options.access_key = "${{SECRET}}"\noptions.secret_key = "${{SECRET}}"\n', "access_key"),
    (f"{S3}options.credentials_process = ['x']\n", "credentials_process"),
    (f'{S3}options.profile = "production"\n', "profile"),
    (f"{S3}options.requester_pays = true\n", "requester_pays"),
    (f"{S3}options.anonymous = false\n", "anonymous"),
    ('url = "gs://bucket/"\noptions.credentials_file = "identity.json"\n', "credentials_file"),
    ('url = "gs://bucket/"\noptions.credentials_json = \'{"type": "external_account"}\'\n', "credentials_json"),
    ('url = "gs://bucket/"\noptions.service_account = "them@evil.example"\n', "service_account"),
    ('url = "az://box/"\noptions.connection_string = "BlobEndpoint=https://evil.example"\n', "connection_string"),
    ('url = "az://box/"\noptions.account = "acct"\noptions.checksums = false\n', "checksums"),
    ('url = "https://evil.example/"\noptions.netrc = true\n', "netrc"),
    ('url = "fsspec+file:///"\noptions.storage_options = { skip_instance_cache = "x" }\n', "storage_options"),
    (f'{S3}observe = "jsonl:events"\n', "observe"),
    (f'{S3}options.endpoint = "${{X:-https://evil.example}}"\noptions.region = "${{SECRET}}"\n', "region"),
    ('url = "${SECRET}${SECRET}"\n', "url"),
    ('url = "${SECRET}.evil.example/"\n', "url"),
]
ALLOWED = [
    'url = "${SECRET}/train/"\n',
    'url = "memory://${SECRET}/"\n',
    f'{S3}options.endpoint = "${{X:-http://localhost:9000}}"\noptions.region = "${{SECRET}}"\n',
    f'{S3}options.region = "${{REGION:-us-east-1}}"\n',
    f"{S3}{EVIL}options.anonymous = true\n",
    f'url = "gs://bucket/"\n{EVIL}options.anonymous = true\n',
    f'url = "gs://bucket/"\n{HERE}',
    f'{S3}{HERE}provider = "s3"\n',
    'url = "https://evil.example/"\n',
    'url = "r2://bucket/"\noptions.account = "0123456789abcdef"\n',
    f'{S3}transport.user_agent_extra = "project/1"\nretry.attempts = 3\nread.hedge = false\n',
]


@pytest.mark.parametrize(("text", "word"), REFUSED, ids=[str(number) for number in range(len(REFUSED))])
def test_unsafe_setting_in_project_file_is_refused_with_remedy(project, monkeypatch, text, word):
    path = project(f"[profiles.p]\n{text}")
    with pytest.raises(ConfigError) as refused:
        load("p")
    assert word in str(refused.value)
    assert "~/.config/penstock/penstock.toml" in str(refused.value)
    assert "environment" in str(refused.value)
    assert f"{path}:" in str(refused.value)
    assert "PENSTOCK_CONFIG" in str(refused.value)
    assert "a-secret-of-the-users" not in str(refused.value)
    monkeypatch.setenv("PENSTOCK_CONFIG", str(path))
    assert refused_as_a_project(load) == "", "the user has named the file"


def refused_as_a_project(load):
    try:
        load("p")
    except ConfigError as error:
        return str(error) if "a project's file" in str(error) else ""
    return ""


@pytest.mark.parametrize("text", ALLOWED, ids=[str(number) for number in range(len(ALLOWED))])
def test_safe_setting_in_project_file_is_allowed(project, text):
    project(f"[profiles.p]\n{text}")
    assert load("p").store


# Fields that a project's file must not set. A field in neither table is refused, and fails the test below until
# somebody has decided in which of them it belongs.
MUST_NOT = {
    "transport": {"ca_file", "verify", "proxy"},
    **{key: set() for key in ("retry", "write", "cache", "node")},
    "read": {"unknown_bytes"},  # it bounds the memory that a hostile server can take
    "S3Options": {
        *("access_key", "secret_key", "session_token", "profile", "credentials", "credentials_process"),
        "requester_pays",
    },
    "OSSOptions": {
        *("access_key", "secret_key", "session_token", "credentials_file", "ecs_role", "credentials"),
        *("credentials_process", "requester_pays"),
    },
    "GCSOptions": {
        *("user_project", "credentials_file", "credentials_json", "credentials", "credentials_process"),
        *("service_account", "token", "access_key", "secret_key"),
    },
    "AzureOptions": {"account_key", "sas_token", "connection_string", "token", "credential"},
    "HFOptions": {"token"},
    "HTTPOptions": {"token", "username", "password", "netrc", "headers"},
    "FsspecOptions": {"storage_options"},
    "ObspecOptions": {"store"},
}
STORES = {
    kind.__name__: kind for kind in KINDS if issubclass(kind, options.StoreOptions) and kind is not options.StoreOptions
}


def test_every_field_of_every_class_of_options_is_decided_on():
    assert {*PART_KINDS.values(), *STORES.values(), options.StoreOptions} == {*KINDS}
    assert {each.name for each in fields(options.StoreOptions)} == {*PART_KINDS}
    for name, kind in {**PART_KINDS, **STORES}.items():
        names = {each.name for each in fields(kind)} - ({*PART_KINDS} if name in STORES else set())
        assert not {*MAY[name]} & MUST_NOT[name]
        assert {*MAY[name], *MUST_NOT[name]} == names, f"decide in MAY or MUST_NOT: {name}"


URLS = {
    "S3Options": "s3://bucket/",
    "OSSOptions": "oss://bucket/",
    "GCSOptions": "gs://bucket/",
    "AzureOptions": "az://container/",
    "HFOptions": "hf://datasets/org/name/",
    "HTTPOptions": "https://host.example/",
    "FsspecOptions": "fsspec+memory://x/",
    "ObspecOptions": "obspec://x/",
}


@pytest.mark.parametrize(
    ("url", "table", "field"),
    [(URLS[name], "options", field) for name in STORES for field in sorted(MUST_NOT[name])]
    + [("s3://bucket/", part, field) for part in PART_KINDS for field in sorted(MUST_NOT[part])],
)
@pytest.mark.parametrize("value", ['"x"', "1", "true", "false", '["x"]', '{ file = "secret" }', '"${SECRET}"', "{}"])
def test_a_field_that_is_not_allowed_is_refused_with_any_value(project, url, table, field, value):
    project(f'[profiles.p]\nurl = "{url}"\n{table}.{field} = {value}\n')
    with pytest.raises(
        ConfigError, match=rf"penstock.toml:3: .*{field}.*a project's file must not set {table}.{field}"
    ):
        load("p")


def test_a_field_of_another_distributions_options_is_refused():
    class Ours(ps.S3Options):
        ours: str = ""

    field = fields(ps.S3Options)[0]
    Ours.__dataclass_fields__ = {**ps.S3Options.__dataclass_fields__, "ours": field}
    check_options({"options.region": Value("eu", "f", foreign=True)}, Ours, "s3", "")
    with pytest.raises(ConfigError, match=r"must not set options\.ours"):
        check_options({"options.ours": Value("x", "f", foreign=True)}, Ours, "s3", "")


MINE = [
    f'url = "s3://bucket/"\n{KEYS}',
    'provider = "s3"\noptions.profile = "production"\n',
    'provider = "minio"\noptions.credentials_process = "helper"\n',
    f'{HERE}{S3}options.credentials_process = "helper"\n',
]
ELSEWHERE = [
    EVIL,
    f"{EVIL}options.anonymous = true\n",
    HERE,
    'options.endpoint = "${SECRET}"\n',
    'options.provider = "wasabi"\n',
    'options.account = "theirs"\n',
    'options.cluster = ["10.0.0.0/16"]\n',
    'provider = "b2"\n',
]


@pytest.mark.parametrize("own", MINE)
@pytest.mark.parametrize("text", ELSEWHERE)
def test_credentials_of_the_users_profile_go_to_no_other_server(project, own, text):
    project(f'[profiles.p]\nextends = "mine"\n{text}', f"[profiles.mine]\n{own}")
    with pytest.raises(ConfigError) as refused:
        load("p")
    assert "a project's file must not choose the server for the credentials of your own profile" in str(refused.value)


def test_credentials_of_the_users_profile_go_to_no_other_store(project):
    project('[profiles.p]\nextends = "mine"\nurl = "gs://bucket/"\n', f"[profiles.mine]\n{MINE[0]}")
    with pytest.raises(ConfigError, match="must not choose the server for the credentials"):
        load("p")


def test_a_project_names_another_path_of_the_users_own_profile(project):
    project('[profiles.p]\nextends = "mine"\nurl = "s3://bucket/inner/"\n', f"[profiles.mine]\n{MINE[0]}")
    assert load("p").options.access_key == "k"
    assert load("p").target.url == "s3://bucket/inner/"


def test_a_project_does_not_send_the_users_own_profile_elsewhere(project):
    project(
        f'[profiles.p]\nextends = "mine"\n{EVIL}',
        '[profiles.mine]\nurl = "s3://bucket/"\noptions = {access_key = "k", secret_key = "s"}\n',
    )
    with pytest.raises(ConfigError, match="access_key"):
        ps.open("penstock://p/a")
    assert load("mine").options.access_key == "k"


def test_a_project_does_not_weaken_tls_for_the_users_own_profile(project):
    project(
        '[profiles.p]\nextends = "mine"\ntransport.verify = false\n',
        '[profiles.mine]\nurl = "https://mine.example/"\noptions.token = "t"\n',
    )
    with pytest.raises(ConfigError, match=r"must not set transport\.verify"):
        load("p")


def test_the_users_profile_extends_none_of_a_project(project):
    """A project that has a profile of the same name would say where the user's own credentials go."""
    project(
        f'[profiles.cluster]\nprovider = "s3"\n{EVIL}options.anonymous = true\n[profiles.p]\nextends = "mine"\n',
        f'[profiles.cluster]\nprovider = "s3"\n{HERE}[profiles.mine]\n{S3}extends = "cluster"\n{KEYS}',
    )
    assert load("mine").options.endpoint == load("p").options.endpoint == "http://127.0.0.1:9000"
    assert load("cluster").options.endpoint == "https://evil.example"


def test_the_users_profile_names_none_that_a_project_has(project):
    project(f"[profiles.base]\n{S3}", '[profiles.mine]\nextends = "base"\n')
    with pytest.raises(ConfigError, match=r"extends: no profile 'base'; profiles are mine"):
        load("mine")


def test_a_file_of_google_is_not_read_for_a_project(project, tmp_path):
    """An ``external_account`` would post the file that it names to the URL that it names."""
    (tmp_path / "checkout/identity.json").write_text('{"type": "external_account"}')
    project('[profiles.p]\nurl = "gs://bucket/"\noptions.credentials_file = "identity.json"\n')
    with pytest.raises(ConfigError, match=r"penstock.toml:3: .*must not set options.credentials_file"):
        ps.open("penstock://p/a")


def test_a_project_s_file_runs_no_program(project, monkeypatch):
    path = project("[profiles.x]\nprovider = 's3'\noptions.credentials_process = ['x']\n")
    with pytest.raises(ConfigError, match=r"penstock.toml:3: .*credentials_process; write .*~/.config/penstock"):
        load("x")
    monkeypatch.setenv("PENSTOCK_CONFIG", str(path))
    assert load("x", os.environ).options.credentials_process == ("x",)


@pytest.mark.parametrize("path", ["kept", "/near/kept", "~/.cache", "${SECRET}/x", "${NONE:-kept}", {"file": "secret"}])
def test_a_projects_file_names_no_directory_of_a_cache(path):
    with pytest.raises(ConfigError, match="f:1: a project's file must not name the directory of a cache"):
        check_tables({"cache.path": Value(path, "f:1", foreign=True)})
    check_tables({"cache.path": Value(path, "f:1")})


def test_project_file_may_enable_cache_at_path_from_user_variable(project, monkeypatch, tmp_path):
    project("[profiles.x]\nurl='s3://bucket'\ncache = { path = '${NEAR}', size_bytes = '3 GiB' }\n")
    monkeypatch.setenv("NEAR", str(tmp_path / "near"))
    assert load("x").options.cache == ps.CacheOptions(path=str(tmp_path / "near"), size_bytes=3 << 30)


def test_values_of_the_users_own_files_are_not_looked_at():
    own = {"url": Value("s3://b/${X}", "f"), "options.endpoint": Value("https://${X}", "f")}
    check_tables({**own, "observe": Value("jsonl", "f"), "transport.proxy": Value("http://p", "f")})
    check_options({**own, "options.token": Value("${X}", "f")}, ps.GCSOptions, "gs", "gs")
    with pytest.raises(ConfigError):
        check_tables({"url": Value("s3://b/${X}", "f", foreign=True)})
    check_tables({"url": Value("s3://b/$${X}", "f", foreign=True)})


def test_misspelled_key_in_project_file_suggests_the_correct_key(project):
    project(f"[profiles.p]\n{S3}transport.conections = 3\n")
    with pytest.raises(ConfigError, match="did you mean 'connections'"):
        load("p")
    project(f"[profiles.p]\n{S3}options.regoin = 'x'\n")
    with pytest.raises(ConfigError, match="did you mean 'region'"):
        load("p")
