"""Names come apart and together again without a character lost."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.errors import InvalidURL
from penstock.interop.path import Names, join_path


@pytest.mark.parametrize(
    ("path", "parent", "name"),
    [
        ("b/", "b/", ""),
        ("b/a", "b/", "a"),
        ("b/a/b", "b/a", "b"),
        ("b/a/", "b/", "a"),
        ("b/a//", "b/a", ""),
        ("b/a//b", "b/a//", "b"),
        ("b/a///b", "b/a///", "b"),
        ("b//", "b/", ""),
        ("b//a", "b//", "a"),
        ("/tmp/x", "/tmp", "x"),  # noqa: S108  a name
        ("s3://b/a/x", "b/a", "x"),
    ],
)
def test_a_path_is_a_parent_and_a_name(path, parent, name):
    assert Names.split(path) == (parent, name)


@example("a//b")
@example("//a")
@given(st.text("ab/.? ", max_size=8))
def test_parent_and_name_are_the_path_again(key):
    parent, name = Names.split(f"bucket/{key}")
    if name and not key.endswith("/") and name != ".":
        assert join_path(parent, name) == f"bucket/{key}"


@given(st.text("ab/.", max_size=12))
def test_every_path_leads_to_its_bucket(key):
    path, steps = f"bucket/{key}", 0
    while (parent := Names.split(path)[0]) != path:
        assert len(parent) <= len(path)
        path, steps = parent, steps + 1
        assert steps <= 2 * len(key) + 2
    assert path == "bucket/"


def test_joined_name_stays_below_its_base_and_absolute_names_are_refused():
    assert join_path("b/", "a", "", ".", "c//d", "e/") == "b/a/c//d/e/"
    assert join_path("s3://b/x/", "y") == "s3://b/x/y"
    for wrong in ("/a", "s3://b/c"):
        with pytest.raises(InvalidURL, match="the name is absolute"):
            join_path("b/", wrong)


def test_the_rest_of_a_parser():
    assert Names.splitdrive("s3://b/a/c") == ("b", "/a/c")
    assert Names.splitroot("b/a") == ("b", "/", "a")
    assert Names.splitext("a.tar.gz") == ("a.tar", ".gz")
    assert Names.splitext(".profile") == (".profile", "")
    assert (Names.join("s3://b/a", "c"), Names.normcase("Aa"), Names.isabs("x")) == ("b/a/c", "Aa", True)
    assert Names.strip_protocol("b/c://d") == "b/c://d"
