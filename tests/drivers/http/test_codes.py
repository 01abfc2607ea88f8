"""Every code and status a store may answer with becomes an error that says what to do."""

from email.utils import formatdate
from time import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.drivers.http.codes import CODES, STATUSES, refused
from penstock.errors import ConfigError, PenstockError, Throttled, Transient, Unusable
from penstock.protocols.exchange import Response


def _xml(code, message="", **more):
    tags = "".join(f"<{name}>{text}</{name}>" for name, text in {"Code": code, "Message": message, **more}.items())
    return f'<?xml version="1.0"?><Error>{tags}</Error>'.encode()


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_its_error(code):
    kind, advice = CODES[code]
    error = refused(Response(418, body=_xml(code, "in &lt;words&gt;")), "read", "s3://b/k")
    assert type(error) is kind
    assert issubclass(kind, PenstockError)
    assert (error.code, error.url) == (code, "s3://b/k")
    assert f"cannot read: HTTP 418 {code} (in <words>){advice}" in str(error)


@pytest.mark.parametrize("status", STATUSES)
def test_every_status_has_its_error(status):
    kind, advice = STATUSES[status]
    for body in (b"", _xml("NobodyKnowsThisCode"), b"<html>"):
        error = refused(Response(status, body=body), "list", "s3://b/")
        assert type(error) is kind
        assert str(error).startswith(f"cannot list: HTTP {status}")
        assert advice in str(error)


@given(st.integers(300, 999), st.binary(max_size=200))
def test_there_is_an_error_for_everything(status, body):
    error = refused(Response(status, body=body), "read", "s3://b/k")
    assert isinstance(error, PenstockError)
    assert isinstance(error, Transient) or status < 500 or status in STATUSES


@pytest.mark.parametrize(("status", "kind"), [(302, ConfigError), (418, Unusable), (599, Transient)])
def test_what_no_table_knows_goes_by_its_class(status, kind):
    assert type(refused(Response(status), "read", "")) is kind


def test_the_right_region_is_named_wherever_the_answer_has_it():
    body = _xml("AuthorizationHeaderMalformed", Region="eu-west-1")
    assert "region='eu-west-1'" in str(refused(Response(400, body=body), "read", ""))
    headers = {"x-amz-bucket-region": "eu-west-2"}
    assert "region='eu-west-2'" in str(refused(Response(301, headers, _xml("PermanentRedirect")), "read", ""))


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7.0), ("", None), ("soon", None), ("-1", None), (formatdate(time() - 100, usegmt=True), 0.0)],
)
def test_retry_after_in_either_form(value, seconds):
    error = refused(Response(503, {"retry-after": value}), "read", "")
    assert type(error) is Throttled
    assert error.retry_after_s == seconds
    later = refused(Response(503, {"retry-after": formatdate(time() + 100, usegmt=True)}), "read", "").retry_after_s
    assert 90 < later <= 101


def test_what_a_server_says_of_our_keys_stays_with_it():
    body = _xml("SignatureDoesNotMatch", "mismatch", AWSAccessKeyId="ID", StringToSign="TOKEN", SignatureProvided="S")
    assert not {"ID", "TOKEN"} & set(str(refused(Response(403, body=body), "read", "")).replace("_", " ").split())
