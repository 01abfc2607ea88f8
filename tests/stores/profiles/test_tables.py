"""A table's values stand in their lines; profiles are merged along ``extends``, the nearest first."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.options.typed import Value
from penstock.stores.profiles.files import File, find_tables, key_lines, merge_tables

KEYS = ("region", "endpoint", "profile", "account")
VALUES = st.dictionaries(st.sampled_from(KEYS), st.integers(0, 9), max_size=4)
TEXT = '''# profiles.data
[profiles.data]   # [profiles.other]
url = "s3://bucket/"
read.ahead_items = 3

[profiles.data.options]
endpoint = """
region = "not here"
"""
"region" = 'eu'

[ profiles . "odd name" ]
url = "x"
options = { region = "us" }
'''


def file(profiles, path="file", text=""):
    return File(path, "user", key_lines(text), profiles)


def table(options, extends=""):
    return {"options": dict(options)} | ({"extends": extends} if extends else {})


@given(st.lists(VALUES, min_size=1, max_size=6), st.integers(0, 5))
def test_each_key_is_that_of_the_nearest_profile_that_has_it(layers, split):
    tables = [(str(at), table(values, str(at + 1) if at + 1 < len(layers) else "")) for at, values in enumerate(layers)]
    found = merge_tables(find_tables("0", [file(dict(tables[:split])), file(dict(tables[split:]))]))
    nearest = {key: next(at for at, each in enumerate(layers) if key in each) for each in layers for key in each}
    assert {key: (value.raw, value.origin) for key, value in found.items()} == {
        f"options.{key}": (layers[at][key], f"file: profiles.{at}.options.{key}") for key, at in nearest.items()
    }


@given(st.integers(1, 6), st.integers(0, 5))
def test_a_circle_is_refused_wherever_it_closes(length, back):
    back %= length
    tables = {str(at): table({}, str(at + 1 if at + 1 < length else back)) for at in range(length)}
    with pytest.raises(ConfigError, match="circular") as refused:
        find_tables("0", [file(tables)])
    assert f"file: profiles.{length - 1}.extends" in str(refused.value)


def test_missing_profile_error_suggests_the_nearest_name():
    files = [file({"train": table({}, "bse"), "base": table({})})]
    with pytest.raises(ConfigError, match=r"file: profiles.train.extends: no profile 'bse': did you mean 'base'"):
        find_tables("train", files)
    with pytest.raises(ConfigError, match=r"no profile 'x'; profiles are base, train"):
        find_tables("x", files)


def test_a_later_file_extends_no_profile_of_an_earlier_one():
    with pytest.raises(ConfigError, match="no profile 'mine'"):
        find_tables("base", [file({"mine": table({})}), file({"base": table({}, "mine")})])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"urll": "x"}, "penstock.toml:1: profiles.data.urll: unknown key 'urll': did you mean 'url'?"),
        ({"region": "eu"}, "options of the provider stand in [profiles.data.options] (region = …)"),
        ({"options": "x"}, "profiles.data.options is a table: [profiles.data.options]"),
        ({"url": 3}, "profiles.data.url must be a text, got an int"),
        ({"url": {"file": "x"}}, "must be a text, got a table"),
        ({"extends": ["a"]}, "must be a text, got a list"),
        ({"cache": "/nvme"}, "profiles.data.cache is a table: [profiles.data.cache]"),
        ("s3://bucket", "profiles.data is a table: [profiles.data]"),
    ],
)
def test_invalid_profile_error_gives_location_and_correction(content, says):
    with pytest.raises(ConfigError) as refused:
        file({"data": content}, "penstock.toml", "[profiles.data]").table("data")
    assert says in str(refused.value)


def test_profile_table_is_flat_and_records_value_locations():
    content = {"url": "u", "extends": "b", "read": {"ahead_items": 3}}
    found = file({"data": content}, "/home/penstock.toml", "\n[profiles.data]").table("data")
    assert {key: each.raw for key, each in found.values.items()} == {"url": "u", "extends": "b", "read.ahead_items": 3}
    origin = "/home/penstock.toml:2: profiles.data.read.ahead_items"
    assert found.values["read.ahead_items"] == Value(3, origin, "/home")


@pytest.mark.parametrize(
    ("keys", "number"),
    [
        (("profiles", "data"), 2),
        (("profiles", "data", "url"), 3),
        (("profiles", "data", "read", "ahead_items"), 4),
        (("profiles", "data", "options"), 6),
        (("profiles", "data", "options", "endpoint"), 7),
        (("profiles", "data", "options", "region"), 10),
        (("profiles", "data", "options", "absent"), 6),
        (("profiles", "odd name", "url"), 13),
        (("profiles", "odd name", "options", "region"), 14),
        (("profiles", "nobody"), 2),
        (("nothing",), 0),
    ],
)
def test_the_line_of_a_key(keys, number):
    found = file(tomllib.loads(TEXT)["profiles"], text=TEXT)
    assert found.at(keys) == f"file{f':{number}' if number else ''}: {'.'.join(keys)}"
