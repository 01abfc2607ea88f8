"""Variables in a text: values are taken as they are, defaults as in a shell, and nothing else changes."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.options.typed import Unset, expand

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
