"""What is sent, shown and listed of a key."""

from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.stores.web.route import canonical, escape_key, hide_query, plain


@pytest.mark.parametrize(
    ("key", "sent"),
    [
        ("a/b.txt", "a/b.txt"),
        ("a b", "a%20b"),
        ("a%20b", "a%20b"),
        ("100%", "100%25"),
        ("100%25", "100%25"),
        ("a+b&c=d;e,f:g@h!i$j'k(l)m*n", "a+b&c=d;e,f:g@h!i$j'k(l)m*n"),
        ("ü/日", "%C3%BC/%E6%97%A5"),
        ('"<>\\^`{|}[]', "%22%3C%3E%5C%5E%60%7B%7C%7D%5B%5D"),
        ("x/../y", "x/../y"),
        ("a\r\nHost: evil", "a%0D%0AHost:%20evil"),
        ("k?X-Sig=a%2Fb+c/=&q=[1]", "k?X-Sig=a%2Fb+c/=&q=[1]"),
        ("a b?c d=ü", "a%20b?c%20d=%C3%BC"),
        ("k?a?b", "k?a?b"),
        ("ha#sh", "ha%23sh"),
    ],
)
def test_unsafe_url_characters_are_escaped_and_existing_escapes_are_kept(key, sent):
    assert escape_key(key) == sent
    assert escape_key(sent) == sent
    assert bool(plain(key)) is (key == sent and key.isascii() and quote(key, safe="/~") == key)


def test_a_query_is_not_shown():
    assert hide_query("a b?sig=hush") == "a b?…"
    assert hide_query("a/b") == "a/b"


@pytest.mark.parametrize(
    ("spelling", "listed"),
    [
        ("a%20b", "a b"),
        ("%41%7E", "A~"),
        ("%c3%bc", "ü"),
        ("%FF%fe", "%FF%FE"),
        ("%00%0a", "%00%0A"),
        ("a%2Fb%3F%23%25%2B%3B", "a%2Fb%3F%23%25%2B%3B"),
        ("a+b;c", "a+b;c"),
        ("50%", "50%25"),
        ("%E2%80%AE", "%E2%80%AE"),  # turns the direction of text
    ],
)
def test_listings_have_one_readable_spelling(spelling, listed):
    assert canonical(spelling) == listed
    assert canonical(listed) == listed


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/"), min_size=1))
def test_a_listed_name_leads_to_the_file_of_that_name(name):
    key = canonical(quote(name, safe=""))
    assert unquote(escape_key(key)) == name
    assert key.isprintable()
    assert not {"?", "#"} & set(key)
