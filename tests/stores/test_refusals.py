"""What is secret goes to the hosts that the user named: no redirect, no region and no plain HTTP leads it elsewhere."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

import penstock as ps
from penstock.engine.buffer import Buffer
from penstock.engine.contracts.exchange import Response
from penstock.errors import ConfigError, PenstockError
from penstock.source import open_source
from penstock.testing.servers import Scripted, reply
from penstock.values import Span
from tests.servers.hostile import document

KEYS = {"access_key": "id", "secret_key": "secret"}
KEY = "c2VjcmV0"  # base64, as Azure's are
# Each dialect and each kind of credentials: its URL, and its options but for the endpoint.
WAYS = {
    "s3": ("s3://bucket/", ps.S3Options, {"region": "us-east-1", **KEYS}),
    "s3-temporary": ("s3://bucket/", ps.S3Options, {"region": "us-east-1", "session_token": "token", **KEYS}),
    "gcs-keys": ("gs://bucket/", ps.GCSOptions, KEYS),
    "gcs-token": ("gs://bucket/", ps.GCSOptions, {"token": "token"}),
    "oss": ("oss://bucket/", ps.OSSOptions, {"region": "cn-hangzhou", **KEYS}),
    "oss-temporary": ("oss://bucket/", ps.OSSOptions, {"region": "cn-hangzhou", "session_token": "token", **KEYS}),
    "azure-key": ("az://bucket/", ps.AzureOptions, {"account": "mine", "account_key": KEY}),
    "azure-token": ("az://bucket/", ps.AzureOptions, {"account": "mine", "token": "token"}),
    "azure-sas": ("az://bucket/", ps.AzureOptions, {"account": "mine", "sas_token": "sv=1&sig=x"}),
}
everywhere = pytest.mark.parametrize("way", WAYS)


def options(way, **more):
    _, kind, own = WAYS[way]
    return kind(**own, retry=ps.RetryOptions(base_s=0.01, attempts=4), **more)


def verbs(url, store):
    """Yield something to do for each kind of request."""
    yield lambda: ps.stat(f"{url}key", store=store)
    yield lambda: ps.open(f"{url}key", store=store).read()
    yield lambda: list(ps.list(url, store=store))
    yield lambda: ps.open(f"{url}key", "wb", store=store).close()
    yield lambda: ps.delete(f"{url}key", store=store)
    yield lambda: ps.copy(f"{url}key", f"{url}to", store=store)


@everywhere
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_leads_to_another_host(way, status):
    def anything(_received, send):
        send(reply(200))
        return False

    with Scripted(anything) as elsewhere:

        def redirect(received, send):
            there = elsewhere.url.replace("127.0.0.1", "localhost")
            send(reply(status, location=f"{there}{received.path}", x_amz_bucket_region="localhost"))
            return False

        with Scripted(redirect) as server:
            for do in verbs(WAYS[way][0], options(way, endpoint=server.url)):
                asked = len(server.received)
                with pytest.raises(PenstockError):
                    do()
                assert len(server.received) > asked
        assert elsewhere.received == []


HOSTILE = (
    "evil.example",
    "evil.example/",
    "x@evil.example",
    "evil.example#",
    "a.evil",
    "oss-a.evil.example",
    "a\r\nb: c",
)


@everywhere
@pytest.mark.parametrize("region", HOSTILE)
def test_no_answer_names_a_region_that_is_another_host(way, region):
    driver = open_source(WAYS[way][0], options(way))[0]._fetcher().driver  # at the service's own endpoint

    def asked():
        return driver.read(Span("key", 0, 4), Buffer.allocate(4))

    host = urlsplit(asked().request.url).netloc
    assert "." in host
    texts = {"Region": region, "Endpoint": region, "Bucket": "bucket"}
    headers = {"x-amz-bucket-region": region, "x-oss-bucket-region": region, "location": f"https://{region}/key"}
    for status, code in ((301, "PermanentRedirect"), (307, "TemporaryRedirect"), (400, "AuthorizationHeaderMalformed")):
        for code_or_none in (code, "AccessDenied", "IllegalLocationConstraintException"):
            with pytest.raises(PenstockError):
                asked().parse(Response(status, headers, document("Error", Code=code_or_none, **texts)))
            request = asked().request
            assert urlsplit(request.url).netloc == host
            assert "evil" not in f"{request.url} {' '.join(request.headers)}"


PLAIN = {
    "gcs-token": ("gs://bucket/key", lambda at: ps.GCSOptions(endpoint=at, token="tok3n")),
    "gcs-function": (
        "gs://bucket/key",
        lambda at: ps.GCSOptions(endpoint=at, credentials=lambda: ps.credentials.BearerToken("tok3n")),
    ),
    "gcs-account": ("gs://bucket/key", lambda at: ps.GCSOptions(endpoint=at, credentials_json="{}")),
    "azure-token": ("az://bucket/key", lambda at: ps.AzureOptions(account="mine", endpoint=at, token="tok3n")),
    "azure-sas": ("az://bucket/key", lambda at: ps.AzureOptions(account="mine", endpoint=at, sas_token="sig=tok3n")),
    "azure-function": (
        "az://bucket/key",
        lambda at: ps.AzureOptions(account="mine", endpoint=at, credential=lambda: "tok3n"),
    ),
    "aistore": ("ais://bucket/key", lambda at: ps.S3Options(endpoint=at)),
    "web": ("{at}/key", lambda _at: ps.HTTPOptions(headers={"Authorization": "Bearer tok3n"})),
    "web-token": ("{at}/key", lambda _at: ps.HTTPOptions(token="tok3n")),
}


@pytest.mark.parametrize("way", PLAIN)
def test_a_bearer_token_is_not_sent_over_plain_http_to_another_machine(way, monkeypatch):
    monkeypatch.setenv("AIS_AUTHN_TOKEN", "tok3n")
    url, options = PLAIN[way]
    for at, refused in (
        ("http://store.example:8080", True),
        ("https://store.example", False),
        ("http://[::1]:9", False),
    ):
        source = None
        if refused:
            with pytest.raises(ConfigError, match="https") as caught:
                source = open_source(url.format(at=at), options(at))[0]._fetcher()
            assert "tok3n" not in str(caught.value)
            assert source is None
        else:
            assert open_source(url.format(at=at), options(at))[0]._fetcher()
