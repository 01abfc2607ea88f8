"""Keys agree with those of webdataset for any name."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.shards.keys import rule_of
from penstock.data.shards.tar import TarFormat
from penstock.data.shards.zip import ZipFormat
from penstock.errors import Unusable
from tests.data.shards.archives import samples, tar, walked, zipped
from tests.refusals import refused

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
    refused(Unusable, "key must be a rule, the text of a regular expression, or a function", TarFormat, key=key)


PAIRS = [("a.jpg", b"JPEG"), ("a.cls", b"1"), ("b.jpg", b"x" * 1000), ("b.cls", b"")]


@pytest.mark.parametrize(("form", "write"), [(TarFormat, tar), (ZipFormat, zipped)], ids=["tar", "zip"])
class TestFields:
    def test_single_name_makes_the_member_itself_the_sample(self, form, write):
        assert samples(form(fields="cls"), write(PAIRS)) == [b"1", b""]

    def test_extents_hold_only_the_fields_that_are_taken(self, form, write):
        sizes = {"tar": [513, 512], "zip": [36, 35]}[form.name]
        assert walked(form(fields=("cls",)), write(PAIRS))[0].sizes.tolist() == sizes

    @pytest.mark.parametrize(("missing", "keys"), [("drop", ["a"]), ("none", ["a", "b"])], ids=["drop", "none"])
    def test_sample_without_a_field_is_dropped_or_has_none(self, form, write, missing, keys):
        found = samples(form(fields=("jpg", "cls"), missing=missing), write(PAIRS[:3]))
        assert [key for key, _ in found] == keys
        assert missing == "drop" or found[1][1] == {"jpg": b"x" * 1000, "cls": None}
