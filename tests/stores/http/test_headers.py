"""Header values are numbers and times, or nothing: no server's nonsense raises."""

from email.utils import formatdate
from time import time

import pytest

from penstock.stores.http.headers import is_strong, parse_date, parse_retry_after, parse_size, strip_quotes


def test_an_etag_is_without_quotes():
    assert [strip_quotes(each) for each in ('"e"', "e", 'W/"e"', ' "e-2" ')] == ["e", "e", "W/e", "e-2"]


@pytest.mark.parametrize(("etag", "sent"), [("e-2", True), ("W/e", False), ("", False), ("a b", False), ("é", False)])
def test_only_a_strong_etag_is_sent_as_a_condition(etag, sent):
    assert bool(is_strong(etag)) is sent
    assert not is_strong(f"{etag}\r\nx-evil: 1")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("42", 42),
        (str(2**63 - 1), 2**63 - 1),
        (str(2**63), None),
        *((each, None) for each in ("", "-1", "1.0", "1_0", "٣", " 1", "9" * 5000)),
    ],
)
def test_a_size_is_a_number_of_bytes_or_none(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "date",
    [
        "",
        "yesterday",
        "2026-13-01",
        "9" * 99,
        "Mon, 99999999999999999999 Jan 2026 00:00:00 GMT",
        "1 Jan 99999999999999999 0:0:0 +9999999",
    ],
)
def test_invalid_http_date_parses_as_none(date):
    assert parse_date(date) is None


def test_an_http_date_is_in_seconds():
    assert parse_date("Thu, 01 Jan 1970 00:01:40 GMT") == 100.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("", None),
        ("soon", None),
        ("-1", None),
        ("86401", None),
        pytest.param(formatdate(time() - 100, usegmt=True), 0.0, id="a date that is past"),
    ],
)
def test_retry_after_is_read_in_either_form(value, seconds):
    assert parse_retry_after(value) == seconds


def test_retry_after_as_a_date_is_counted_from_now():
    assert 90 < parse_retry_after(formatdate(time() + 100, usegmt=True)) <= 101
