"""Values become what a field's type says, or the refusal names file, line and key; secrets are not quoted."""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import ConfigError
from penstock.options import PUBLIC
from penstock.options.typed import Value, literal_secrets, make_options, own_names, suggest_word

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
