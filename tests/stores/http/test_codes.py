"""Every refusal becomes an error that says what to do: by its code, else by its status, else by the status's class."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.contracts.exchange import Response
from penstock.errors import ConfigError, Forbidden, PenstockError, Throttled, Transient, Unauthenticated, Unusable
from penstock.stores.http.answers import STATUSES, Codes, Meaning
from tests.servers.hostile import document

TABLE = Codes(
    service="Elsewhere",
    codes={"Expired": Meaning(Unauthenticated, "; do this", renews=True), "Moved": Meaning(ConfigError, "; or that")},
    header="x-ms-error-code",
    region_of=lambda response: response.headers.get("region", ""),
)
# RFC 9110, section 15: every status of an error that it defines; and 425, 429, 507 of RFCs 8470, 6585 and 4918.
RFC_STATUSES = [*range(400, 406), *range(406, 418), 421, 422, 425, 426, 429, *range(500, 506), 507]


def _error(response, action="read"):
    return TABLE.refusal(response, action, "s3://b/k").error


def test_a_code_decides_before_the_status():
    error = _error(Response(418, body=document("Error", Code="Expired", Message="in <words>")))
    assert type(error) is Unauthenticated
    assert (error.code, error.url) == ("Expired", "s3://b/k")
    assert "cannot read: HTTP 418 Expired (in <words>); do this" in str(error)


def test_error_code_is_read_from_header_without_body():
    assert type(_error(Response(404, {"x-ms-error-code": "Expired"}))) is Unauthenticated
    assert _error(Response(403, {"x-ms-error-code": "no <code>"})).code == ""
    assert type(_error(Response(403, {"x-ms-error-code": "no <code>"}))) is Forbidden


@pytest.mark.parametrize("status", STATUSES)
def test_a_status_decides_where_no_code_is_known(status):
    for body in (b"", document("Error", Code="NobodyKnowsThisCode"), b"<html>"):
        error = _error(Response(status, body=body), "list")
        assert type(error) is STATUSES[status].error
        assert str(error).startswith(f"cannot list: HTTP {status}")
        assert STATUSES[status].advice.replace("{where}", "endpoint=") in str(error)


@pytest.mark.parametrize("status", RFC_STATUSES)
def test_every_status_of_the_standard_has_an_error_that_is_tried_again_where_that_helps(status):
    transient = {408, 425, 429, 500, 502, 503, 504, 505}
    assert isinstance(_error(Response(status)), Transient) is (status in transient)


@given(st.integers(300, 999), st.binary(max_size=200))
def test_there_is_an_error_for_every_answer(status, body):
    error = _error(Response(status, body=body))
    assert isinstance(error, PenstockError)
    assert isinstance(error, Transient) or status < 500 or status in STATUSES


@pytest.mark.parametrize(("status", "kind"), [(305, ConfigError), (418, Unusable), (599, Transient)])
def test_a_status_in_no_table_goes_by_its_class(status, kind):
    assert type(_error(Response(status))) is kind


def test_a_named_region_is_in_the_advice_of_a_wrong_setting_only():
    moved = document("Error", Code="Moved")
    assert "region='eu'" in str(_error(Response(400, {"region": "eu"}, moved)))
    assert "; or that" in str(_error(Response(400, {}, moved)))
    assert "eu" not in str(_error(Response(403, {"region": "eu"})))


def test_retry_after_is_passed_on():
    error = _error(Response(503, {"retry-after": "7"}))
    assert (type(error), error.retry_after_s) == (Throttled, 7.0)
