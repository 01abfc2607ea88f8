"""A bucket is opened as its settings say; what cannot go together is refused before any request."""

from __future__ import annotations

from dataclasses import replace

import pytest

import penstock as ps
from penstock.errors import ConfigError
from penstock.source import open_source
from penstock.stores.s3.services import S3, SERVICES
from penstock.testing.faults import FaultServer
from penstock.testing.servers import Scripted, reply


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
