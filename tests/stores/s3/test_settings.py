"""Each setting comes from the first place that says it, and what was said explicitly always wins."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import certifi
import pytest

from penstock.errors import ConfigError
from penstock.options import TransportOptions
from penstock.stores.s3.options import S3Options
from penstock.stores.s3.settings import Service, StoreSettings, remember_settings, resolve


@pytest.fixture
def environ(tmp_path):
    """Point to a config file whose only profile, ``lab``, says something of everything."""
    ca_bundle = tmp_path / "profile.pem"
    ca_bundle.touch()
    (tmp_path / "config").write_text(
        f"[profile lab]\nregion = profile-1\nendpoint_url = https://profile.example\nca_bundle = {ca_bundle}\n"
        "s3 =\n  addressing_style = virtual\n[profile odd]\ns3 =\n  addressing_style = sideways\n"
        "[profile ignoring]\nendpoint_url = https://profile.example\nignore_configured_endpoint_urls = true\n",
        encoding="utf-8",
    )
    return {"AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none")}


def test_settings_default_to_aws_in_us_east_1(environ):
    assert replace(resolve(S3Options(), environ), identity=b"") == StoreSettings(
        endpoint=None, region="us-east-1", addressing="virtual", ca_file=certifi.where(), proxy=None, anonymous=False
    )


def test_identity_changes_with_credentials_and_stays_hidden(environ):
    plain = resolve(S3Options(), environ)
    seen = {plain.identity}
    for more in ({"AWS_ACCESS_KEY_ID": "id-xyzzy"}, {"AWS_SECRET_ACCESS_KEY": "xyzzy"}, {"AWS_ROLE_ARN": "arn"}):
        found = resolve(S3Options(), environ | more)
        assert found != plain
        assert "xyzzy" not in repr(found)
        seen.add(found.identity)
    seen.add(resolve(S3Options(profile="lab"), environ).identity)
    assert len(seen) == 5
    for options in (S3Options(anonymous=True), S3Options(access_key="a", secret_key="b")):
        assert resolve(options, environ | {"AWS_ACCESS_KEY_ID": "id"}) == resolve(options, environ)


def test_the_process_environment_is_read_when_none_is_given(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://localhost:9000/")
    assert resolve(S3Options()).endpoint == "http://localhost:9000"


def test_an_explicit_endpoint_always_wins(environ):
    """Trap 9: in obstore 0.12 ``AWS_ENDPOINT_URL_S3`` silently beats an explicit endpoint."""
    environ |= {
        "AWS_ENDPOINT_URL_S3": "https://s3.example",
        "AWS_ENDPOINT_URL": "https://all.example",
        "AWS_PROFILE": "lab",
    }
    options = S3Options(endpoint="https://mine.example")
    assert resolve(options, environ).endpoint == "https://mine.example"
    ignoring = environ | {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}
    assert resolve(options, ignoring).endpoint == "https://mine.example"


def test_then_the_environment_s_two_endpoints_then_the_profile_s(environ):
    said = {
        "AWS_ENDPOINT_URL_S3": "https://s3.example",
        "AWS_ENDPOINT_URL": "https://all.example",
        "AWS_PROFILE": "lab",
    }
    assert resolve(S3Options(), environ | said).endpoint == "https://s3.example"
    assert resolve(S3Options(), environ | said | {"AWS_ENDPOINT_URL_S3": ""}).endpoint == "https://all.example"
    assert resolve(S3Options(profile="lab"), environ).endpoint == "https://profile.example"


def test_configured_endpoints_can_be_ignored(environ):
    said = environ | {"AWS_ENDPOINT_URL": "https://all.example", "AWS_PROFILE": "ignoring"}
    assert resolve(S3Options(), said).endpoint is None
    assert resolve(S3Options(), said | {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "TRUE"}).endpoint is None
    variable_beats_profile = said | {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "false"}
    assert resolve(S3Options(), variable_beats_profile).endpoint == "https://all.example"


def test_an_unusable_endpoint_is_blamed_on_where_it_came_from(environ):
    with pytest.raises(ConfigError, match=r"S3Options\.endpoint"):
        resolve(S3Options(endpoint=""), environ)
    with pytest.raises(ConfigError, match="AWS_ENDPOINT_URL_S3"):
        resolve(S3Options(), environ | {"AWS_ENDPOINT_URL_S3": "localhost:9000"})


def test_region_comes_from_first_source_that_sets_it(environ):
    environ |= {"AWS_REGION": "env-1", "AWS_DEFAULT_REGION": "env-2", "AWS_PROFILE": "lab"}
    assert resolve(S3Options(region="mine-1"), environ).region == "mine-1"
    assert resolve(S3Options(), environ).region == "env-1"
    assert resolve(S3Options(), environ | {"AWS_REGION": ""}).region == "env-2"
    assert resolve(S3Options(), environ | {"AWS_REGION": "", "AWS_DEFAULT_REGION": ""}).region == "profile-1"


@pytest.mark.parametrize("region", ["", "us east 1", "us-east-1/s3", "us-east-1\n", "-x", "a@b", "é"])
def test_invalid_region_is_refused(region, environ):
    with pytest.raises(ConfigError, match=r"S3Options\.region"):
        resolve(S3Options(region=region), environ)


@pytest.mark.parametrize("region", ["auto", "default", "RegionOne", "eu-central-003", "cn_north.1"])
def test_other_stores_have_other_regions(region, environ):
    assert resolve(S3Options(), environ | {"AWS_REGION": region}).region == region


def test_addressing_defaults_to_virtual_on_aws_and_path_elsewhere(environ):
    mine = "https://mine.example"
    assert resolve(S3Options(), environ).addressing == "virtual"
    assert resolve(S3Options(endpoint=mine), environ).addressing == "path"
    assert resolve(S3Options(endpoint=mine, addressing="virtual"), environ).addressing == "virtual"
    assert resolve(S3Options(endpoint=mine, profile="lab"), environ).addressing == "virtual"
    assert resolve(S3Options(profile="lab", addressing="path"), environ).addressing == "path"
    with pytest.raises(ConfigError, match="profile 'odd'"):
        resolve(S3Options(profile="odd"), environ)


def test_ca_file_comes_from_first_source_that_sets_it(environ, tmp_path, monkeypatch):
    names = ["mine", "AWS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE"]
    path = {name: tmp_path / name for name in names}
    for file in path.values():
        file.touch()
    options = S3Options(transport=TransportOptions(ca_file=str(path["mine"])))
    environ |= {name: str(path[name]) for name in names[1:]}

    assert resolve(options, environ).ca_file == str(path["mine"])
    assert resolve(S3Options(profile="lab"), environ).ca_file == str(path["AWS_CA_BUNDLE"])
    environ["AWS_CA_BUNDLE"] = ""
    assert resolve(S3Options(profile="lab"), environ).ca_file == str(tmp_path / "profile.pem")
    assert resolve(S3Options(), environ).ca_file == str(path["SSL_CERT_FILE"])
    del environ["SSL_CERT_FILE"]
    assert resolve(S3Options(), environ).ca_file == str(path["CURL_CA_BUNDLE"])
    del environ["CURL_CA_BUNDLE"]
    assert resolve(S3Options(), environ).ca_file == certifi.where()
    monkeypatch.setitem(sys.modules, "certifi", None)
    system = resolve(S3Options(), environ).ca_file
    assert system is None or (system.startswith("/etc/") and Path(system).is_file())


@pytest.mark.parametrize("name", ["AWS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE"])
def test_missing_ca_file_error_names_the_variable_or_option(name, environ, tmp_path):
    with pytest.raises(ConfigError, match=rf"^{name} .*gone\.pem"):
        resolve(S3Options(), environ | {name: str(tmp_path / "gone.pem")})
    options = S3Options(transport=TransportOptions(ca_file=str(tmp_path)))  # a folder is no file
    with pytest.raises(ConfigError, match=r"^TransportOptions\.ca_file"):
        resolve(options, environ)


def test_a_profile_s_ca_bundle_that_is_not_there_is_blamed_on_the_profile(environ, tmp_path):
    (tmp_path / "profile.pem").unlink()
    with pytest.raises(ConfigError, match=r"^ca_bundle of profile 'lab'"):
        resolve(S3Options(profile="lab"), environ)


def test_requests_go_unsigned_when_asked(environ):
    assert resolve(S3Options(anonymous=True), environ).anonymous
    for value, unsigned in {
        "YES": True,
        "true": True,
        "1": True,
        "NO": False,
        "False": False,
        "0": False,
        "": False,
    }.items():
        assert resolve(S3Options(), environ | {"AWS_NO_SIGN_REQUEST": value}).anonymous is unsigned


def test_explicit_false_option_overrides_the_environment(environ):
    environ |= {"AWS_NO_SIGN_REQUEST": "YES", "AWS_REQUEST_PAYER": "requester"}
    assert not resolve(S3Options(anonymous=False), environ).anonymous
    assert not resolve(S3Options(requester_pays=False), environ).requester_pays
    found = resolve(S3Options(), environ)
    assert (found.anonymous, found.requester_pays) == (True, True)


def test_an_explicit_identity_beats_a_wish_of_the_environment_to_go_unsigned(environ):
    environ |= {"AWS_NO_SIGN_REQUEST": "YES"}
    assert not resolve(S3Options(access_key="a", secret_key="b"), environ).anonymous
    assert not resolve(S3Options(profile="lab"), environ).anonymous


def test_the_proxy_is_kept_and_not_shown(environ):
    options = S3Options(transport=TransportOptions(proxy="http://me:hush@proxy:3128"))
    settings = resolve(options, environ)
    assert settings.proxy == "http://me:hush@proxy:3128"
    assert "hush" not in repr(settings)


def _resolving():
    calls = []

    class Counted(Service):
        @remember_settings
        def resolve(self, options, environ):
            calls.append(options)
            found = resolve(options, environ)
            return found, found.identity

    return Counted().resolve, calls


def _write(path, region):
    path.write_text(f"[default]\nregion = {region}\n")
    os.utime(path, (1_700_000_000, 1_700_000_000 + len(region)))


def test_settings_are_resolved_once_while_nothing_changes(monkeypatch, tmp_path):
    config = tmp_path / "config"
    _write(config, "eu-west-1")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    resolved, calls = _resolving()
    options = S3Options()
    first = resolved(options, os.environ)
    assert resolved(options, os.environ) is first
    assert len(calls) == 1
    assert resolved(options, dict(os.environ)) == first  # another environment
    assert resolved(S3Options(), os.environ) == first  # other options
    assert len(calls) == 3


def test_settings_are_resolved_again_after_any_change(monkeypatch, tmp_path):
    config, authority = tmp_path / "config", tmp_path / "ca.pem"
    _write(config, "eu-west-1")
    authority.write_text("")
    os.utime(authority, (1_700_000_000, 1_700_000_000))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority))
    resolved, calls = _resolving()
    options = S3Options()
    assert resolved(options, os.environ)[0].region == "eu-west-1"
    _write(config, "us-west-22")
    assert resolved(options, os.environ)[0].region == "us-west-22"
    monkeypatch.setenv("AWS_REGION", "us-east-2")
    assert resolved(options, os.environ)[0].region == "us-east-2"
    monkeypatch.delenv("AWS_REGION")
    config.unlink()
    assert resolved(options, os.environ)[0].region == "us-east-1"
    assert len(calls) == 4
    authority.unlink()
    with pytest.raises(ConfigError, match="AWS_CA_BUNDLE names the CA file"):
        resolved(options, os.environ)


def test_settings_from_a_file_that_just_changed_are_not_kept(monkeypatch, tmp_path):
    config = tmp_path / "config"
    config.write_text("[default]\nregion = eu-west-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    resolved, calls = _resolving()
    options = S3Options()
    for _ in range(2):
        assert resolved(options, os.environ)[0].region == "eu-west-1"
    assert len(calls) == 2
