"""What a user in a hurry gets wrong about a URL or an endpoint is answered with what to do."""

from __future__ import annotations

import re

import pytest

import penstock as ps
from penstock.errors import ConfigError, Forbidden, NotFound
from penstock.testing.faults import FAULTS, FaultServer, Match


@pytest.fixture
def server():
    with FaultServer.within() as server:
        server.put("bucket", "train/cat/1.jpg", b"1")
        yield server


def test_https_endpoint_without_tls_error_suggests_http(moto_server):
    store = ps.S3Options(endpoint=moto_server.endpoint.replace("http:", "https:"), access_key="a", secret_key="b")
    with pytest.raises(
        ConfigError, match=r"answers without TLS: write http:// in endpoint= or AWS_ENDPOINT_URL, or its port"
    ):
        list(ps.list("s3://bucket/train/", store=store))


@pytest.mark.parametrize("url", ["s3://bucket/train/nope", "s3://missing/train/nope"])
def test_missing_key_or_bucket_error_names_url_and_settings(server, url):
    text = (
        r"no such key, or no such bucket: check both, and endpoint= or AWS_ENDPOINT_URL, region= or AWS_REGION \["
        + re.escape(url)
    )
    with pytest.raises(NotFound, match=text):
        ps.stat(url, store=server.store)


def test_forbidden_head_mentions_missing_key_as_possible_cause(server):
    server.fail(FAULTS["denied"], when=Match(verb="head"))
    with pytest.raises(Forbidden, match="without one to list, a missing key is 403, too") as refused:
        ps.stat("s3://bucket/train/nope", store=server.store)
    assert refused.value.url == "s3://bucket/train/nope"


def test_url_without_scheme_is_reported_as_a_local_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFound, match=r"'bucket/train/' has no scheme, so it is a path of this machine"):
        ps.MapDataset.from_prefix("bucket/train/")
    with pytest.raises(NotFound, match=r"no such folder: .*/bucket/train; a path without s3:// is local"):
        ps.open("bucket/train/x")
    (tmp_path / "bucket" / "train").mkdir(parents=True)
    with pytest.raises(NotFound, match=r"no such file: No such file or directory \["):
        ps.open("bucket/train/x")
