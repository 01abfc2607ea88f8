"""Paths, queries and header values are escaped once, in the form that signatures compare."""

from penstock.stores.http.headers import escape, query_string, trim_headers


def test_a_key_s_every_byte_is_escaped_once():
    assert escape("a/b c+%20~é//./x/../y") == "a/b%20c%2B%2520~%C3%A9//./x/../y"
    assert query_string({"b": "1 +", "a-b": "", "a": "é"}) == "a=%C3%A9&a-b=&b=1%20%2B"


def test_header_values_lose_spaces_and_no_other_white_space():
    assert trim_headers({"a": "  b   c ", "d": "\x85\xa0"}) == {"a": "b c", "d": "\x85\xa0"}
