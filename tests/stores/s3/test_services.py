"""The table of services that speak S3's dialect: endpoints are recognised, and say their region and account."""

from __future__ import annotations

from dataclasses import replace

import pytest

import penstock as ps
from penstock.errors import ConfigError
from penstock.source import open_source
from penstock.stores.s3.credentials import auth_token
from penstock.stores.s3.services import AWS, S3, SERVICES, at, find_service
from penstock.testing.faults import FaultServer
from penstock.testing.servers import Scripted, reply


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("https://id.r2.cloudflarestorage.com", "r2"),
        ("https://id.eu.r2.cloudflarestorage.com", "r2"),
        ("https://ns.compat.objectstorage.eu-frankfurt-1.oraclecloud.com", "oci"),
        ("https://s3.us-west-004.backblazeb2.com", "b2"),
        ("https://s3.eu-central-1.wasabisys.com", "wasabi"),
        ("https://fly.storage.tigris.dev", "tigris"),
        ("http://cwlota.com", "coreweave"),
        ("https://storage.googleapis.com", "gcs"),
        ("https://s3.hf.co/my-org", "hf-buckets"),
        ("https://minio.example.com:9000", ""),
        ("https://r2.cloudflarestorage.com.evil.example", ""),
        ("https://evilwasabisys.com", ""),
        (None, ""),
    ],
)
def test_an_endpoint_is_recognised_by_its_domain(url, word):
    assert at(url) == word


def test_region_and_account_are_parsed_from_endpoint():
    assert SERVICES["b2"].part_of("https://s3.us-west-004.backblazeb2.com", "region") == "us-west-004"
    oci = "https://ns.compat.objectstorage.eu-frankfurt-1.oci.customer-oci.com"
    assert [SERVICES["oci"].part_of(oci, what) for what in ("account", "region")] == ["ns", "eu-frankfurt-1"]
    assert SERVICES["r2"].part_of("https://id.eu.r2.cloudflarestorage.com", "account") == "id.eu"
    assert SERVICES["b2"].part_of("https://f004.backblazeb2.com", "region") == ""


def test_another_word_is_refused_with_the_one_that_was_meant():
    assert find_service("r2") is SERVICES["r2"]
    with pytest.raises(ConfigError, match="no provider 'wasabbi': did you mean 'wasabi'"):
        find_service("wasabbi")
    with pytest.raises(ConfigError, match="it is one of aws, r2, "):
        find_service("?")


def test_a_shared_service_has_awss_variables_after_its_own():
    service = SERVICES["r2"].shared()
    assert service.endpoints == ("R2_ENDPOINT_URL", "R2_ENDPOINT", *AWS.endpoints)
    assert (service.aws_files, service.keys) == (True, SERVICES["r2"].keys)
    assert AWS().shared() == AWS()
    assert service == SERVICES["r2"].shared() != SERVICES["r2"]


# -- A bucket is opened as its settings say; what cannot go together is refused before any request --


def test_settings_and_identity_come_apart():
    settings, identity = SERVICES["wasabi"].resolve(ps.S3Options(), {"WASABI_ACCESS_KEY_ID": "a"})
    others = SERVICES["wasabi"].resolve(ps.S3Options(), {"WASABI_ACCESS_KEY_ID": "b"})
    assert settings == others[0]
    assert identity != others[1]
    assert settings.identity == b""
    assert hash(settings) == hash(others[0])


def test_s3_limits_combine_family_defaults_and_endpoint_service():
    source, _ = open_source("s3://bkt/k", ps.S3Options(endpoint="https://a.r2.cloudflarestorage.com", anonymous=True))
    assert source._kind.limits.equal_parts
    plain, _ = open_source("s3://bkt/k", ps.S3Options(endpoint="https://minio.example", anonymous=True))
    assert plain._kind.limits == S3.limits
    assert source.root == "s3://bkt/"


def test_a_path_on_awss_own_endpoint_is_refused():
    with pytest.raises(ConfigError, match="has a path on AWS"):
        open_source("s3://bkt/k", ps.S3Options(endpoint="https://s3.amazonaws.com/bkt"))


def test_a_profile_has_the_limits_of_the_service_that_it_names(tmp_path, monkeypatch):
    file = tmp_path / "penstock.toml"
    file.write_text('[profiles.lake]\nurl = "s3://bkt/base"\noptions = {provider = "r2", account = "acc"}\n')
    monkeypatch.setenv("PENSTOCK_CONFIG", str(file))
    source, key = open_source("penstock://lake/k", ps.S3Options(access_key="id", secret_key="secret"))
    assert source._kind.limits.equal_parts
    assert source._kind.limits.key_bytes == S3.limits.key_bytes - len("base/")
    assert source._fetcher().driver.head(key).request.url == "https://acc.r2.cloudflarestorage.com/bkt/base/k"


@pytest.mark.parametrize(
    ("url", "options", "header"),
    [
        ("s3://bucket/a", ps.S3Options(access_key="k", secret_key="s", requester_pays=True), "x-amz-request-payer"),
        ("s3://bucket/a", ps.S3Options(access_key="k", secret_key="s"), "x-amz-request-payer"),
        (
            "oss://bucket/a",
            ps.OSSOptions(access_key="k", secret_key="s", region="cn-hangzhou", requester_pays=True),
            "x-oss-request-payer",
        ),
    ],
    ids=["s3", "s3-variable", "oss"],
)
def test_requester_pays_header_is_sent_and_signed(url, options, header, request, monkeypatch):
    if request.node.callspec.id == "s3-variable":
        monkeypatch.setenv("AWS_REQUEST_PAYER", "requester")

    def answer(_received, send):
        send(reply(200, etag='"e"'))
        return False

    with Scripted(answer) as server:
        ps.stat(url, store=replace(options, endpoint=server.url))
    (seen,) = server.received
    assert seen.headers[header] == "requester"
    proof = seen.headers["authorization"]
    assert header in proof or "OSS4" in proof  # OSS signs all of its own headers, and does not list them


def test_a_server_that_checks_signatures_takes_both():
    with FaultServer.within() as server:
        server.put("bucket", "a", b"x")
        paying = replace(server.store, requester_pays=True)
        assert ps.stat("s3://bucket/a", store=paying).size == 1
        assert ps.stat("s3://bucket/a", store=server.store).size == 1


# -- AIStore's token is found where its own tools find it, and never quoted --


def test_the_variable_comes_before_the_file(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "token"
    file.write_text('{"token": "in-the-file"}')
    assert auth_token({}) == ("", "")
    assert auth_token({"AIS_AUTHN_TOKEN_FILE": str(file)}) == (f"the token file {file}", "in-the-file")
    both = {"AIS_AUTHN_TOKEN_FILE": str(file), "AIS_AUTHN_TOKEN": "said"}
    assert auth_token(both) == ("AIS_AUTHN_TOKEN", "said")
    file.write_text("plain\n")
    assert auth_token({"AIS_AUTHN_TOKEN_FILE": str(file)})[1] == "plain"


def test_the_file_of_the_command_line_is_the_default(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".config" / "ais" / "cli"
    folder.mkdir(parents=True)
    (folder / "auth.token").write_text('{"token": "logged-in"}')
    assert auth_token({})[1] == "logged-in"


@pytest.mark.parametrize("text", ["", "{}", '{"token": 1}', "hush hush", '{"token": "hush\\u00e9"}'])
def test_invalid_token_file_is_refused_without_quoting_its_content(tmp_path, text):
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(ConfigError, match="holds no token") as caught:
        auth_token({"AIS_AUTHN_TOKEN_FILE": str(file)})
    assert "hush" not in str(caught.value)
    with pytest.raises(ConfigError, match="names the file /no/such, which does not exist"):
        auth_token({"AIS_AUTHN_TOKEN_FILE": "/no/such"})


@pytest.mark.usefixtures("homeless")
def test_missing_home_directory_yields_empty_token():
    assert auth_token({}) == ("", "")
