"""Keys agree with those of webdataset for any name."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.shards.keys import rule_of
from penstock.data.shards.tar import TarFormat
from penstock.errors import Unusable

# The pattern of webdataset.tariterators.base_plus_ext, which energon, Ray and Hugging Face copy.
WEBDATASET = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$")


@given(st.text("ab./é ", max_size=12))
def test_first_dot_is_the_rule_of_webdataset(name):
    match = WEBDATASET.match(name)
    found = rule_of("first-dot")(name)
    # Theirs lets a key end with a folder whose name has no dot: `a/.b` is the field `b` of the sample `a/`.
    if match is None or match[1].endswith("/"):
        assert found is None
    else:
        assert found == (match[1], match[2].lower())


@given(st.text("ab./é ", max_size=12))
def test_last_dot_gives_a_field_without_dots(name):
    found = rule_of("last-dot")(name)
    if found is not None:
        key, field = found
        assert f"{key}.{field}" == f"{key}.{name[len(key) + 1 :].lower()}"
        assert "." not in field
        assert "/" not in field


@pytest.mark.parametrize("key", [["first-dot"], 3, b"(?P<key>b)(?P<field>c)", re.compile("(?P<key>a)(?P<field>b)")])
def test_keys_that_no_catalog_could_hold_are_refused(key):
    with pytest.raises(Unusable, match="key must be a rule, the text of a regular expression, or a function"):
        TarFormat(key=key)
