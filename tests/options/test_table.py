"""Profiles are merged along ``extends``, the nearest first; circles and unknown keys are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.options.table import ProfileTable, Value, chain, merge_tables, suggest_word, table

KEYS = ("url", "options.region", "options.endpoint", "read.ahead_items", "retry.attempts")
VALUES = st.dictionaries(st.sampled_from(KEYS), st.integers(0, 9), max_size=5)


def made(name: str, values: dict[str, object], extends: str = "") -> ProfileTable:
    raw = dict(values) | ({"extends": extends} if extends else {})
    return ProfileTable(name, f"file: {name}", {key: Value(each, f"file: {name}.{key}") for key, each in raw.items()})


@given(st.lists(VALUES, min_size=1, max_size=6))
def test_each_key_is_that_of_the_nearest_profile_that_has_it(layers):
    tables = {
        str(at): made(str(at), values, str(at + 1) if at + 1 < len(layers) else "") for at, values in enumerate(layers)
    }
    found = merge_tables(chain("0", tables.get, tables.keys))
    wanted = {
        key: next(each[key] for each in layers if key in each) for key in {key for each in layers for key in each}
    }
    assert {key: each.raw for key, each in found.items()} == wanted
    assert all(
        each.origin == f"file: {next(i for i, v in enumerate(layers) if k in v)}.{k}" for k, each in found.items()
    )


@given(st.integers(1, 6), st.integers(0, 5))
def test_a_circle_is_refused_wherever_it_closes(length, back):
    back %= length
    tables = {str(at): made(str(at), {}, str(at + 1 if at + 1 < length else back)) for at in range(length)}
    with pytest.raises(ConfigError, match="circle") as refused:
        chain("0", tables.get, tables.keys)
    assert f"file: {length - 1}.extends" in str(refused.value)


def test_missing_profile_error_suggests_the_nearest_name():
    tables = {"train": made("train", {}, "bse"), "base": made("base", {})}
    with pytest.raises(ConfigError, match=r"file: train.extends: no profile 'bse': did you mean 'base'"):
        chain("train", tables.get, tables.keys)
    with pytest.raises(ConfigError, match=r"no profile 'x'; there are base, train"):
        chain("x", tables.get, tables.keys)


def at(keys):
    return f"penstock.toml:7: {'.'.join(keys)}"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"urll": "x"}, "penstock.toml:7: profiles.data.urll: a profile has no 'urll': did you mean 'url'?"),
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
        table("data", content, at, "/home")
    assert says in str(refused.value)


def test_profile_table_is_flat_and_records_value_locations():
    found = table("data", {"url": "u", "extends": "b", "read": {"ahead_items": 3}}, at, "/home")
    assert {key: each.raw for key, each in found.values.items()} == {"url": "u", "extends": "b", "read.ahead_items": 3}
    assert found.values["read.ahead_items"] == Value(3, "penstock.toml:7: profiles.data.read.ahead_items", "/home")
    assert found.extends == "b"
    assert "secret" not in repr(Value("secret", "here"))


def test_nothing_near_is_not_guessed():
    assert suggest_word("zzz", ["endpoint"], "; none") == "; none"
