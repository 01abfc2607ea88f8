"""Every libcurl code that can happen is an error of ours, and libcurl knows each by that number."""

import pytest

from penstock.engine.transport.codes import KINDS, fault
from penstock.engine.transport.libcurl import strerror
from penstock.errors import Bug, ConfigError, PenstockError, Transient, Unreachable


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


def test_any_other_code_is_a_bug_that_names_it():
    error = fault(9999, "whatever")
    assert type(error) is Bug
    assert "9999" in str(error)


def test_only_transient_curl_codes_are_classified_as_retryable():
    assert all(issubclass(KINDS[code][0], Transient) for code in (6, 7, 18, 28, 52, 55, 56))
    assert KINDS[60][0] is ConfigError
    assert "ca_file=" in str(fault(60, ""))
    assert KINDS[7][0] is Unreachable
