"""The shared AWS files are read as AWS documents them, and what they hold is never quoted."""

from __future__ import annotations

import os
import textwrap

import pytest

from penstock.errors import ConfigError
from penstock.stores.s3.aws_files import Profile, files, profile
from penstock.stores.s3.options import S3Options
from penstock.stores.s3.settings import resolve


@pytest.fixture
def write(tmp_path):
    """Write both files; returns the environment that points to them."""

    def _write(config="", credentials=""):
        (tmp_path / "config").write_text(textwrap.dedent(config), encoding="utf-8")
        (tmp_path / "credentials").write_text(textwrap.dedent(credentials), encoding="utf-8")
        return {
            "AWS_CONFIG_FILE": str(tmp_path / "config"),
            "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        }

    return _write


def test_missing_aws_files_yield_an_empty_default_profile(tmp_path):
    nowhere = {"AWS_CONFIG_FILE": str(tmp_path / "a"), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "b/c")}
    assert profile(None, nowhere) == Profile()


def test_aws_files_default_to_home_directory_unless_environment_overrides(monkeypatch):
    monkeypatch.setenv("HOME", "/home/u")
    assert list(map(str, files({}))) == ["/home/u/.aws/config", "/home/u/.aws/credentials"]
    assert [str(path) for path in files({"AWS_CONFIG_FILE": "~/c", "AWS_SHARED_CREDENTIALS_FILE": ""})] == [
        "/home/u/c",
        "/home/u/.aws/credentials",
    ]


def test_a_profile_is_read_whole(write):
    environ = write(
        """
        [default]
        region = eu-north-1
        [profile "my lab"]
        region = us-west-2
        endpoint_url = https://all.example
        ignore_configured_endpoint_urls = True
        ca_bundle = /etc/lab.pem
        services = lab
        s3 =
          # comments may stand here
          max_concurrent_requests = 20
          addressing_style = virtual
        [services lab]
        sts =
          endpoint_url = https://sts.example
        s3 =
          endpoint_url = https://s3.example
        """,
        """
        [my lab]
        aws_access_key_id = id
        aws_secret_access_key = se%cret
        aws_session_token = token==
        """,
    )
    assert profile("my lab", environ) == Profile(
        name="my lab",
        region="us-west-2",
        endpoint="https://s3.example",
        ignore_endpoints=True,
        ca_bundle="/etc/lab.pem",
        addressing="virtual",
        access_key="id",
        secret_key="se%cret",
        token="token==",
    )
    assert profile(None, environ) == Profile(region="eu-north-1")


def test_a_profile_s_own_endpoint_serves_where_no_service_has_one(write):
    environ = write("[default]\nendpoint_url = https://all.example\nservices = x\n[services x]\nsts =\n  a = b\n")
    assert profile(None, environ).endpoint == "https://all.example"


def test_both_spellings_of_the_default_profile_are_one_and_the_longer_wins(write):
    assert profile(None, write("[profile default]\nregion = long\n[default]\nregion = short\n")).region == "long"
    assert profile(None, write("[default]\nregion = short\n[profile default]\nregion = long\n")).region == "long"
    assert profile(None, write("[default]\nregion = short\n")).region == "short"


def test_keys_are_never_mixed_from_two_files(write):
    environ = write(
        "[default]\naws_access_key_id = old\naws_secret_access_key = old\naws_session_token = old\n",
        "[default]\naws_access_key_id = new\naws_secret_access_key = new\n",
    )
    found = profile(None, environ)
    assert (found.access_key, found.secret_key, found.token) == ("new", "new", None)
    only_config = profile(None, write("[default]\naws_access_key_id = old\naws_secret_access_key = old\n"))
    assert only_config.access_key == "old"


def test_the_credentials_file_wins_where_both_say_something(write):
    assert (
        profile(None, write("[default]\nregion = config\n", "[default]\nregion = credentials\n")).region
        == "credentials"
    )


def test_an_explicit_name_beats_the_environment_s(write):
    environ = write("[profile a]\nregion = a\n[profile b]\nregion = b\n[profile c]\nregion = c\n")
    named = environ | {"AWS_PROFILE": "b", "AWS_DEFAULT_PROFILE": "c"}
    assert profile("a", named).region == "a"
    assert profile(None, named).region == "b"
    assert profile(None, named | {"AWS_PROFILE": ""}).region == "c"


@pytest.mark.parametrize("how", ["explicit", "AWS_PROFILE"])
def test_a_named_profile_that_is_nowhere_is_an_error_naming_both_files(how, write):
    environ = write("[a]\n", "[b]\n")  # [a] in the config file is not a profile: it needs the word before it
    with pytest.raises(ConfigError) as caught:
        profile("a", environ) if how == "explicit" else profile(None, environ | {how: "a"})
    assert all(text in str(caught.value) for text in ("'a'", *environ.values()))


def test_a_missing_services_section_is_an_error_not_a_silent_trip_to_aws(write):
    with pytest.raises(ConfigError, match=r"\[services gone\]"):
        profile(None, write("[default]\nservices = gone\n"))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("aws_secret_access_key = hush\n", "line 1"),
        ("[default]\nregion = x\nhush\n", "line 3"),
        ("[default]\naws_secret_access_key = hush\naws_secret_access_key = hush2\n", "line 3"),
        ("[default]\n[default]\n", "line 2"),
    ],
)
def test_a_file_that_does_not_parse_is_blamed_by_line_and_never_quoted(text, line, write):
    environ = write(credentials=text)
    with pytest.raises(ConfigError, match=line) as caught:
        profile(None, environ)
    assert environ["AWS_SHARED_CREDENTIALS_FILE"] in str(caught.value)
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_a_file_that_cannot_be_read_is_an_error(write, tmp_path):
    environ = write()
    (tmp_path / "config").write_bytes(b"[default]\nregion = \xff\n")
    with pytest.raises(ConfigError, match="UTF-8"):
        profile(None, environ)
    with pytest.raises(ConfigError, match=os.strerror(21)):
        profile(None, environ | {"AWS_CONFIG_FILE": str(tmp_path)})


def test_the_repr_shows_no_key(write):
    found = profile(None, write(credentials="[default]\naws_access_key_id=hush\naws_secret_access_key=hush\n"))
    assert found.secret_key == "hush"
    assert "hush" not in repr(found)


def test_a_profile_may_ask_for_another_form_of_awss_endpoint(tmp_path):
    file = tmp_path / "config"
    file.write_text("[default]\nuse_fips_endpoint = true\ns3 =\n  use_accelerate_endpoint = TRUE\n[profile b]\n")
    environ = {"AWS_CONFIG_FILE": str(file), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none")}
    assert profile(None, environ).forms == ("fips", "accelerate")
    assert profile("b", environ).forms == ()
    file.write_text("[default]\nuse_dualstack_endpoint = true\n")
    assert resolve(S3Options(), environ).own == "https://s3.dualstack.{region}.{domain}"
    assert resolve(S3Options(dual_stack=False), environ).own == "https://s3.{region}.{domain}"
    off = {**environ, "AWS_USE_DUALSTACK_ENDPOINT": "false"}
    assert resolve(S3Options(), off).own == "https://s3.{region}.{domain}"
    assert resolve(S3Options(endpoint="http://minio:9000"), environ).endpoint == "http://minio:9000"


@pytest.mark.usefixtures("homeless")
def test_missing_home_directory_yields_an_empty_profile():
    assert not any(each.exists() for each in files({}))
    assert profile("", {}) == Profile()
