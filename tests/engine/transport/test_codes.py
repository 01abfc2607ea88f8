"""Every libcurl code that can happen is an error of ours, and libcurl knows each by that number."""

import pytest

import penstock as ps
from penstock.engine.transport.codes import KINDS, fault, name_proxy
from penstock.engine.transport.libcurl import strerror
from penstock.errors import Bug, ConfigError, PenstockError, Transient, Unreachable
from tests.data.datasets.ranks import free_port


@pytest.mark.parametrize("code", KINDS)
def test_every_code_has_its_error(code):
    kind, advice = KINDS[code]
    words = strerror(code).decode()
    assert words not in ("", "Unknown error"), "libcurl does not know this number"
    error = fault(code, words)
    assert type(error) is kind
    assert issubclass(kind, PenstockError)
    assert str(error) == words + advice.format(where="endpoint=")


def test_the_settings_of_the_store_are_named():
    where = "endpoint= or X_ENDPOINT, region= or X_REGION"
    assert str(fault(6, "no such host", where)) == f"no such host; check {where}"
    other = fault(60, "SSL: no alternative certificate subject name matches target host name 'h'", where)
    assert type(other) is ConfigError
    assert str(other).partition("; ")[2] == f"the certificate is another host's: check {where}"


@pytest.mark.parametrize(("code", "advice"), [(52, "write https://"), (56, "write https://"), (35, "write http://")])
def test_a_connection_that_ends_may_mean_another_protocol_where_nothing_has_ever_come(code, advice):
    where = "endpoint= or X_ENDPOINT, region= or X_REGION"
    assert str(fault(code, "reset", where)) == "reset"
    assert str(fault(code, "reset", where, strange=True)).endswith(f"{advice} in endpoint= or X_ENDPOINT")


PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "no_proxy", "NO_PROXY")


@pytest.mark.parametrize(
    ("environ", "url", "named"),
    [
        ({"https_proxy": "http://me:secret@proxy:3128/"}, "https://s3/b", "proxy:3128 (https_proxy)"),
        ({"HTTPS_PROXY": "me:secret@proxy:3128"}, "https://s3/b", "proxy:3128 (HTTPS_PROXY)"),
        ({"all_proxy": "socks5://proxy"}, "http://s3:9000/b", "proxy (all_proxy)"),
        ({"http_proxy": "http://proxy"}, "https://s3/b", ""),
        ({"HTTP_PROXY": "http://proxy"}, "http://s3/b", ""),
        ({"http_proxy": "http://proxy", "no_proxy": "other, .example.com"}, "http://s3.example.com:9000/b", ""),
        ({"http_proxy": "http://proxy", "no_proxy": "ample.com"}, "http://s3.example.com/b", "proxy (http_proxy)"),
        ({"http_proxy": "http://proxy", "NO_PROXY": "*"}, "http://s3/b", ""),
        ({}, "http://s3/b", ""),
        ({"http_proxy": "http://proxy"}, "", ""),
    ],
)
def test_proxy_of_the_environment_is_named_without_its_password(environ, url, named, monkeypatch):
    for each in PROXIES:
        monkeypatch.delenv(each, raising=False)
    for each, value in environ.items():
        monkeypatch.setenv(each, value)
    advice = name_proxy(url, None)
    assert named in advice
    assert bool(advice) is bool(named)
    assert "secret" not in advice
    assert "me:" not in advice
    assert name_proxy(url, "") == ""
    assert "own:1 (TransportOptions(proxy=…)): check" in name_proxy(url, "http://a:b@own:1")


@pytest.mark.parametrize("code", [5, 7, 28, 35, 52, 56, 97])
def test_failure_on_the_way_through_a_proxy_names_the_proxy_and_no_setting_of_the_store(code):
    text = str(fault(code, "failed", "endpoint= or X", strange=True, through=name_proxy("", "http://proxy:3128")))
    assert "proxy:3128" in text
    assert "endpoint=" not in text
    assert str(fault(code, "failed", "endpoint=", through="; the proxy")) == str(fault(code, "failed", "endpoint="))
    assert "; the proxy" in str(fault(code, "failed over proxy", "endpoint=", through="; the proxy"))


def test_request_through_a_dead_proxy_names_it(monkeypatch):
    dead = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("http_proxy", f"http://me:hidden-word@{dead}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    store = ps.S3Options(
        endpoint="http://store.invalid", region="us-east-1", anonymous=True, retry=ps.RetryOptions(attempts=1)
    )
    with pytest.raises(Unreachable, match=rf"through the proxy {dead} \(http_proxy\)") as caught:
        ps.stat("s3://bucket/key", store=store)
    assert "hidden-word" not in str(caught.value)
    assert "AWS_ENDPOINT_URL" not in str(caught.value)


def test_any_other_code_is_a_bug_that_names_it():
    error = fault(9999, "whatever")
    assert type(error) is Bug
    assert "9999" in str(error)


def test_only_transient_curl_codes_are_classified_as_retryable():
    assert all(issubclass(KINDS[code][0], Transient) for code in (6, 7, 18, 28, 52, 55, 56))
    assert KINDS[60][0] is ConfigError
    assert "ca_file=" in str(fault(60, ""))
    assert KINDS[7][0] is Unreachable
