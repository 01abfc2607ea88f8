"""Header values are numbers and times, or nothing: no server's nonsense raises."""

from __future__ import annotations

import random
import uuid
from email.utils import formatdate
from time import time

import pytest

import penstock as ps
from penstock.engine.contracts.credentials import Credentials
from penstock.engine.contracts.driver import Attributes
from penstock.errors import Unusable
from penstock.stores.http.headers import (
    WEEK_S,
    escape,
    is_strong,
    lifetime,
    parse_date,
    parse_retry_after,
    parse_size,
    query_string,
    read_metadata,
    strip_quotes,
    trim_headers,
    write_metadata,
)
from penstock.testing.faults import FaultServer


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


# -- An address lives as long as was asked for; longer than store or credentials allow is refused --


LASTING = Credentials("a", "s")


@pytest.mark.parametrize(
    ("asked", "most", "expires_at", "seconds"),
    [
        (None, WEEK_S, None, 3600),
        (None, 60, None, 60),
        (None, WEEK_S, 1500.0, 500),
        (None, WEEK_S, 9000.0, 3600),
        (WEEK_S, WEEK_S, None, WEEK_S),
        (1, WEEK_S, None, 1),
        (1.9, WEEK_S, None, 1),
        (500, WEEK_S, 1500.0, 500),
    ],
)
def test_how_long_an_address_lives(asked, most, expires_at, seconds):
    keys = Credentials("a", "s", "t" * bool(expires_at), expires_at)
    assert lifetime(asked, most, keys, 1000.0) == (seconds, "")


@pytest.mark.parametrize(
    ("asked", "expires_at", "said"),
    [
        (WEEK_S + 1, None, "at most 604,800 seconds here, got 604,801"),
        (501, 1500.0, "expire in 500 seconds"),
        (None, 1000.5, "expire in"),
        (None, 900.0, "expire in 0 seconds"),
        (0.5, None, "at least 1, got 0.5"),
        (0, None, "at least 1, got 0"),
        ("60", None, "a number of seconds, at least 1, got '60'"),
    ],
)
def test_unusable_expiry_request_raises_with_reason(asked, expires_at, said):
    with pytest.raises(Unusable, match=said):
        lifetime(asked, WEEK_S, Credentials("a", "s", "", expires_at), 1000.0)


def test_session_token_with_unknown_expiry_adds_a_note():
    assert "session token" in lifetime(None, WEEK_S, Credentials("a", "s", "t"), 0.0)[1]
    assert lifetime(None, WEEK_S, LASTING, 0.0)[1] == ""


# -- Paths, queries and header values are escaped once, in the form that signatures compare --


def test_a_key_s_every_byte_is_escaped_once():
    assert escape("a/b c+%20~é//./x/../y") == "a/b%20c%2B%2520~%C3%A9//./x/../y"
    assert query_string({"b": "1 +", "a-b": "", "a": "é"}) == "a=%C3%A9&a-b=&b=1%20%2B"


def test_header_values_lose_spaces_and_no_other_white_space():
    assert trim_headers({"a": "  b   c ", "d": "\x85\xa0"}) == {"a": "b c", "d": "\x85\xa0"}


# -- Metadata come back as they were given, from every server, or are refused with a word on why --


VALUES = [
    "plain",
    "two words",
    "voilà",
    "Åse … à la carte",
    "\x85",
    "\xa0",
    "\u2028",
    "größer, 日本, 🐶",
    "",
    " ",
    " before",
    "after ",
    "two  spaces",
    "a\ttab",
    "\x01\x1b[31m\x7f",
    "=?",
    "=?UTF-8?Q?x?=",
    "see =?UTF-8?Q?x?= there",
    "=?no-such-charset?Q?x?=",
    "a=b&c;d,e\"f'",
    "%41 100%",
    "é" * 300,
    "x" * 600,
    "word " * 100 + "end",
    "=C3=A9",
]


@pytest.fixture(params=["moto", pytest.param("ceph", marks=pytest.mark.ceph), "faults", "memory"])
def place(request):
    """Return an URL's beginning and the options for it, of each kind of store that keeps metadata."""
    if request.param == "memory":
        yield f"memory://{uuid.uuid4().hex}/", ps.StoreOptions()
    elif request.param == "faults":
        with FaultServer.within() as server:
            server.make("bucket")
            yield "s3://bucket/", server.store
    else:
        server, name = request.getfixturevalue(f"{request.param}_server"), f"test-{uuid.uuid4().hex}"
        server.client().create_bucket(Bucket=name)
        yield f"s3://{name}/", server.store


def test_values_come_back_as_they_were_given(place):
    url, store = place
    for at in range(0, len(VALUES), 5):  # S3 takes 2 KB of an object's
        given = {f"value-{number}": value for number, value in enumerate(VALUES[at : at + 5])}
        with ps.open(f"{url}{at}", "wb", metadata=given, store=store) as file:
            file.write(b"x")
        found = ps.stat(f"{url}{at}", store=store).metadata
        assert {name: found.get(name) for name in given} == given
        ps.copy(f"{url}{at}", f"{url}copy", store=store)
        assert given.items() <= ps.stat(f"{url}copy", store=store).metadata.items()


def test_any_text_comes_back_from_headers(seed):
    chance = random.Random(seed)
    alphabet = 'aZ =?_"%ßà…Å日🐶\x85\xa0\t\x1f\x7f\u2028\ufeff'
    for _ in range(500):
        given = {"note": "".join(chance.choices(alphabet, k=chance.randrange(60)))}
        headers = write_metadata(Attributes(metadata=given), "x-amz-meta-")
        value = headers["x-amz-meta-note"]
        assert value == " ".join(value.split())
        assert value.isascii()
        assert value.isprintable()
        assert read_metadata(headers, "x-amz-meta-") == given


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"note": "a\0b"}, "NUL"),
        ({"note": "a\nb"}, "line break"),
        ({"note": "a\r\nx-evil: 1"}, "line break"),
        ({"note": "\ud800"}, "surrogate"),
        ({"note": 3}, "str"),
        ({"note": None}, "str"),
        ({"note": b"x"}, "str"),
        ({"größe": "1"}, "ASCII"),
        ({"a b": "1"}, "letters"),
        ({"a:b": "1"}, "letters"),
        ({"": "1"}, "letters"),
        ({"a\n": "1"}, "letters"),
        ({3: "1"}, "letters"),
        ({"Note": "1", "note": "2"}, "lower case"),
    ],
    ids=str,
)
def test_metadata_unsuitable_for_headers_raises_unusable(given, word):
    with pytest.raises(Unusable, match=word):
        write_metadata(Attributes(metadata=given), "x-amz-meta-")


@pytest.mark.parametrize("kind", ["", "text/plain\r\nx-evil: 1", "téxt/plain", "a\0b", "text/日本"])
def test_a_content_type_is_printable_ascii(kind):
    with pytest.raises(Unusable, match="content_type"):
        write_metadata(Attributes(content_type=kind), "x-amz-meta-")


@pytest.mark.parametrize(
    "value", ["=?utf-8?q?a=0Ab?=", "=?utf-8?b?AA==?=", "=?utf-7?q?+2AA-?=", "=?rot13?q?x?=", "=?utf-8?q?=FF?="]
)
def test_metadata_value_with_invalid_decoding_is_kept_unchanged(value):
    found = read_metadata({"x-amz-meta-note": value}, "x-amz-meta-")
    assert found == {"note": value}
    assert read_metadata(write_metadata(Attributes(metadata=found), "x-amz-meta-"), "x-amz-meta-") == found
