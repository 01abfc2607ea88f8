"""Values become what a field's type says, or the refusal names file, line and key; secrets are not quoted."""

from __future__ import annotations

import dataclasses
import string
from dataclasses import field
from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import ConfigError
from penstock.options import PUBLIC
from penstock.options.typed import (
    Unset,
    Value,
    cache_folder,
    cache_options,
    expand,
    literal_secrets,
    make_options,
    own_names,
    suggest_word,
    with_cache,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Odd(ps.StoreOptions):
    text: str | None = field(default=None, metadata=PUBLIC)
    hidden: str | None = field(default=None, repr=False)
    count: int = 3
    size_bytes: int = 5
    wait_s: float = 0.5
    yes: bool = False
    style: Literal["one", "two"] = "one"
    several: tuple[str, ...] = ()
    either: str | tuple[str, ...] | None = field(default=None, metadata=PUBLIC)
    named: Mapping[str, str] | None = field(default=None, metadata=PUBLIC)
    call: Callable[[], str] | None = field(default=None, repr=False)


def made(kind, lookup={}.get, folder="/nowhere", **raw):
    values = {name: Value(each, f"f.toml:1: {name}", folder) for name, each in raw.items()}
    return make_options(kind, values, lookup)


@pytest.mark.parametrize(
    ("name", "raw", "wanted"),
    [
        ("text", "a", "a"),
        ("count", 7, 7),
        ("count", " 12 ", 12),
        ("size_bytes", "64 MiB", 64 << 20),
        ("size_bytes", "1k", 1 << 10),
        ("size_bytes", "2GB", 2 << 30),
        ("wait_s", 2, 2.0),
        ("wait_s", "1.5", 1.5),
        ("yes", True, True),
        ("yes", "Yes", True),
        ("yes", "0", False),
        ("style", "two", "two"),
        ("several", ["a", "b"], ("a", "b")),
        ("either", "a", "a"),
        ("either", ["a"], ("a",)),
        ("named", {"x-a": "b"}, {"x-a": "b"}),
    ],
)
def test_option_value_is_converted_to_its_field_type(name, raw, wanted):
    found = getattr(made(Odd, **{name: raw}), name)
    assert found == wanted
    assert type(found) is type(wanted)


@pytest.mark.parametrize(
    ("name", "raw", "says"),
    [
        ("text", 3, "f.toml:1: text must be a text, got 3"),
        ("count", "7.5", "must be a whole number, got '7.5'"),
        ("count", True, "must be a whole number, got True"),
        ("count", "64 MiB", "must be a whole number"),
        ("wait_s", "soon", "must be a number, got 'soon'"),
        ("wait_s", False, "must be a number"),
        ("yes", "maybe", "must be true or false, got 'maybe'"),
        ("yes", 1, "must be true or false"),
        ("style", "three", "must be 'one' or 'two', got 'three'"),
        ("several", [1], "must be a list of texts"),
        ("either", 3, "must be a text or a list of texts"),
        ("named", {"x": 3}, "must be a table of texts"),
        ("call", "x", "must be set in a program, not in a file"),
        ("cuont", 3, "f.toml:1: cuont: Odd has no option 'cuont': did you mean 'count'?"),
        ("zzz", 3, "Odd has no option 'zzz'; it has transport"),
        ("text", {"file": "nope"}, "f.toml:1: text: the file /nowhere/nope cannot be read: No such file"),
        ("text", "${NOPE}", "f.toml:1: text: the variable NOPE is not set"),
    ],
)
def test_invalid_option_value_error_gives_location_and_expected_type(name, raw, says):
    with pytest.raises(ConfigError) as refused:
        made(Odd, **{name: raw})
    assert says in str(refused.value)


@given(st.one_of(st.integers(), st.booleans(), st.lists(st.text(min_size=4))))
def test_a_secret_of_the_wrong_kind_is_not_quoted(raw):
    with pytest.raises(ConfigError) as refused:
        made(Odd, hidden=raw)
    assert str(refused.value) == "f.toml:1: hidden must be a text"


def test_variables_are_expanded_and_converted():
    assert made(Odd, {"N": "9"}.get, count="${N}", several=["${N}", "x"]) == Odd(count=9, several=("9", "x"))
    assert made(Odd, {"N": "9"}.get, named={"x": "${N}"}).named == {"x": "9"}


def test_a_secret_s_file_is_read_without_its_line_s_end(tmp_path):
    (tmp_path / "key").write_text("hush\n")
    assert made(Odd, {"PLACE": "key"}.get, str(tmp_path), hidden={"file": "${PLACE}"}).hidden == "hush"
    for text, fault in (("", "is empty"), ("x" * 70_000, "more than 64 KiB")):
        (tmp_path / "key").write_text(text)
        with pytest.raises(ConfigError, match=fault):
            made(Odd, folder=str(tmp_path), hidden={"file": "key"})


def test_options_that_contradict_themselves_name_the_value():
    with pytest.raises(ConfigError, match=r"f.toml:1: access_key: access_key and secret_key go together"):
        made(ps.S3Options, region="eu", access_key="AKIA")
    with pytest.raises(ConfigError, match=r"f.toml:1: connections: TransportOptions.connections must be positive"):
        made(ps.TransportOptions, connections=0)


def test_option_parts_are_separate_tables():
    retry = ps.RetryOptions(attempts=2)
    assert make_options(Odd, {}, {}.get, retry=retry).retry is retry
    with pytest.raises(ConfigError, match="retry is a separate table, beside options"):
        make_options(Odd, {"retry": Value({}, "f.toml:1: retry")}, {}.get, retry=retry)


def test_literal_secrets_are_those_in_the_file_itself():
    values = {"secret_key": "hush", "access_key": "${ID}", "session_token": {"file": "x"}, "region": "eu"}
    found = literal_secrets(ps.S3Options, {f"options.{name}": Value(raw, "") for name, raw in values.items()})
    assert found == ["secret_key"]
    assert "hush" not in repr(Value("hush", ""))
    assert "endpoint" in own_names(ps.S3Options)
    assert "retry" not in own_names(ps.S3Options)


def test_nothing_near_is_not_guessed():
    assert suggest_word("zzz", ["endpoint"], "; none") == "; none"


# -- Variables in a text: values are taken as they are, defaults as in a shell, and nothing else changes --


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
TEXTS = st.text(st.sampled_from("ab ${}:-\\é\n" + string.digits), max_size=30)


def plain(text: str) -> str:
    return text.replace("${", "$${")


@given(TEXTS)
def test_an_escaped_text_expands_to_itself(text):
    assert expand(plain(text), {}.get) == text


@given(st.lists(st.tuples(TEXTS, NAMES, TEXTS), max_size=5), TEXTS)
def test_each_variable_is_replaced_once_by_its_value_as_it_stands(pieces, tail):
    values = {name: value or "x" for _, name, value in pieces}
    text = "".join(f"{plain(before)}${{{name}}}" for before, name, _ in pieces)
    # A "$" right before a variable would be its escape.
    separated = [f"{before}{'.' if before.endswith('$') else ''}" for before, _, _ in pieces]
    text = "".join(f"{plain(b)}${{{name}}}" for b, (_, name, _) in zip(separated, pieces, strict=True)) + plain(tail)
    wanted = "".join(b + values[name] for b, (_, name, _) in zip(separated, pieces, strict=True)) + tail
    assert expand(text, values.get) == wanted


@given(NAMES, st.text("ab é:/", max_size=9), st.text("xyz", min_size=1))
def test_a_default_counts_where_the_variable_is_unset_or_empty(name, default, value):
    text = f"<${{{name}:-{default}}}>"
    assert expand(text, {}.get) == expand(text, {name: ""}.get) == f"<{default}>"
    assert expand(text, {name: value}.get) == f"<{value}>"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("${A:-${B}}", "b"),
        ("${A:-${C:-x${B}y}}", "xby"),
        ("${B:-${C}}", "b"),  # what is not needed need not be set
        ("${A:-$${x}", "${x"),
        ("${A:-}", ""),
        ("$B $ {B} $", "$B $ {B} $"),
        ("}", "}"),
    ],
)
def test_defaults_nest_and_other_dollars_stay(text, wanted):
    assert expand(text, {"B": "b"}.get) == wanted


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("${NOPE}", "NOPE is not set"),
        ("${A:-${NOPE}}", "NOPE is not set"),
        ("${EMPTY}", "EMPTY is not set"),
        ("${A", "'${A' is not closed"),
        ("${A-x}", "not closed"),
        ("${A:-x", "not closed"),
        ("${}", "name of a variable"),
        ("${1}", "name of a variable"),
    ],
)
def test_unexpandable_text_raises_with_the_reason(text, says):
    with pytest.raises(Unset) as refused:
        expand(text, {"EMPTY": ""}.get)
    assert says in str(refused.value)


# -- A store's cache is that of its options; else that of the environment; else there is none --


NEAR = {"PENSTOCK_CACHE": "/near"}


def test_cache_is_disabled_without_options_or_variable():
    assert cache_options(None, {}) is None
    assert cache_options(None, {"PENSTOCK_CACHE_SIZE": "1 GiB"}) is None


@pytest.mark.parametrize("word", ["", "0", "off", "No", "FALSE"])
def test_false_cache_variable_creates_no_cache_and_keeps_explicit_cache(word):
    assert cache_options(None, {"PENSTOCK_CACHE": word}) is None
    assert cache_options(ps.CacheOptions(path="/own"), {"PENSTOCK_CACHE": word}) == ps.CacheOptions(path="/own")


def test_a_variable_names_the_directory_or_asks_for_the_default():
    assert cache_options(None, NEAR) == ps.CacheOptions(path="/near")
    assert cache_options(None, {"PENSTOCK_CACHE": "1", "HOME": "/h"}) == ps.CacheOptions(path="/h/.cache/penstock")
    assert cache_options(ps.CacheOptions(), {"XDG_CACHE_HOME": "/c"}) == ps.CacheOptions(path="/c/penstock")
    assert cache_options(ps.CacheOptions(), NEAR) == ps.CacheOptions(path="/near")
    assert cache_folder(NEAR) == "/near"


def test_a_store_whose_mode_is_off_has_no_cache_under_the_variable():
    off = ps.CacheOptions(mode="off")
    assert cache_options(off, NEAR) is None
    assert cache_options(off, NEAR | {"PENSTOCK_CACHE_MODE": "ttl"}) is None
    assert with_cache(ps.S3Options(cache=off), NEAR).cache is None
    assert with_cache(ps.S3Options(), NEAR).cache == ps.CacheOptions(path="/near")


def test_options_count_before_variables_and_variables_before_defaults():
    environ = {
        **NEAR,
        "PENSTOCK_CACHE_SIZE": "200GiB",
        "PENSTOCK_CACHE_MODE": "ttl",
        "PENSTOCK_CACHE_TTL": "7.5",
        "PENSTOCK_CACHE_MEMORY": "64 MiB",
    }
    made = cache_options(None, environ)
    wanted = ps.CacheOptions(path="/near", size_bytes=200 << 30, mode="ttl", ttl_s=7.5, memory_bytes=64 << 20)
    assert made == wanted
    own = ps.CacheOptions(path="/own", size_bytes=1 << 30)
    assert cache_options(own, environ) == ps.CacheOptions(
        path="/own", size_bytes=1 << 30, mode="ttl", ttl_s=7.5, memory_bytes=64 << 20
    )


def test_a_relative_path_is_below_the_working_directory(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert cache_options(ps.CacheOptions(path="near"), {}) == ps.CacheOptions(path=str(tmp_path / "near"))


def test_a_tilde_is_the_home_directory_and_without_one_a_directory_has_to_be_named(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_options(ps.CacheOptions(path="~/near"), {}) == ps.CacheOptions(path=str(tmp_path / "near"))
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # a user whom the machine does not know
    with pytest.raises(ConfigError, match=r"no home directory.*PENSTOCK_CACHE"):
        cache_options(None, {"PENSTOCK_CACHE": "1"})


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("PENSTOCK_CACHE_SIZE", "much", "PENSTOCK_CACHE_SIZE must be a whole number, got 'much'"),
        (
            "PENSTOCK_CACHE_MODE",
            "lru",
            "PENSTOCK_CACHE_MODE must be 'immutable' or 'ttl' or 'revalidate' or 'off', got 'lru'",
        ),
        ("PENSTOCK_CACHE_TTL", "long", "PENSTOCK_CACHE_TTL must be a number"),
    ],
)
def test_a_variable_that_cannot_be_meant_is_refused_by_its_name(name, text, says):
    with pytest.raises(ConfigError) as refused:
        cache_options(None, NEAR | {name: text})
    assert says in str(refused.value)


def test_a_store_s_options_are_theirs_where_nothing_changes():
    plain, near = ps.S3Options(region="eu"), ps.S3Options(region="eu", cache=ps.CacheOptions(path="/near"))
    assert with_cache(plain, {}) is plain
    assert with_cache(near, {}) is near
    assert with_cache(plain, NEAR) == near
